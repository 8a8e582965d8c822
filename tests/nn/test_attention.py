"""Attention on packed rows against a loop over sentences, heads and tokens, and against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import D, H, K, build, packed_rows, random, randomly, run_literal, run_packed, sentences, with_gradients
from torch import nn
from torch.nn import functional as F

from headdiv.core.errors import DataError
from headdiv.nn import packing
from headdiv.nn.caches import BeamState, State
from headdiv.nn.dot_product import into_windows, out_of_windows
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout
from headdiv.nn.records import record_heads
from headdiv.nn.sizes import AttentionSpec

seeds = st.integers(0, 2**31 - 1)
pairs_of_lengths = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=5)
KINDS = ["encoder", "decoder", "cross"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8)
@given(seed=seeds, lengths=pairs_of_lengths, width=st.sampled_from([1, 4, 7, 48]), bias=st.booleans())
def test_packed_attention_is_the_literal_one_with_its_gradients(kind, seed, lengths, width, bias):
    module = build(seed, kind, bias)
    queries, keys = (sentences(seed + 100 * side, [pair[side] for pair in lengths]) for side in (0, 1))
    memory = keys if kind == "cross" else None
    found = with_gradients(module, queries, memory, run_packed(module, kind, width))
    expected = with_gradients(module, queries, memory, run_literal(module, kind))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 7])
def test_wide_windows_give_what_the_literal_one_gives(kind, width, monkeypatch):
    """torch's fused product, with the gaps of windows that are not full."""
    fused, real = [], F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: fused.append(k) or real(*a, **k))
    monkeypatch.setattr(packing, "WIDE", 0)
    module, lengths = build(31, kind), [(3, 2), (1, 5), (4, 4), (2, 1)]
    queries, keys = (sentences(32 + 100 * side, [pair[side] for pair in lengths]) for side in (0, 1))
    memory = keys if kind == "cross" else None
    found = with_gradients(module, queries, memory, run_packed(module, kind, width))
    assert [keywords["is_causal"] for keywords in fused] == [False]
    torch.testing.assert_close(found, with_gradients(module, queries, memory, run_literal(module, kind)))


@pytest.mark.parametrize("wide", [True, False])
def test_without_a_mask_every_slot_sees_itself_and_earlier_ones(wide, monkeypatch):
    monkeypatch.setattr(packing, "WIDE", 0 if wide else 100)
    module, x = build(33, "decoder"), sentences(34, [4, 4])
    rows, _, layout, _ = packed_rows(x, [], "decoder", 1)
    implied = AttentionLayout(layout.queries, layout.keys, None)
    assert torch.equal(implied.written_out(), layout.mask)
    assert layout.written_out() is layout.mask
    torch.testing.assert_close(module(rows, None, implied), module(rows, None, layout))
    with record_heads(module) as records:
        recorded = module(rows, None, implied)
    torch.testing.assert_close(recorded, module(rows, None, layout))
    assert (records[0].weights.triu(1) == 0).all()


def test_extreme_scores_stay_finite_and_hidden():
    module = build(9)
    x, _, layout, _ = packed_rows([100 * s for s in sentences(10, [3, 2])], [], "encoder", 5)
    with record_heads(module) as records:
        module(x, None, layout)
    assert records[0].weights.isfinite().all()
    assert (records[0].weights[layout.mask.expand_as(records[0].weights) < 0] == 0).all()


# ---- records


def test_records_hold_the_heads_and_change_nothing():
    modules = nn.ModuleList([build(11), build(12, "cross")])
    queries, keys = sentences(13, [3, 1, 4]), sentences(40, [2, 5, 2])
    (x, _, own, _), (y, memory, cross, _) = (packed_rows(queries, keys, kind, 6) for kind in ("encoder", "cross"))
    plain = modules[0](x, None, own), modules[1](y, memory, cross)
    with record_heads(modules) as records:
        recorded = modules[0](x, None, own), modules[1](y, memory, cross)
    torch.testing.assert_close(recorded, plain)
    assert [record.layout for record in records] == [own, cross]
    for record, module, output in zip(records, modules, recorded, strict=True):
        assert record.spec == module.spec
        torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))
        (values,) = into_windows(record.values.flatten(1), record.layout.keys, 1, H)
        heads = out_of_windows(record.weights @ values, record.layout.queries)
        torch.testing.assert_close(record.outputs.flatten(1), heads)
        torch.testing.assert_close(module.output(heads), output)
    modules[0](x, None, own)
    assert len(records) == 2  # nothing is recorded outside the block
    assert all(not module.recorders for module in modules)


