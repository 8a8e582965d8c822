"""DPP's matrix L and its determinant, written out with loops over heads, tokens and permutations."""

import itertools
import math

import pytest
import torch
from examples import (
    PLACES,
    assert_half_precision_is_widened,
    assert_nothing_is_added_to_nothing,
    heads_by_sentence,
    made_up_heads,
    record_of,
    some_pairs,
    tiny,
    watched_pass,
)
from hypothesis import given
from hypothesis import strategies as st
from small_runs import learner_of
from test_disagreement import cosine

from headdiv.core.errors import TrainingError
from headdiv.methods.dpp import GramDeterminant, kernel
from headdiv.nn.batching import make_batch
from headdiv.training.config import TrainConfig

seeds = st.integers(0, 2**31 - 1)


def options(term, **more):
    return {"name": "dpp", "term": term, **more}


def det_of(heads, term):
    return GramDeterminant.apply(kernel(record_of(*heads), term))


def literal_kernel(term, A, V, Z):
    """L of one sentence, entry by entry."""
    H, N = A.shape[:2]
    q = []
    for i in range(H):
        entropy = sum(-p * math.log(p) for row in A[i].tolist() for p in row if p > 0) / N
        q.append(1 / (1 + entropy))
    phi = {"position": A, "subspace": V, "output": Z}[term]
    return [[q[i] * cosine(phi[i], phi[j]) * q[j] for j in range(H)] for i in range(H)]


def literal_determinant(L):
    """Leibniz's sum over permutations."""
    n, total = len(L), 0.0
    for p in itertools.permutations(range(n)):
        inversions = sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        total += (-1) ** inversions * math.prod(L[i][p[i]] for i in range(n))
    return total


@pytest.mark.parametrize("term", PLACES)
def test_the_loss_is_the_literal_one(term):
    model, method = tiny(options(term, weight=0.7), encoder_layers=2)
    pairs = some_pairs(5, seed=3)
    lines = heads_by_sentence(model, pairs)
    expected = [literal_determinant(literal_kernel(term, *heads)) for line in lines for _, *heads in line]
    assert len(expected) == 5 * 4
    hidden, found = watched_pass(model, method, make_batch(pairs, range(5)))
    assert found.item() == pytest.approx(-0.7 * sum(expected) / 4 / len(hidden), rel=1e-9)


@pytest.mark.parametrize("term", PLACES)
def test_every_entry_of_l_is_the_literal_one(term):
    heads = made_up_heads(6)
    torch.testing.assert_close(
        kernel(record_of(*heads), term)[0], torch.tensor(literal_kernel(term, *heads), dtype=torch.float64)
    )


@pytest.mark.parametrize("term", PLACES)
@pytest.mark.parametrize("window", [1, 7, 20])
def test_packing_is_without_effect(term, window):
    model, method = tiny(options(term))
    gradients = []
    for width in (48, window):
        _, added = watched_pass(model, method, make_batch(some_pairs(8), range(8), window=width))
        parameters = [attention.in_projection.weight for attention in model.encoder[0].attention.values()]
        gradients.append((added.detach(), *torch.autograd.grad(added, parameters)))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@given(seed=seeds, H=st.integers(1, 6), N=st.integers(1, 5))
def test_the_determinant_is_a_squared_volume(seed, H, N):
    heads = made_up_heads(seed, H, N)
    order = torch.randperm(H, generator=torch.Generator().manual_seed(seed))
    for term in PLACES:
        det = det_of(heads, term)
        assert det.shape == (1,)
        assert 0 <= det.item() <= 1
        torch.testing.assert_close(det_of([x[order] for x in heads], term), det)
    if H <= 4:  # five values of width 2 span ten dimensions
        assert det_of(heads, "subspace") > 0


