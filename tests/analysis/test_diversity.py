"""Measures of how different heads are, against numpy and loops over tokens and heads."""

import math

import numpy as np
import pytest
import torch
from examples import heads_by_sentence, made_up_heads, record_of, some_pairs, tiny
from hypothesis import given
from hypothesis import strategies as st
from observed import observe

from headdiv.analysis import diversity
from headdiv.analysis.diversity import column_correlations, column_cosines, entropies, mean_off_diagonal, measure_heads
from headdiv.experiments.running import load_run
from headdiv.methods.base import Observed
from headdiv.methods.deacon import pca_weights

seeds = st.integers(0, 2**31 - 1)


def random(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=seeds, k=st.integers(2, 9), m=st.integers(2, 6))
def test_correlations_are_numpys(seed, k, m):
    w = random(seed, k, m) * 10 + 3
    expected = np.corrcoef(w.numpy(), rowvar=False)
    np.testing.assert_allclose(column_correlations(w).numpy(), expected, atol=1e-10)


@given(seed=seeds, k=st.integers(1, 9), m=st.integers(1, 6))
def test_cosines_are_the_literal_ones(seed, k, m):
    w = random(seed, k, m)
    found = column_cosines(w)
    assert found.shape == (m, m)
    for i in range(m):
        for j in range(m):
            a, b = w[:, i].tolist(), w[:, j].tolist()
            dot = sum(x * y for x, y in zip(a, b, strict=True))
            lengths = (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
            assert found[i, j].item() == pytest.approx(dot / lengths, abs=1e-12)


def test_orthonormal_columns_have_the_identity_for_cosines_but_not_for_correlations():
    w = torch.linalg.qr(random(1, 8, 5))[0]
    torch.testing.assert_close(column_cosines(w), torch.eye(5, dtype=w.dtype))
    torch.testing.assert_close(column_cosines(7 * w), torch.eye(5, dtype=w.dtype))
    assert mean_off_diagonal(column_cosines(w)) == pytest.approx(0, abs=1e-12)
    assert mean_off_diagonal(column_correlations(w)) > 0.01


def test_a_zero_column_gives_zeros():
    w = random(2, 6, 3)
    w[:, 1] = 0
    for found in (column_cosines(w), column_correlations(w)):
        assert found.isfinite().all()
        assert (found[1] == 0).all()
        assert (found[:, 1] == 0).all()


def test_a_constant_column_has_no_correlation():
    w = random(3, 6, 2)
    w[:, 0] = 4.0
    assert column_correlations(w)[0].tolist() == [0, 0]


def test_one_component_has_nothing_beside_it():
    assert column_cosines(random(4, 6, 1)).tolist() == [[pytest.approx(1.0)]]
    assert mean_off_diagonal(torch.ones(1, 1)) == 0.0


def test_mean_off_diagonal_is_of_absolute_values():
    matrix = torch.tensor([[9.0, 0.5, -0.1], [-0.5, 9.0, 0.2], [0.1, 0.2, -9.0]], dtype=torch.float64)
    assert mean_off_diagonal(matrix) == pytest.approx((0.5 + 0.1 + 0.5 + 0.2 + 0.1 + 0.2) / 6, rel=1e-6)
    assert mean_off_diagonal(torch.eye(4)) == 0.0


def test_pca_weights_of_every_module(finished):
    model = load_run(finished.config("direct-8")).model
    told = pca_weights(model)
    assert {name: module["place"] for name, module in told.items()} == {
        "encoder.0.attention.encoder": "encoder 1",
        "decoder.0.attention.decoder": "decoder 1",
        "decoder.0.attention.cross": "cross 1",
    }
    w = model.decoder[0].attention["cross"].output.w.detach().double().numpy()
    module = told["decoder.0.attention.cross"]
    lengths = np.sqrt((w**2).sum(axis=0))
    cosines = w.T @ w / np.outer(lengths, lengths)
    off = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(module["cosines"], cosines, atol=1e-6)
    np.testing.assert_allclose(module["column_lengths"], lengths)
    assert module["mean_absolute_cosine"] == pytest.approx(np.abs(cosines[off]).mean())
    correlations = np.corrcoef(w, rowvar=False)
    assert module["mean_absolute_correlation"] == pytest.approx(np.abs(correlations[off]).mean())


def test_a_model_without_pca_layers_has_none(finished):
    assert pca_weights(load_run(finished.config("baseline")).model) == {}


# ---- what heads do


def literal_measures(model, pairs):
    """By module, sentence by sentence and word by word; END stands last in a source, BEGIN first in a target."""
    told = {}
    for line in heads_by_sentence(model, pairs):
        for spec, A, _, Z in line:
            H, N, S = A.shape
            queries = range(N - 1) if spec.kind == "encoder" else range(1, N)
            keys = range(1, S) if spec.kind == "decoder" else range(S - 1)
            sums = told.setdefault(
                spec, [0, torch.zeros(H), torch.zeros(H), torch.zeros(H, H), torch.zeros(H, H)]
            )  # fmt: skip
            for n in queries:
                sums[0] += 1
                for i in range(H):
                    sums[1][i] += max(A[i, n, s].item() for s in keys)
                    sums[2][i] += sum(-p * math.log(p) for p in A[i, n].tolist() if p > 0)
                    for j in range(H):
                        one, other = Z[i, n].tolist(), Z[j, n].tolist()
                        product = sum(x * y for x, y in zip(one, other, strict=True))
                        sums[3][i, j] += product / (math.hypot(*one) * math.hypot(*other))
                        sums[4][i, j] += math.dist(one, other)
    return {spec: (count, *(x / count for x in sums)) for spec, (count, *sums) in told.items()}


@pytest.mark.parametrize("window", [48, 1])
@pytest.mark.parametrize("batches", [[range(7)], [range(3), range(3, 7)]], ids=["one batch", "several"])
def test_measures_are_the_literal_ones(window, batches):
    """Confidence leaves marks out, as queries and as what is looked at; entropy is that of all weights."""
    model, _ = tiny({"name": "baseline"}, encoder_layers=2)
    pairs = some_pairs(7, seed=2)
    found = measure_heads(observe(model, pairs, batches, window))
    literal = literal_measures(model, pairs)
    assert [spec for spec, _ in found] == list(literal)
    for spec, measured in found:
        count, *expected = literal[spec]
        assert measured.queries == count == sum(map(len, pairs.source if spec.kind == "encoder" else pairs.target))
        names = "confidence", "entropy", "cosine", "l2"
        for name, values in zip(names, expected, strict=True):
            torch.testing.assert_close(getattr(measured, name).float(), values, msg=f"{spec} {name}")
        average = [sum(expected[3][i, j].item() for j in range(3) if j != i) / 2 for i in range(3)]
        assert measured.average_l2().tolist() == pytest.approx(average, rel=1e-5)


def test_only_as_much_is_read_as_is_needed(monkeypatch):
    model, _ = tiny({"name": "baseline"})
    pairs = some_pairs(6)
    words = [min(len(side[i]) for side in (pairs.source, pairs.target)) for i in range(6)]
    monkeypatch.setattr(diversity, "ENOUGH", sum(words[:2]) + 1)  # that of the module that has seen least
    read = []

    def batches():
        for i in range(6):
            read.append(i)
            yield [i]

    told = measure_heads(observe(model, pairs, batches()))
    assert len(read) in (2, 3)
    assert min(measured.queries for _, measured in told) >= sum(words[:2]) + 1


def test_without_marks_every_query_counts():
    A, V, Z = made_up_heads(1)
    ((_, measured),) = measure_heads([Observed([record_of(A, V, Z)], {})])
    assert measured.queries == A.shape[1]
    torch.testing.assert_close(measured.confidence, A.amax(-1).mean(-1))


def test_a_single_head_has_no_distance():
    ((_, measured),) = measure_heads([Observed([record_of(*made_up_heads(1, H=1))], {})])
    assert measured.average_l2().tolist() == [0]


def test_a_rank_that_sees_no_batch_knows_the_modules_all_the_same(monkeypatch):
    """Its sums are asked for as often as those of the others, which would wait for it for ever."""
    model, _ = tiny({"name": "baseline"}, encoder_layers=2)
    summed = []
    monkeypatch.setattr("headdiv.core.distributed.total", lambda values: summed.append(values.shape) or values)
    seen, unseen = (measure_heads(observe(model, some_pairs(), batches), model) for batches in ([range(6)], []))
    assert [spec for spec, _ in seen] == [spec for spec, _ in unseen]
    assert summed[: len(summed) // 2] == summed[len(summed) // 2 :]
    assert all(measured.queries == 0 and not measured.l2.any() for _, measured in unseen)
    assert measure_heads([]) == []


def test_half_precision_is_widened():
    heads = made_up_heads(3)
    half = [x.bfloat16() for x in heads]
    told = [
        measure_heads([Observed([record_of(*which)], {})])[0][1] for which in (half, [x.float() for x in half])
    ]  # fmt: skip
    assert torch.equal(told[0].cosine, told[1].cosine)
    assert torch.equal(told[0].entropy, told[1].entropy)


def test_the_gradient_of_the_entropy():
    weights = made_up_heads(5)[0].requires_grad_()
    assert torch.autograd.gradcheck(entropies, weights)
    one_hot = torch.eye(3, requires_grad=True)
    entropies(one_hot).sum().backward()
    assert one_hot.grad.isfinite().all()
    assert entropies(torch.full((2, 4), 0.25)).tolist() == pytest.approx([math.log(4)] * 2)
