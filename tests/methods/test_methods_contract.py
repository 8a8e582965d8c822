"""What every method must keep, shown on the examples in `examples.EXAMPLES`: a new one is held to it by its row there.

What a method is in particular (its formula, its limits, the paper's counts) stands in the file of its name.
"""

import copy

import numpy as np
import pytest
import torch
from examples import CONFIG, EXAMPLES, every_method, some_pairs, tiny, trained_one_step, watched_pass
from small_model import Pairs, Small, batch_of, loss_of, make_batch
from torch import nn

from headdiv.analysis.masking import heads_of, masked_heads
from headdiv.core.errors import ConfigError
from headdiv.methods.base import HOOKS, Method
from headdiv.methods.registry import METHODS, check_method, make_method
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.records import attention_modules, record_heads


def a_step(model, method, seed=0, progress=0.5):
    """Forward, backward, the method's update and a plain step of everything else; returns the loss."""
    batch = make_batch(some_pairs(seed=seed), range(6))
    model.train()
    for parameter in model.parameters():
        parameter.grad = None
    torch.manual_seed(seed)
    hidden, added = watched_pass(model, method, batch, progress)
    loss = loss_of(model, hidden, batch) + added
    loss.backward()
    method.after_backward(model, progress)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad
    return loss.detach()