@given(seed=seeds, H=st.integers(1, 6))
def test_the_determinant_and_its_gradient_are_torchs(seed, H):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, H, H + 3, generator=generator, dtype=torch.float64, requires_grad=True)
    told = []
    for determinant in (GramDeterminant.apply, torch.linalg.det):
        value = determinant(x @ x.mT / (H + 3))
        told.append((value.detach(), *torch.autograd.grad(value.square().sum(), x)))
    for one, other in zip(*told, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_one_where_heads_are_sharp_and_orthogonal_and_zero_where_they_coincide():
    sharp = torch.stack([torch.eye(4, dtype=torch.float64).roll(i, 1) for i in range(4)])  # (H, N, S)
    assert det_of((sharp, sharp, sharp), "position").item() == pytest.approx(1, abs=1e-12)
    heads = [x.clone() for x in made_up_heads(7)]
    for x in heads[1:]:
        x[2] = -3 * x[0]
    for term in ("subspace", "output"):
        assert det_of(heads, term).item() == pytest.approx(0, abs=1e-12)


def test_dull_heads_have_a_small_volume():
    """Evenly spread weights have entropy log S, hence q = 1/(1 + log S), which enters twice for each head."""
    A, V, Z = made_up_heads(8, H=2, N=3, S=5)
    sharp = torch.eye(5, dtype=A.dtype)[:3].expand(2, 3, 5)
    even = torch.full_like(A, 1 / 5)
    told = [det_of((weights, V, Z), "subspace").item() for weights in (sharp, even)]
    assert told[1] / told[0] == pytest.approx((1 + math.log(5)) ** -4)


@pytest.mark.parametrize("term", PLACES)
@pytest.mark.parametrize("case", ["two equal", "all equal", "one zero", "all zero", "nearly zero", "one-hot"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_stay_finite(term, case, dtype):
    heads = [x.clone() for x in made_up_heads(2, dtype=dtype)]
    for x in heads:
        if case == "two equal":
            x[1] = x[0]
        elif case == "all equal":
            x[:] = x[0].clone()
        elif case != "one-hot" and x is not heads[0]:
            x[: 1 if case == "one zero" else None] *= 1e-18 if case == "nearly zero" else 0
    if case == "one-hot":
        heads[0] = torch.eye(5, dtype=dtype)[:4].repeat(3, 1, 1)
    for x in heads:
        x.requires_grad_()
    det = det_of(heads, term).sum()
    det.backward()
    assert 0 <= det.item() <= 1
    for x in heads:
        assert x.grad is None or (x.grad.isfinite().all() and x.grad.abs().max() < 1000)


@pytest.mark.parametrize("term", PLACES)
@pytest.mark.parametrize("equal", [0, 2, 3])
def test_the_gradient_is_that_of_the_formula(term, equal):
    heads = [x.clone() for x in made_up_heads(4, N=2, S=3)]
    for x in heads:
        x[:equal] = x[:1].clone()
    heads = [x.requires_grad_() for x in heads]
    assert torch.autograd.gradcheck(lambda *x: det_of(x, term), heads)


@pytest.mark.parametrize("term", PLACES)
def test_half_precision_is_widened_and_double_kept(term):
    assert_half_precision_is_widened(lambda record: kernel(record, term))


@pytest.mark.parametrize("term", PLACES)
def test_a_batch_without_a_sentence_adds_nothing(term):
    assert_nothing_is_added_to_nothing(*tiny(options(term)))


def test_what_is_not_finite_stays_so():
    """The trainer says in its own words that a loss is not finite."""
    L = torch.eye(3).repeat(2, 1, 1)
    L[1, 0, 0] = math.nan
    assert GramDeterminant.apply(L).isnan().tolist() == [False, True]
    model, method = tiny(options("output"), torch.float32)
    with torch.no_grad():
        model.encoder[0].attention["encoder"].in_projection.weight.fill_(math.nan)
    learner = learner_of(model, method, TrainConfig())
    with pytest.raises(TrainingError, match=r"^the loss is nan at step 1; "):
        learner.step(make_batch(some_pairs(), range(6)), 1, 5)
