"""Disagreement against its formulas, written out with loops over heads, tokens and channels."""

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

from headdiv.core.errors import TrainingError
from headdiv.methods.disagreement import disagreement
from headdiv.nn.attention import record_heads
from headdiv.nn.batching import make_batch

seeds = st.integers(0, 2**31 - 1)


def options(term, **more):
    return {"name": "disagreement", "term": term, **more}


def entries(matrix):
    return [value for row in matrix.tolist() for value in row]


def cosine(a, b):
    """Of two matrices: the sum of products of equal entries, by both lengths."""
    a, b = entries(a), entries(b)
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def literal(term, A, V, Z):
    """D of one sentence."""
    H, N = A.shape[:2]
    total = 0.0
    for i in range(H):
        for j in range(H):
            if term == "position":
                total += sum(abs(x * y) for x, y in zip(entries(A[i]), entries(A[j]), strict=True)) / N
            else:
                x = V if term == "subspace" else Z
                total += cosine(x[i], x[j])
    return -total / H**2


@pytest.mark.parametrize("term", PLACES)
def test_the_loss_is_the_literal_one(term):
    """Sum over the sentences, mean over the modules, for each prediction; nothing is said of windows."""
    model, method = tiny(options(term, weight=0.7), encoder_layers=2)
    pairs = some_pairs(5, seed=3)
    lines = heads_by_sentence(model, pairs)
    expected = [literal(term, A, V, Z) for line in lines for _, A, V, Z in line]
    assert len(expected) == 5 * 4
    hidden, found = watched_pass(model, method, make_batch(pairs, range(5)))
    assert found.item() == pytest.approx(-0.7 * sum(expected) / 4 / len(hidden), rel=1e-12)


@pytest.mark.parametrize("kinds", [["cross"], ["encoder", "decoder"]])
def test_only_the_named_kinds_count(kinds):
    model, method = tiny(options("output", kinds=kinds))
    pairs = some_pairs(4)
    expected = [
        literal("output", *heads)
        for line in heads_by_sentence(model, pairs)
        for spec, *heads in line
        if spec.kind in kinds
    ]
    hidden, found = watched_pass(model, method, make_batch(pairs, range(4)))
    assert found.item() == pytest.approx(-sum(expected) / len(kinds) / len(hidden), rel=1e-12)


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


@given(seed=seeds, H=st.integers(1, 5), N=st.integers(1, 5))
def test_range_and_symmetry(seed, H, N):
    A, V, Z = made_up_heads(seed, H, N)
    order = torch.randperm(H, generator=torch.Generator().manual_seed(seed))
    scale = torch.rand(H, 1, 1, dtype=V.dtype, generator=torch.Generator().manual_seed(seed)) + 0.1
    for term in PLACES:
        d = disagreement(record_of(A, V, Z), term)
        assert d.shape == (1,)
        assert -1 - 1e-12 <= d.item() <= (1e-12 if term != "position" else 0)
        torch.testing.assert_close(disagreement(record_of(A[order], V[order], Z[order]), term), d)
        torch.testing.assert_close(disagreement(record_of(A, V * scale, Z * scale), term), d)


def test_what_equal_and_opposite_heads_have():
    A, V, Z = made_up_heads(1, H=2)
    A, V, Z = (x[:1].expand_as(x) for x in (A, V, Z))
    assert disagreement(record_of(A, V, Z), "subspace").item() == pytest.approx(-1)
    opposite = V * torch.tensor([1.0, -1.0], dtype=V.dtype).view(2, 1, 1)
    assert disagreement(record_of(A, opposite, Z), "subspace").item() == pytest.approx(0, abs=1e-12)
    one_hot = torch.eye(5, dtype=A.dtype)[:4].expand(2, 4, 5)
    assert disagreement(record_of(one_hot, V, Z), "position").item() == pytest.approx(-1)
    apart = torch.stack([one_hot[0], one_hot[0].roll(1, 1)])
    assert disagreement(record_of(apart, V, Z), "position").item() == pytest.approx(-0.5)  # each head with itself


@pytest.mark.parametrize("term", PLACES)
@pytest.mark.parametrize("case", ["two equal", "all equal", "one zero", "all zero", "nearly zero"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_stay_finite(term, case, dtype):
    heads = [x.clone() for x in made_up_heads(2, dtype=dtype)]
    for x in heads:
        if case == "two equal":
            x[1] = x[0]
        elif case == "all equal":
            x[:] = x[0].clone()
        elif x is not heads[0]:
            x[: 1 if case == "one zero" else None] *= 1e-18 if case == "nearly zero" else 0
    for x in heads:
        x.requires_grad_()
    d = disagreement(record_of(*heads), term).sum()
    d.backward()
    assert d.isfinite()
    for x in heads:
        assert x.grad is None or (x.grad.isfinite().all() and x.grad.abs().max() < 100)


def test_a_zero_head_has_cosine_zero():
    A, V, Z = made_up_heads(3)
    without = [cosine(V[i], V[j]) for i in (1, 2) for j in (1, 2)]
    V = torch.cat([torch.zeros_like(V[:1]), V[1:]])
    assert disagreement(record_of(A, V, Z), "subspace").item() == pytest.approx(-sum(without) / 9)


@pytest.mark.parametrize("term", PLACES)
def test_the_gradient_is_that_of_the_formula(term):
    heads = [x.requires_grad_() for x in made_up_heads(4, N=2, S=3)]
    assert torch.autograd.gradcheck(lambda *x: disagreement(record_of(*x), term), heads)


@pytest.mark.parametrize("term", PLACES)
def test_half_precision_is_widened_and_double_kept(term):
    assert_half_precision_is_widened(lambda record: disagreement(record, term))


@pytest.mark.parametrize("term", PLACES)
def test_a_batch_without_a_sentence_adds_nothing(term):
    assert_nothing_is_added_to_nothing(*tiny(options(term)))


def test_weights_are_held_only_where_they_are_compared():
    assert [tiny(options(term))[1].required_records() for term in PLACES] == ["heads", "weights", "heads"]


def test_kinds_that_the_model_lacks_are_named():
    model, method = tiny(options("output", kinds=["cross"]))
    with record_heads(model) as records:
        model(make_batch(some_pairs(), range(2)))
    with pytest.raises(TrainingError) as found:
        method.aux_loss(model, [record for record in records if record.spec.kind != "cross"], 0.0, 1)
    assert str(found.value) == "method.kinds: the model has no cross attention, only encoder and decoder"