def equal(one, other):
    """Whether two state dictionaries are, to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---- configuration


def test_every_method_has_an_example():
    assert EXAMPLES.keys() == METHODS.keys()


@every_method()
def test_options_are_completed_once_and_say_which_hooks_the_method_has(options):
    complete = check_method(options, CONFIG)
    assert options.items() <= complete.items()
    assert check_method(complete, CONFIG) == complete
    cls = METHODS[options["name"]]
    assert cls.Options.builds == {hook for hook in HOOKS if getattr(cls, hook) is not getattr(Method, hook)}
    assert make_method(complete).options == make_method(options).options


@every_method()
def test_one_head_is_enough_or_the_options_say_why_not(options):
    refused = ""
    try:
        check_method(options, CONFIG.model_copy(update={"heads": 1}))
    except ConfigError as error:
        refused = str(error)
    if refused:
        assert "head" in refused
        return
    model, method = tiny(options, heads=1)
    assert a_step(model, method).isfinite()


# ---- the baseline


def test_the_baseline_carries_no_trace_of_a_method():
    method = make_method({"name": "baseline"})
    model = Small(CONFIG, method)
    for attention in attention_modules(model):
        assert type(attention) is MultiHeadAttention
        assert attention.state_dict().keys() == {"in_projection.weight", "output.weight", "output.bias"}
    assert all(type(layer.block_output) is nn.Identity for layer in (*model.encoder, *model.decoder))
    assert not list(model.buffers())
    assert method.own_parameters(model) == method.frozen_parameters(model, 0.0) == []
    assert method.required_records() == "nothing"
    assert method.aux_loss(model, [], 0.5, 1) is None
    assert method.artifacts(model) == method.after_epoch(None) == {}


# ---- heads


@every_method()
def test_records_and_masks_have_the_shapes_of_the_slots(options):
    model, _ = tiny(options)
    batch = make_batch(some_pairs(), range(6))
    with record_heads(model) as records:
        hidden = model(batch)
    modules = attention_modules(model)
    assert [record.spec.name for record in records] == [module.spec.name for module in modules]
    for module, record in zip(modules, records, strict=True):
        H, K = module.head_slots, module.head_width
        (R, N), S = record.layout.queries.sentences.shape, record.layout.keys.sentences.shape[1]
        assert record.weights.shape == (R, H, N, S)
        assert record.values.shape == (record.layout.keys.tokens, H, K)
        assert record.outputs.shape == (record.layout.queries.tokens, H, K)
    assert hidden.shape == (batch.target_rows.tokens, CONFIG.d_model)


@every_method()
def test_a_masked_module_lets_nothing_through(options):
    """Of the cross attention: the decoder then does not know the source."""
    model, _ = tiny(options)
    H = attention_modules(model.decoder)[1].head_slots
    first, second = (make_batch(Pairs([np.array(words)], [np.array([8, 9])]), [0]) for words in ([5, 6, 7], [9, 9, 4]))
    before = model(first)
    assert not torch.allclose(model(second), before)
    with masked_heads(model, {"cross 1": [0] * H}):
        torch.testing.assert_close(model(second), model(first))
    torch.testing.assert_close(model(first), before)


@pytest.mark.parametrize("wide", [False, True])
@every_method()
def test_an_empty_source_gives_what_it_gives_alone(options, wide, monkeypatch):
    """Its target sees no key: the heads of cross attention are 0, recorded or not, whatever else is in the batch."""
    monkeypatch.setattr("headdiv.nn.packing.WIDE", 0 if wide else 10_000)
    model, method = tiny(options)
    sources, targets = [[5, 6], [], [7]], [[8, 3], [9, 4, 3], [5, 3]]
    batch, alone = (
        batch_of(numbers, *([texts[i] for i in numbers] for texts in (sources, targets)))
        for numbers in ([0, 1, 2], [1])
    )
    with record_heads(model) as records:
        hidden = model(batch)
    torch.testing.assert_close(model(batch), hidden)
    rows = batch.numbers[batch.target_rows.sentence_of_row()] == 1
    torch.testing.assert_close(hidden[rows], model(alone))
    cross = next(record for record in records if record.spec.kind == "cross")
    assert not cross.outputs[rows].any()
    assert not cross.padded().weights[batch.numbers == 1].any()
    added = method.aux_loss(model, records, 0.5, 8)
    assert added is None or added.isfinite()


@every_method()
def test_masks_reach_every_methods_heads_and_leave_nothing_behind(options):
    model, _ = tiny(options)
    batch = make_batch(some_pairs(), range(6))
    heads = attention_modules(model)[0].head_slots
    assert heads_of(model) == {"encoder 1": heads, "decoder 1": heads, "cross 1": heads}
    with torch.no_grad():
        plain = model(batch)
        for place in heads_of(model):
            with masked_heads(model, {place: [0] + [1] * (heads - 1)}):
                assert not torch.allclose(model(batch), plain)
            with masked_heads(model, {place: torch.ones(heads)}):
                assert torch.equal(model(batch), plain)
        assert torch.equal(model(batch), plain)


# ---- rows


@every_method()
def test_packing_and_padding_are_without_effect_on_outputs_loss_and_gradients(options):
    """In windows of width 1 every sentence is padded to the longest."""
    model, method = tiny(options)
    pairs, results = some_pairs(7), []
    for width in (48, 1):
        batch = make_batch(pairs, range(7), window=width)
        hidden, added = watched_pass(model, method, batch)
        by_number = dict(zip(batch.numbers.tolist(), hidden.split(batch.target_rows.lengths.tolist()), strict=True))
        inputs = [module.in_projection.weight for module in model.modules() if hasattr(module, "in_projection")]
        inputs = inputs or [model.source_embedding.weight]
        gradients = torch.autograd.grad(hidden.square().sum() + added, inputs, allow_unused=True)
        results.append(([by_number[i] for i in range(7)], added, gradients))
    torch.testing.assert_close(*results)


@every_method()
def test_sentences_and_later_words_stay_apart(options):
    model, _ = trained_one_step(options, torch.float64)
    model.eval()
    batch = make_batch(some_pairs(), range(6))
    before = model(batch)
    rows, source_rows = batch.target_rows, batch.source_rows
    line = int(rows.lengths.argmax())
    first, last = (int(row) for row in (rows.sentence_of_row() == line).nonzero()[[0, -1], 0])
    batch.target_in[last] = 4 + (batch.target_in[last] - 3) % 11
    after = model(batch)
    torch.testing.assert_close(after[:last], before[:last])
    torch.testing.assert_close(after[last + 1 :], before[last + 1 :])
    assert not torch.allclose(after[last], before[last])
    batch.source[source_rows.sentence_of_row() == line] = 1
    moved = (model(batch) - after).abs().amax(dim=1) > 1e-9
    expected = torch.zeros(len(moved), dtype=torch.bool)
    expected[first : last + 1] = True
    assert torch.equal(moved, expected)


@every_method()
def test_one_position_at_a_time_is_the_whole_pass(options):
    """Of two texts with padded memory, of which one is given up on the way; with a head masked, too."""
    model, _ = trained_one_step(options, torch.float64)
    model.eval()
    heads = attention_modules(model)[0].head_slots
    compare_steps(model)
    with masked_heads(model, {"decoder 1": [0] + [1] * (heads - 1), "cross 1": [1] * (heads - 1) + [0]}):
        compare_steps(model)


def compare_steps(model):
    sources, targets = ([5, 6, 7], [9, 4]), ([8, 9, 10], [11, 5, 6])
    batches = [make_batch(Pairs([np.array(s)], [np.array(t)]), [0]) for s, t in zip(sources, targets, strict=True)]
    memories = [model.encode(batch.source, batch.encoder) for batch in batches]
    expected = [model.decode(batch, memory) for batch, memory in zip(batches, memories, strict=True)]
    memory = nn.utils.rnn.pad_sequence(memories, batch_first=True, padding_value=9.0)
    mask = torch.zeros(memory.shape[:2], dtype=memory.dtype)
    mask[1, 3:] = -1e9
    state = model.start(memory, mask)
    for position in range(4):
        going = [0, 1] if position < 2 else [1]
        words = torch.stack([batches[text].target_in[position] for text in going])
        output = model.step(words, state)
        torch.testing.assert_close(output, torch.stack([expected[text][position] for text in going]))
        if position == 1:
            state.select(torch.tensor([[1]]))


@every_method()
def test_what_is_not_a_number_stays_so(options):
    """For the trainer to see it, and to say so in its own words."""
    model, method = tiny(options)
    with torch.no_grad():
        model.source_embedding.weight.fill_(torch.nan)
    hidden, added = watched_pass(model, method, make_batch(some_pairs(), range(6)))
    assert hidden.isnan().all()
    assert added.isnan() or method.required_records() == "nothing"


# ---- learning


@every_method()
def test_gradients_are_there_and_finite(options):
    """The method's own loss is part of it."""
    model, method = trained_one_step(options)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    method.after_backward(model, 0.0)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@every_method()
def test_a_state_dictionary_is_all_that_a_training_goes_on_from(options):
    """Resumed between two steps it is the unbroken one, to the last bit; and evaluation leaves it as it is."""
    model, method = tiny(options, torch.float32)
    for seed in range(2):
        a_step(model, method, seed)
    again, fresh = tiny(options, torch.float32, seed=2)
    again.load_state_dict(copy.deepcopy(model.state_dict()))
    model.eval()(make_batch(some_pairs(), range(6)))
    losses = [a_step(*trained, seed) for trained in ((model, method), (again, fresh)) for seed in (2, 3)]
    assert losses[:2] == losses[2:]
    assert equal(model.state_dict(), again.state_dict())


@every_method()
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


@every_method()
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


# ---- arguments of the hooks


@pytest.mark.parametrize("name", ["drop-head", "deacon", "mixing"])
def test_progress_is_a_share(name):
    model, method = tiny(EXAMPLES[name][0])
    with pytest.raises(ValueError, match=r"^progress: found .*, expected the share"):
        method.before_optimizer_step(model, 1.5)
