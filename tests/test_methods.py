"""Options of methods and their messages, and what must hold for a model trained with any of them."""

import math

import numpy as np
import pytest
import torch
from examples import ARCHITECTURES, CONFIG, some_pairs, told, trained_one_step

from headdiv.config import ModelConfig
from headdiv.data.batches import Pairs, make_batch
from headdiv.errors import ConfigError
from headdiv.methods import METHODS, check_method, make_method
from headdiv.methods.deacon import pca_layers
from headdiv.model import Transformer

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
        (told("direct", 9), too_many(9, 8, "direct")),
        (told("average", 9), too_many(9, 8, "average")),
        (told("nonlinear", 45), too_many(45, 44, "nonlinear")),
        (told("direct", 0), "method.m: input should be greater than or equal to 1, found 0"),
        (told(xi=1.0), "method.xi: input should be less than 1, found 1.0"),
        (told(delta_p=0), "method.delta_p: input should be greater than 0, found 0"),
        (told("indirect"), "method.architecture: input should be 'direct', 'average' or 'nonlinear', found 'indirect'"),
        ({"name": "deacon", "m": 3}, "method.architecture: is missing"),
        (told(delta=0.1), "method.delta: unknown key; did you mean 'delta_p'?"),
        (told(gha_step=5), "method.gha_step: unknown key; did you mean 'gha_steps'?"),
        ({"name": "baseline", "m": 3}, "method.m: unknown key; known here: none"),
        ({"name": "decon"}, "method.name: unknown method 'decon'; did you mean 'deacon'?"),
        ({"name": "xyz"}, "method.name: unknown method 'xyz'; known here: baseline, deacon"),
        ({}, "method.name: unknown method None; known here: baseline, deacon"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options, message):
    assert refusal(options) == message


def test_room_for_components_follows_the_heads():
    assert refusal(told(m=5), ModelConfig(heads=4)).startswith("method.m: 5 is more than the k = 4 inputs")
    assert check_method(told("nonlinear", 14), ModelConfig(heads=4))["m"] == 14


def test_options_left_out_are_the_papers():
    assert check_method(told(), ModelConfig()) == {
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

EXAMPLES = {"baseline": [{"name": "baseline"}], "deacon": [told(name, gha_steps=5) for name in ARCHITECTURES]}
EVERY = [pytest.param(example, id="-".join(str(v) for v in list(example.values())[:2]))
         for examples in EXAMPLES.values() for example in examples]  # fmt: skip


def test_every_method_has_an_example_here():
    assert EXAMPLES.keys() == METHODS.keys()


def test_the_baseline_carries_no_trace_of_a_method():
    model = Transformer(CONFIG, 15, 15, make_method({"name": "baseline"}).attention)
    assert pca_layers(model) == {}
    for name in model.state_dict():
        assert not {"w", "b", "norm", "project", "moments", "first", "second"} & set(name.split("."))
        assert "running" not in name
    assert make_method({"name": "baseline"}).own_parameters(model) == []


@pytest.mark.parametrize("options", EVERY)
def test_every_model_trains_with_finite_gradients(options):
    model, method = trained_one_step(options)
    for name, parameter in model.named_parameters():
        if not name.startswith("output_embedding"):
            assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    method.after_backward(model, 0.0)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


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
def test_every_state_dict_comes_back(options):
    model, method = trained_one_step(options)
    method.after_backward(model, 0.0)
    other = Transformer(CONFIG, 15, 15, make_method(options).attention)
    other.load_state_dict(model.state_dict())
    batch = make_batch(some_pairs(seed=4), range(6))
    assert torch.equal(model.eval()(batch), other.eval()(batch))


@pytest.mark.parametrize("options", EVERY)
def test_every_model_decodes_as_it_is_trained(options):
    """One position at a time equals the whole pass, in evaluation."""
    model, _ = trained_one_step(options, torch.float64)
    model.eval()
    batch = make_batch(Pairs([np.array([5, 6, 7])], [np.array([8, 9, 10])]), [0])
    memory = model.encode(batch.source, batch.encoder)
    expected = model.output_embedding(model.decode(batch, memory))
    caches = model.start(memory[None], torch.zeros(1, 4, dtype=torch.float64), 4)
    for position, word in enumerate(batch.target_in):
        torch.testing.assert_close(model.step(word[None], position, caches)[0], expected[position])
    assert math.isfinite(expected.sum().item())
