"""Inhibition at one place: what it does to values and gradients, what it counts, and what it does at evaluation."""

import collections
import json

import pytest
import torch
from examples import sparse, trained_one_step
from hypothesis import given
from hypothesis import strategies as st
from sparse import literal_boost, literal_keep, literal_winners

from headdiv.methods import make_method
from headdiv.methods.homeostasis import Homeostasis, Inhibition
from headdiv.methods.kwta import keep_probabilities, winners
from headdiv.nn.linear import Linear
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import AttentionSpec, BlockSpec

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
        now = [[sum(step[g][u] for step in cache) for u in range(N)] for g in range(G)]
        yield torch.tensor(outputs, dtype=torch.float64).view(-1, G * N), now


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


@pytest.mark.parametrize("reading", ["inhibition", "inverted", "printed"])
def test_smart_inhibition_counts_its_own_masks(reading):
    module = inhibition("smart", s=0.7, q=2, reading=reading)
    torch.manual_seed(3)
    batches = [rows(seed, length).exp() for seed, length in enumerate((4, 0, 7, 1, 3))]
    found, totals = [], [module.counts.tolist()]
    for batch in batches:
        found.append(learn(module, batch))
        totals.append(module.counts.tolist())
    torch.manual_seed(3)
    cache = collections.deque(maxlen=2)
    for batch, output, before, after in zip(batches, found, totals[:-1], totals[1:], strict=True):
        keep = torch.tensor([literal_keep(group, 0.7, reading, 0.0) for group in before])
        mask = torch.rand(len(batch), G, N) < keep
        torch.testing.assert_close(output, batch * mask.view(-1, G * N))
        cache.append(mask.sum(0))
        assert after == sum(cache).tolist()


def test_a_homeostasis_brings_rare_units_back():
    """One unit is far below the others: without a boost it never wins, with one it does."""
    shares = {}
    for mechanism in ("kwta", "rfb-kwta"):
        module = inhibition(mechanism, groups=1, s=0.5, q=8)
        for seed in range(20):
            learn(module, rows(seed, 30, N).abs() + torch.tensor([0.0, 2, 2, 2, 2, 2], dtype=torch.float64))
        shares[mechanism] = module.shares[0]
    assert shares["kwta"][0] < 0.02 < 0.1 < shares["rfb-kwta"][0]


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
    alone, ranks = inhibition("rfb-kwta", q=2), [inhibition("rfb-kwta", q=2) for _ in range(2)]
    method = Homeostasis(Homeostasis.Options(attention="rfb-kwta"))
    for part in parts:
        expected = learn(alone, torch.cat(part))
        found = [rank(own) for rank, own in zip(ranks, part, strict=True)]
        torch.testing.assert_close(torch.cat(found), expected)
        pending = sum(rank.pending for rank in ranks)
        with monkeypatch.context() as patch:
            patch.setattr("headdiv.core.distributed.total", lambda values, pending=pending: pending)
            for rank in ranks:
                method.after_backward(rank, 0.0)
        for rank in ranks:
            for name, buffer in alone.named_buffers():
                assert torch.equal(rank.get_buffer(name), buffer), name


def test_several_passes_before_a_step_are_one_step():
    """As when gradients are accumulated."""
    module, whole = inhibition("kwta"), inhibition("kwta")
    module(rows(1, 3))
    learn(module, rows(2, 4))
    learn(whole, torch.cat([rows(1, 3), rows(2, 4)]))
    assert torch.equal(module.total, whole.total)
    assert module.pending is None


# ---- what is kept


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
    found = module(x)
    assert torch.equal(torch.get_rng_state(), state)
    keep = keep_probabilities(module.counts, 0.5).flatten()
    torch.testing.assert_close(found, x * keep)


# ---- in whole models


def test_mechanisms_stand_where_they_are_asked_for():
    method = make_method(sparse("rfb-kwta", "smart", s_att=0.5, s_bo=0.8, q_att=7, q_bo=5))
    for kind in ("encoder", "decoder"):
        found = method.attention(AttentionSpec(kind, 2, 12, 3)).output.inhibition
        assert repr(found) == "Inhibition(rfb-kwta, 3×4 units, s=0.5, Q=7)"
        assert (found.spec.name, found.k) == (f"{kind} 3", 2)
    assert type(method.attention(AttentionSpec("cross", 2, 12, 3)).output) is Linear
    block = method.block_output(BlockSpec("decoder", 0, 12))
    assert repr(block) == "Inhibition(smart, 1×12 units, s=0.8, Q=5)"
    assert block.spec.name == "decoder block 1"


# ---- findings


def test_the_results_keep_how_often_each_unit_was_active():
    model, method = trained_one_step(sparse("kwta", "smart", s_att=0.5, s_bo=0.7))
    assert method.artifacts(model) == {}  # nothing is counted before the first step is done
    method.after_backward(model, 0.0)
    found = method.artifacts(model)["activations"]
    assert json.loads(json.dumps(found)) == found
    assert list(found) == ["encoder 1", "encoder block 1", "decoder 1", "decoder block 1"]
    heads, block = found["decoder 1"], found["decoder block 1"]
    assert (heads["mechanism"], heads["s"]) == ("kwta", 0.5)
    assert [len(group) for group in heads["shares"]] == [4, 4, 4]
    assert [sum(group) for group in heads["shares"]] == pytest.approx([2, 2, 2], abs=1e-3)
    assert (block["mechanism"], [len(group) for group in block["shares"]]) == ("smart", [12])
    assert sum(block["shares"][0]) / 12 == pytest.approx(0.7, abs=0.15)
