"""Inhibition against the homeostasis paper's equations written out with loops: its functions, and at one place."""

import collections
import json
import statistics

import numpy as np
import pytest
import torch
from examples import sparse, trained_one_step
from hypothesis import given
from hypothesis import strategies as st

from headdiv.methods import make_method
from headdiv.methods.homeostasis import Homeostasis, Inhibition
from headdiv.methods.kwta import boost, keep_probabilities, survivors, winners
from headdiv.nn.dropout import Dropout
from headdiv.nn.linear import Linear
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import AttentionSpec, BlockSpec

# ---- the equations, with loops


def literal_winners(row, k):
    """Eq. 1: M is the set of the k largest elements; of equal ones the first."""
    best = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    return [i in best for i in range(len(row))]


def literal_boost(t, k):
    """Eq. 6, v being the k-th of the counts in descending order."""
    v = sorted(t, reverse=True)[k - 1]
    return [(max(t) - count + min(t)) / v if v else 1.0 for count in t]


def literal_keep(t, s, reading, delta):
    """Eqs. 7 and 8, one unit at a time."""
    a, b = 0.99, 0.01
    if max(t) == min(t):
        return [s] * len(t)
    share = [(count - min(t)) / (max(t) - min(t)) for count in t]
    if reading == "inverted":
        share = [1 - x for x in share]
    p = [((a - b) * x + b) ** 0.83 for x in share]
    if reading == "inhibition":
        p = [1 - x for x in p]
    median = statistics.median_low(p)
    if abs(median - s) > delta:
        p = [x + s - median for x in p]
    return [min(max(x, b), a) for x in p]


DTYPES = [torch.float64, torch.float32, torch.bfloat16]
SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 12))
READINGS = ["inhibition", "inverted", "printed"]


