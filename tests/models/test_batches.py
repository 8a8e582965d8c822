"""Batches: every pair once, budgets kept, order from the seed alone, and contents sentence by sentence."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.models.batching import (
    BEGIN,
    END,
    Pairs,
    batch_numbers,
    make_batch,
)
from headdiv.nn.packing import attention_mask

lengths = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)
seeds = st.integers(0, 2**31 - 1)


def pairs_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    source, target = ([rng.integers(4, 50, size[i]).astype(np.int32) for size in sizes] for i in (0, 1))
    return Pairs(source, target)


def tokens_of(pairs, batch):
    return sum(len(pairs.target[i]) + 1 for i in batch)


@given(sizes=lengths, tokens=st.integers(1, 40), seed=st.none() | seeds, epoch=st.integers(0, 5))
def test_every_pair_once_and_the_budget_kept(sizes, tokens, seed, epoch):
    pairs = pairs_of(sizes)
    options = {"seed": seed, "epoch": epoch}
    batches = batch_numbers(pairs.sizes("target"), tokens, **options)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    for batch in batches:
        assert batch
        assert tokens_of(pairs, batch) <= tokens or len(batch) == 1
    assert batches == batch_numbers(pairs.sizes("target"), tokens, **options)
    for batch, following in itertools.pairwise(batches):  # no batch could have taken the next one's first pair
        assert tokens_of(pairs, [*batch, following[0]]) > tokens


def test_the_budget_is_that_of_the_sides_that_are_asked_for():
    sizes = pairs_of([(9, 1), (1, 9), (5, 5)])
    assert batch_numbers(sizes.sizes("target"), 12, seed=None) == [[0, 1], [2]]
    assert batch_numbers(sizes.sizes("source"), 12, seed=None) == [[0, 1], [2]]
    assert batch_numbers(sizes.sizes("source", "target"), 12, seed=None) == [[0], [1], [2]]
    assert batch_numbers(np.array([3, 20, 3, 3]), 6, seed=None) == [[0], [1], [2, 3]]  # one that is too large


def test_seed_and_epoch_alone_decide_the_order():
    sizes = pairs_of([(i % 7, i % 5) for i in range(60)]).sizes("target")
    state = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    orders = {
        (seed, epoch): str(batch_numbers(sizes, 20, seed=seed, epoch=epoch)) for seed in (1, 2) for epoch in (0, 1)
    }
    assert len(set(orders.values())) == len(orders)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == state  # noqa: NPY002


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
    assert batch.source_rows.lengths.tolist() == [len(pairs.source[i]) + 1 for i in order]
    assert batch.target_rows.lengths.tolist() == [len(pairs.target[i]) + 1 for i in order]
    s, t = batch.source_rows, batch.target_rows
    expected = [(batch.encoder, s, s, False), (batch.decoder, t, t, True), (batch.cross, t, s, False)]
    for layout, queries, keys, causal in expected:
        assert layout.queries is queries
        assert layout.keys is keys
        assert torch.equal(layout.mask, attention_mask(queries, keys, causal))


def test_a_batch_may_be_empty():
    """The share of a rank, where a batch has fewer examples than there are ranks."""
    batch = make_batch(pairs_of([(3, 4)]), [])
    for tensor in (batch.numbers, batch.source, batch.target_in, batch.target_out):
        assert (tensor.shape, tensor.dtype) == ((0,), torch.int64)
    assert batch.source_rows.tokens == batch.target_rows.tokens == 0
    assert batch.to("meta").source.device.type == "meta"
