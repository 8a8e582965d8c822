"""Attention on packed rows against a loop over sentences, heads and tokens, and against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import D, H, K, build, packed_rows, randomly, run_literal, run_packed, sentences, with_gradients
from torch import nn
from torch.nn import functional as F

from headdiv.nn import packing
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
    results = with_gradients(module, queries, memory, run_packed(module, kind, width))
    expected = with_gradients(module, queries, memory, run_literal(module, kind))
    torch.testing.assert_close(results, expected)


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
    results = with_gradients(module, queries, memory, run_packed(module, kind, width))
    assert [keywords["is_causal"] for keywords in fused] == [False]
    torch.testing.assert_close(results, with_gradients(module, queries, memory, run_literal(module, kind)))


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
        torch.testing.assert_close(record.outputs, heads)
        torch.testing.assert_close(module.output(heads.flatten(1)), output)
    modules[0](x, None, own)
    assert len(records) == 2  # nothing is recorded outside the block
    assert all(not module.recorders for module in modules)


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