def values(seed, shape, levels=0, dtype=torch.float32):
    """Normal values, or few different ones so that there are ties."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-levels, levels + 1, shape) if levels else rng.standard_normal(shape)
    return torch.tensor(drawn, dtype=dtype)


# ---- kWTA


@given(st.integers(0, 10_000), SHAPES, st.sampled_from([0, 1, 2]), st.sampled_from(DTYPES), st.data())
def test_exactly_k_of_every_row_win_and_the_first_of_equals(seed, shape, levels, dtype, data):
    k = data.draw(st.integers(1, shape[-1]))
    x = values(seed, shape, levels, dtype)
    mask = winners(x, k)
    assert (mask.dtype, mask.shape) == (torch.bool, x.shape)
    assert (mask.sum(-1) == k).all()
    expected = [literal_winners(row, k) for row in x.double().view(-1, shape[-1]).tolist()]
    assert mask.view(-1, shape[-1]).tolist() == expected


def test_halves_are_rounded_to_even():
    assert [survivors(n, 0.5) for n in (1, 2, 3, 5, 7)] == [0, 1, 2, 2, 4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_way_for_a_gpu_gives_the_same(dtype, monkeypatch):
    """There the threshold comes from torch, and ties are never looked for."""
    x = values(2, (20, 2, 16), levels=2, dtype=dtype)
    expected = winners(x, 5)

    monkeypatch.setattr("headdiv.methods.kwta._readable", lambda x: False)
    assert torch.equal(winners(x, 5), expected)


def test_what_is_not_a_number_does_not_win():
    x = torch.tensor([[1.0, float("nan"), 3.0], [1.0, 2.0, 3.0]])
    assert winners(x, 1).tolist() == [[False, False, False], [False, False, True]]
    assert winners(x, 2).tolist() == [[False, False, True], [False, True, True]]


# ---- RFB-kWTA


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 12), st.integers(0, 1000), st.data())
def test_the_boost_is_equation_6(seed, groups, n, most, data):
    k = data.draw(st.integers(1, n))
    counts = torch.from_numpy(np.random.default_rng(seed).integers(0, most + 1, (groups, n)))
    boosts = boost(counts, k)
    assert (boosts.dtype, boosts.shape) == (torch.float64, (groups, n))
    torch.testing.assert_close(boosts.tolist(), [literal_boost(row, k) for row in counts.tolist()])
    assert boosts.isfinite().all()
    assert (boosts >= 0).all()


# ---- "Smart" inhibition


@given(
    st.integers(0, 10_000),
    st.integers(1, 4),
    st.integers(1, 12),
    st.floats(0.01, 0.99),
    st.sampled_from(READINGS),
    st.sampled_from([0.0, 0.1]),
)
def test_probabilities_are_equations_7_and_8(seed, groups, n, s, reading, delta):
    counts = torch.from_numpy(np.random.default_rng(seed).integers(0, 20, (groups, n)))
    keep = keep_probabilities(counts, s, reading, delta)
    assert (keep.dtype, keep.shape) == (torch.float64, (groups, n))
    expected = [literal_keep(row, s, reading, delta) for row in counts.tolist()]
    torch.testing.assert_close(keep.tolist(), expected)
    assert ((keep >= 0.01) & (keep <= 0.99)).all()
    if delta == 0:
        torch.testing.assert_close(keep.median(-1).values, torch.full((groups,), s, dtype=torch.float64))


COUNTING = ["kwta", "rfb-kwta", "smart"]
G, N = 2, 6


def inhibition(mechanism, groups=G, units=N, s=0.5, q=3, **options):
    return Inhibition(
        mechanism,
        AttentionSpec("encoder", 0, groups * units, groups),
        groups,
        units,
        s,
        q,
        Homeostasis.Options(attention=mechanism, **options),
    )


def rows(seed, count, width=G * N, dtype=torch.float64):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def learn(module, x):
    """A training step of one rank: forward, and what comes after backward."""
    y = module(x)
    Homeostasis(Homeostasis.Options(attention=module.mechanism)).after_backward(module, 0.0)
    return y


def trained(mechanism, steps=4, **options):
    module = inhibition(mechanism, **options)
    torch.manual_seed(1)
    for seed in range(steps):
        learn(module, rows(seed, 5))
    return module


# ---- against the equations, step by step


def literal_steps(mechanism, batches, s, q, masked="boosted"):
    """Eqs. 1 to 6 with lists: outputs and total counts after each step."""
    cache = collections.deque(maxlen=q)
    k = round(s * N)
    for batch in batches:
        total = [[sum(step[g][u] for step in cache) for u in range(N)] for g in range(G)]
        boosts = [literal_boost(total[g], k) if mechanism == "rfb-kwta" else [1.0] * N for g in range(G)]
        counts, outputs = [[0] * N for _ in range(G)], []
        for row in batch.view(-1, G, N).tolist():
            out = []
            for g in range(G):
                boosted = [value * factor for value, factor in zip(row[g], boosts[g], strict=True)]
                mask = literal_winners(boosted, k)
                for u in range(N):
                    counts[g][u] += mask[u]
                passed = boosted if masked == "boosted" else row[g]
                out += [value if active else 0.0 for value, active in zip(passed, mask, strict=True)]
            outputs.append(out)
        cache.append(counts)
        totals = [[sum(step[g][u] for step in cache) for u in range(N)] for g in range(G)]
        yield torch.tensor(outputs, dtype=torch.float64).view(-1, G * N), totals


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
    st.sampled_from(["kwta", "rfb-kwta"]),
    st.floats(0.1, 0.9),
    st.integers(1, 4),
    st.sampled_from(["boosted", "plain"]),
)
def test_every_step_is_the_equations_written_out(lengths, mechanism, s, q, masked):
    module = inhibition(mechanism, s=s, q=q, masked=masked)
    batches = [rows(seed, length) for seed, length in enumerate(lengths)]
    for batch, (output, total) in zip(batches, literal_steps(mechanism, batches, s, q, masked), strict=True):
        torch.testing.assert_close(learn(module, batch), output)
        assert module.counts.tolist() == total
        assert module.total[-1] == module.history[:, -1].sum()
        assert torch.equal(module.total, module.history.long().sum(0))


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("reading", ["inhibition", "inverted", "printed"])
def test_smart_inhibition_counts_its_own_masks(reading, delta):
    module = inhibition("smart", s=0.7, q=2, reading=reading, delta=delta)
    torch.manual_seed(3)
    batches = [rows(seed, length).exp() for seed, length in enumerate((4, 0, 7, 1, 3))]
    outputs, totals = [], [module.counts.tolist()]
    for batch in batches:
        outputs.append(learn(module, batch))
        totals.append(module.counts.tolist())
    torch.manual_seed(3)
    cache = collections.deque(maxlen=2)
    for batch, output, before, after in zip(batches, outputs, totals[:-1], totals[1:], strict=True):
        keep = torch.tensor([literal_keep(group, 0.7, reading, delta) for group in before])
        mask = torch.rand(len(batch), G, N) < keep
        torch.testing.assert_close(output, batch * mask.view(-1, G * N))
        cache.append(mask.sum(0))
        assert after == sum(cache).tolist()


# ---- gradients


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("mechanism", COUNTING)
def test_gradients_are_those_of_what_passes(mechanism, training):
    module = trained(mechanism, smart_evaluation="expectation").train(training)
    attention = MultiHeadAttention(AttentionSpec("encoder", 0, G * N, G), before_output=module).double()

    def run(x):
        torch.manual_seed(4)
        return attention.output(attention.before_output(x))

    assert torch.autograd.gradcheck(run, rows(9, 5).requires_grad_())


# ---- counts


def test_ranks_count_together(monkeypatch):
    """Two ranks with a part of the rows each do what one does with all, the next step included."""
    parts = [(rows(1, 3), rows(2, 5)), (rows(3, 0), rows(4, 4)), (rows(5, 2), rows(6, 2))]
    single, ranks = inhibition("rfb-kwta", q=2), [inhibition("rfb-kwta", q=2) for _ in range(2)]
    method = Homeostasis(Homeostasis.Options(attention="rfb-kwta"))
    for part in parts:
        expected = learn(single, torch.cat(part))
        outputs = [rank(share) for rank, share in zip(ranks, part, strict=True)]
        torch.testing.assert_close(torch.cat(outputs), expected)
        pending = sum(rank.pending for rank in ranks)
        with monkeypatch.context() as patch:
            patch.setattr("headdiv.core.distributed.total", lambda values, pending=pending: pending)
            for rank in ranks:
                method.after_backward(rank, 0.0)
        for rank in ranks:
            for name, buffer in single.named_buffers():
                assert torch.equal(rank.get_buffer(name), buffer), name


# ---- evaluation


def test_kwta_stays_active_at_evaluation_unless_told_otherwise():
    x = rows(30, 7)
    module = trained("kwta").eval()
    assert torch.equal(module(x), x * winners(x.view(-1, G, N), 3).view(x.shape))
    boosted = trained("rfb-kwta").eval()
    training = trained("rfb-kwta")
    assert torch.equal(boosted(x), training(x))
    for mechanism in ("kwta", "rfb-kwta"):
        assert trained(mechanism, kwta_evaluation="inactive").eval()(x) is x
        assert (trained(mechanism, kwta_evaluation="inactive")(x) == 0).any()


def test_smart_inhibition_draws_no_lots_at_evaluation():
    x = rows(31, 7)
    state = torch.get_rng_state()
    assert trained("smart").eval()(x) is x
    module = trained("smart", smart_evaluation="expectation").eval()
    torch.set_rng_state(state)
    output = module(x)
    assert torch.equal(torch.get_rng_state(), state)
    keep = keep_probabilities(module.counts, 0.5).flatten()
    torch.testing.assert_close(output, x * keep)


# ---- in whole models


def test_mechanisms_stand_where_they_are_asked_for():
    method = make_method(sparse("rfb-kwta", "smart", s_att=0.5, s_bo=0.8, q_att=7, q_bo=5))
    for kind in ("encoder", "decoder"):
        stage = method.attention(AttentionSpec(kind, 2, 12, 3)).before_output
        assert (stage.mechanism, stage.groups, stage.units, stage.s, len(stage.history)) == ("rfb-kwta", 3, 4, 0.5, 7)
    assert type(method.attention(AttentionSpec("cross", 2, 12, 3)).output) is Linear
    block_spec = BlockSpec("decoder", 0, 12)
    block = method.block_output(block_spec)
    assert (block.mechanism, block.groups, block.units, block.s, len(block.history)) == ("smart", 1, 12, 0.8, 5)
    method = make_method(sparse("dropout", "dropout", dropout=0.3))
    stages = method.attention(AttentionSpec("encoder", 0, 12, 3)).before_output, method.block_output(block_spec)
    assert [(type(stage), stage.p) for stage in stages] == [(Dropout, 0.3)] * 2


# ---- findings


def test_the_results_keep_how_often_each_unit_was_active():
    model, method = trained_one_step(sparse("kwta", "smart", s_att=0.5, s_bo=0.7))
    assert method.artifacts(model) == {}  # nothing is counted before the first step is done
    method.after_backward(model, 0.0)
    activations = method.artifacts(model)["activations"]
    assert json.loads(json.dumps(activations)) == activations
    assert list(activations) == ["encoder 1", "encoder block 1", "decoder 1", "decoder block 1"]
    heads, block = activations["decoder 1"], activations["decoder block 1"]
    assert (heads["mechanism"], heads["s"]) == ("kwta", 0.5)
    assert [len(group) for group in heads["shares"]] == [4, 4, 4]
    assert [sum(group) for group in heads["shares"]] == pytest.approx([2, 2, 2], abs=1e-3)
    assert (block["mechanism"], [len(group) for group in block["shares"]]) == ("smart", [12])
    assert sum(block["shares"][0]) / 12 == pytest.approx(0.7, abs=0.15)