def test_gradient_flows_through_records_and_is_the_same_while_recording():
    module = build(15)
    queries = sentences(16, [3, 1, 4])
    run = run_packed(module, "decoder", 5)

    def run_recording(x, memory):
        with record_heads(module):
            return run(x, memory)

    plain = with_gradients(module, queries, None, run)
    torch.testing.assert_close(with_gradients(module, queries, None, run_recording), plain)
    for name in ("weights", "values", "outputs"):
        module.zero_grad()
        with record_heads(module) as records:
            run(queries, [])
        getattr(records[0], name).square().sum().backward()
        grad = module.in_projection.weight.grad
        assert grad.isfinite().all()
        assert (grad != 0).any()


def test_what_stands_in_front_of_the_output_reads_masked_heads():
    """An inhibition that chooses among units must not choose those of a head that is masked."""
    before, read = nn.Identity(), []
    before.register_forward_hook(lambda module, inputs, output: read.append(inputs[0]))
    module = randomly(16, MultiHeadAttention(AttentionSpec("encoder", 0, D, H), before_output=before))
    x, _, layout, _ = packed_rows(sentences(17, [3, 2]), [], "encoder", 5)
    handle = module.mask_heads(torch.tensor([0.0, 0.5]))
    module(x, None, layout)
    handle.remove()
    module(x, None, layout)
    torch.testing.assert_close(read[0], read[1] * torch.tensor([0.0, 0.5]).repeat_interleave(K))


# ---- one token at a time


def test_lines_go_on_from_any_others_and_texts_without_one_give_up_their_slots():
    """Three texts of up to two lines; every line's past, recomputed without a cache, gives the same."""
    own, cross, memory = build(21, "decoder"), build(22, "cross"), random(23, 3, 5, D)
    lines = BeamState(3, 2, 5, like=memory)
    state = State(lines, [{"decoder": own.self_cache(lines, memory)}])
    state.layers[0]["cross"] = cross.cross_cache(lines, memory, random(24, 3, 5))
    mask, pasts = state.layers[0]["cross"].mask, [(text, []) for text in range(3)]
    generator = torch.Generator().manual_seed(25)
    for goes_on in ([0, 0, 1, 2, 2], [1, 0, 2, 4, 3], [1, 3], [1, 1], None):
        x = torch.randn(len(pasts), D, generator=generator, dtype=torch.float64)
        pasts = [(text, [*past, row]) for (text, past), row in zip(pasts, x, strict=True)]
        lines.advance()
        found = [module.step(x, state.layers[0][kind]) for kind, module in (("decoder", own), ("cross", cross))]
        for number, (text, past) in enumerate(pasts):
            rows, _, layout, _ = packed_rows([torch.stack(past)], [], "decoder", 1)
            torch.testing.assert_close(found[0][number], own(rows, None, layout)[-1])
            alone = BeamState(1, 1, 1, like=memory)
            cache = cross.cross_cache(alone, memory[text : text + 1], mask[text : text + 1])
            torch.testing.assert_close(found[1][number], cross.step(past[-1][None], cache)[0])
        if goes_on is not None:
            state.select(torch.tensor(goes_on))
            pasts = [pasts[line] for line in goes_on]
    assert lines.texts == 1  # the third text's, from `pasts`
    assert {text for text, _ in pasts} == {2}


def test_a_model_without_heads_has_none_to_record():
    found = pytest.raises(DataError, match=r"Linear: found no heads to record; expected .*MultiheadAttention")
    with found, record_heads(nn.Linear(2, 2)):
        pass
