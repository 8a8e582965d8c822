"""Batches: every pair once, budgets kept, order from the seed alone, and contents sentence by sentence."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from headdiv.data.batches import BEGIN, END, PAD, SPECIALS, UNKNOWN, Pairs, batch_numbers, make_batch
from headdiv.packing import attention_mask

lengths = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)
seeds = st.integers(0, 2**31 - 1)


def pairs_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    source, target = ([rng.integers(4, 50, size[i]).astype(np.int32) for size in sizes] for i in (0, 1))
    return Pairs(source, target)


def tokens_of(pairs, batch):
    return sum(len(pairs.target[i]) + 1 for i in batch)


def test_special_words_stand_at_their_places():
    assert [SPECIALS[i] for i in (PAD, UNKNOWN, BEGIN, END)] == ["<pad>", "<unk>", "<s>", "</s>"]


@given(
    sizes=lengths,
    tokens=st.integers(1, 40),
    seed=st.none() | seeds,
    epoch=st.integers(0, 5),
    bucketed=st.booleans(),
)
def test_every_pair_once_and_the_budget_kept(sizes, tokens, seed, epoch, bucketed):
    pairs = pairs_of(sizes)
    found = batch_numbers(pairs, tokens, seed=seed, epoch=epoch, bucketed=bucketed)
    assert sorted(i for batch in found for i in batch) == list(range(len(pairs)))
    for batch in found:
        assert batch
        assert tokens_of(pairs, batch) <= tokens or len(batch) == 1
    assert found == batch_numbers(pairs, tokens, seed=seed, epoch=epoch, bucketed=bucketed)
    if not bucketed:  # no batch could have taken the next one's first pair
        for batch, following in itertools.pairwise(found):
            assert tokens_of(pairs, [*batch, following[0]]) > tokens


@given(sizes=lengths, tokens=st.integers(1, 40))
def test_without_a_seed_the_corpus_keeps_its_order(sizes, tokens):
    found = batch_numbers(pairs_of(sizes), tokens, seed=None)
    assert [i for batch in found for i in batch] == list(range(len(sizes)))


def test_seed_and_epoch_alone_decide_the_order():
    pairs = pairs_of([(i % 7, i % 5) for i in range(60)])
    state = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    orders = {
        (seed, epoch, bucketed): str(batch_numbers(pairs, 20, seed=seed, epoch=epoch, bucketed=bucketed))
        for seed in (1, 2)
        for epoch in (0, 1)
        for bucketed in (False, True)
    }
    assert len(set(orders.values())) == len(orders)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == state  # noqa: NPY002


@given(sizes=lengths, tokens=st.integers(10, 40), seed=seeds)
def test_bucketed_batches_hold_similar_lengths(sizes, tokens, seed):
    pairs = pairs_of(sizes)
    found = batch_numbers(pairs, tokens, seed=seed, bucketed=True)
    spans = sorted((len(pairs.target[batch[0]]), len(pairs.target[batch[-1]])) for batch in found)
    flat = [length for span in spans for length in span]
    assert flat == sorted(flat)
    for batch in found:
        inside = [len(pairs.target[i]) for i in batch]
        assert inside == sorted(inside)


def test_bucketed_batches_come_in_random_order():
    pairs = pairs_of([(3, i) for i in range(40)])
    firsts = [batch[0] for batch in batch_numbers(pairs, 60, seed=1, bucketed=True)]
    assert firsts != sorted(firsts)
    firsts = [batch[0] for batch in batch_numbers(pairs, 60, seed=None, bucketed=True)]
    assert firsts == sorted(firsts)


@given(sizes=lengths, window=st.sampled_from([1, 12, 48]), seed=seeds)
def test_a_batch_holds_its_pairs_with_their_marks(sizes, window, seed):
    pairs = pairs_of(sizes, seed)
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: max(1, len(pairs) // 2)].tolist()
    batch = make_batch(pairs, chosen, window)
    order = batch.numbers.tolist()
    assert sorted(order) == sorted(chosen)
    if window == 1:
        assert order == chosen
    source, target_in, target_out = [], [], []
    for i in order:
        source += [*pairs.source[i].tolist(), END]
        target_in += [BEGIN, *pairs.target[i].tolist()]
        target_out += [*pairs.target[i].tolist(), END]
    assert batch.source.tolist() == source
    assert batch.target_in.tolist() == target_in
    assert batch.target_out.tolist() == target_out
    assert {x.dtype for x in (batch.source, batch.target_in, batch.target_out)} == {torch.int64}
    assert batch.source_side.lengths.tolist() == [len(pairs.source[i]) + 1 for i in order]
    assert batch.target_side.lengths.tolist() == [len(pairs.target[i]) + 1 for i in order]
    s, t = batch.source_side, batch.target_side
    expected = [(batch.encoder, s, s, False), (batch.decoder, t, t, True), (batch.cross, t, s, False)]
    for layout, queries, keys, causal in expected:
        assert layout.queries is queries
        assert layout.keys is keys
        assert torch.equal(layout.mask, attention_mask(queries, keys, causal))


def test_a_batch_moves_as_a_whole():
    batch = make_batch(pairs_of([(3, 4), (5, 1)]), [0, 1])
    assert batch.to("cpu") is batch
    moved = batch.to("meta")
    tensors = [moved.numbers, moved.source, moved.target_in, moved.target_out]
    for layout in (moved.encoder, moved.decoder, moved.cross):
        tensors += [layout.mask]
        for side in (layout.queries, layout.keys):
            tensors += [value for value in vars(side).values() if isinstance(value, torch.Tensor)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.cross.queries is moved.target_side
    assert moved.cross.keys is moved.source_side
    for layout in ("encoder", "decoder", "cross"):
        assert getattr(moved, layout).mask.shape == getattr(batch, layout).mask.shape
