"""Options of methods and their messages, and what must hold for a model trained with any of them."""

import math

import numpy as np
import pytest
import torch
from examples import CONFIG, EXAMPLES, deacon, some_pairs, tiny, trained_one_step, watched_pass
from faulty import exactly
from torch import nn

from headdiv.core.errors import ConfigError
from headdiv.methods import METHODS, check_method, make_method
from headdiv.methods.deacon import pca_layers
from headdiv.nn.batching import Pairs, make_batch
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import ModelConfig
from headdiv.nn.transformer import Transformer

KNOWN = ", ".join(sorted(METHODS))

# ---- options


def refusal(options, model=None):
    with pytest.raises(ConfigError) as found:
        check_method(options, model or ModelConfig(), ("method",))
    return str(found.value)


def too_many(m, k, architecture):
    layer = f"the PCA layer ({architecture} architecture, 8 heads)"
    return f"method.m: {m} is more than the k = {k} inputs of {layer}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (deacon("direct", 9), too_many(9, 8, "direct")),
        (deacon("nonlinear", 45), too_many(45, 44, "nonlinear")),
        (deacon("direct", 0), "method.m: input should be greater than or equal to 1, found 0"),
        ({"name": "deacon", "architecture": "direct"}, "method.m: is missing"),
        (deacon(gha_step=5), "method.gha_step: unknown key; did you mean 'gha_steps'?"),
        ({"name": "baseline", "m": 3}, "method.m: unknown key; known here: none"),
        ({"name": "decon"}, "method.name: unknown method 'decon'; did you mean 'deacon'?"),
        ({}, "method.name: is missing"),
        ({"name": None}, "method.name: unknown method None; known here: " + KNOWN),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options, message):
    assert refusal(options) == message


@pytest.mark.parametrize("method", [3, None, ["deacon"]])
def test_what_is_no_method_is_named(method):
    with exactly(f"method: expected {{'name': …, option: value, …}}, found {method!r}", ConfigError):
        make_method(method)


def test_options_left_out_are_the_papers():
    assert check_method(deacon(), ModelConfig()) == {
        "name": "deacon",
        "architecture": "direct",
        "m": 3,
        "delta_p": 0.2,
        "delta_p_schedule": "constant",
        "xi": 0.8,
        "gha_steps": 500,
        "direction": "gha",
    }
    assert check_method({"name": "baseline"}, ModelConfig()) == {"name": "baseline"}


# ---- what holds for every method

EVERY = [pytest.param(example, id="-".join(str(v) for v in list(example.values())[:2]))
         for examples in EXAMPLES.values() for example in examples]  # fmt: skip


def test_every_method_has_an_example_here():
    assert EXAMPLES.keys() == METHODS.keys()


def test_the_baseline_carries_no_trace_of_a_method():
    method = make_method({"name": "baseline"})
    model = Transformer(CONFIG, 15, 15, method)
    assert pca_layers(model) == {}
    expected = {"in_projection.weight", "output.weight", "output.bias"}
    for attention in (m for m in model.modules() if hasattr(m, "in_projection")):
        assert type(attention) is MultiHeadAttention
        assert attention.state_dict().keys() == expected
    assert all(type(layer.block_output) is nn.Identity for layer in (*model.encoder, *model.decoder))
    assert not {name for name, _ in model.named_buffers()} - {"position_table"}
    assert method.own_parameters(model) == method.frozen_parameters(model, 0.0) == []
    assert method.required_records() == "nothing"
    assert method.aux_loss(model, [], 0.5, 1) is None
    assert method.artifacts(model) == method.after_epoch(None) == {}


def test_every_methods_options_are_checked_and_complete():
    for examples in EXAMPLES.values():
        for options in examples:
            results = check_method(options, CONFIG)
            assert options.items() <= results.items()
            assert check_method(results, CONFIG) == results


@pytest.mark.parametrize("options", EVERY)
def test_every_model_trains_with_finite_gradients(options):
    """The method's own loss is part of it."""
    model, method = trained_one_step(options)
    for name, parameter in model.named_parameters():
        if not name.startswith("output_embedding"):
            assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    method.after_backward(model, 0.0)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("options", EVERY)
@pytest.mark.parametrize("window", [1, 13])
def test_the_width_of_windows_is_without_effect(options, window):
    """In windows of width 1 every sentence is padded to the longest: padding is without effect too."""
    model, method = tiny(options)
    pairs, results = some_pairs(7), []
    for width in (48, window):
        batch = make_batch(pairs, range(7), window=width)
        hidden, added = watched_pass(model, method, batch)
        by_number = dict(zip(batch.numbers.tolist(), hidden.split(batch.target_side.lengths.tolist()), strict=True))
        results.append(([by_number[i] for i in range(7)], added))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("options", EVERY)
def test_every_model_keeps_sentences_and_later_words_apart(options):
    model, _ = trained_one_step(options, torch.float64)
    model.eval()
    pairs = some_pairs()
    batch = make_batch(pairs, range(6))
    before = model(batch)
    side, source_side = batch.target_side, batch.source_side
    line = int(side.lengths.argmax())
    first, last = int(side.offsets()[line]), int(side.offsets()[line] + side.lengths[line]) - 1
    batch.target_in[last] = 4 + (batch.target_in[last] - 3) % 11
    after = model(batch)
    torch.testing.assert_close(after[:last], before[:last])
    torch.testing.assert_close(after[last + 1 :], before[last + 1 :])
    assert not torch.allclose(after[last], before[last])
    batch.source[int(source_side.offsets()[line])] = 1
    moved = (model(batch) - after).abs().amax(dim=1) > 1e-9
    expected = torch.zeros(len(moved), dtype=torch.bool)
    expected[first : last + 1] = True
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("options", EVERY)
def test_every_model_decodes_as_it_is_trained(options):
    """One position at a time equals the whole pass, in evaluation."""
    model, _ = trained_one_step(options, torch.float64)
    model.eval()
    batch = make_batch(Pairs([np.array([5, 6, 7])], [np.array([8, 9, 10])]), [0])
    memory = model.encode(batch.source, batch.encoder)
    expected = model.output_embedding(model.decode(batch, memory))
    state = model.start(memory[None], torch.zeros(1, 4, dtype=torch.float64), 4)
    for word, logits in zip(batch.target_in, expected, strict=True):
        torch.testing.assert_close(model.output_embedding(model.step(word[None], state))[0], logits)
    assert math.isfinite(expected.sum().item())


@pytest.mark.parametrize("options", EVERY)
def test_in_bfloat16_activations_stay_narrow_and_gradients_are_finite_and_float32(options):
    """Hidden states near those of float32: choices (of units, of experts) may differ where two are almost equal."""
    batch = make_batch(some_pairs(), range(6))
    model, method = tiny(options, torch.float32)
    expected, _ = watched_pass(model, method, batch)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, added = watched_pass(model, method, batch)
    assert hidden.dtype == torch.bfloat16
    assert (hidden.float() - expected).norm() < 0.2 * expected.norm()
    (hidden.float().square().mean() + added).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert {g.dtype for g in gradients} == {torch.float32}
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("options", [one for found in EXAMPLES.values() for one in found], ids=str)
def test_a_rank_s_share_of_a_batch_may_be_empty(options):
    """In training, but for batch normalisation: its statistics are those of all ranks."""
    model, method = tiny(options)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()
    hidden, added = watched_pass(model, method, make_batch(some_pairs(), []))
    (hidden.sum() + added).backward()
    assert not hidden.numel()
    assert added.isfinite()
