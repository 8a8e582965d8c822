"""Measures of how alike heads are: against numpy and loops, under what must not change them, and on every model."""

import math

import numpy as np
import pytest
import torch
from examples import heads_by_sentence, made_up_heads, record_of, some_pairs, tiny
from hypothesis import given
from hypothesis import strategies as st
from packed import random
from small_model import BEGIN, END, make_batch

from headdiv.analysis import similarity
from headdiv.analysis.similarity import (
    BY_HEAD,
    BY_PAIR,
    Observed,
    Words,
    averages,
    between_heads,
    column_correlations,
    column_cosines,
    compare_heads,
    effective_rank,
    entropies,
    js_sum,
)
from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.records import record_heads

seeds = st.integers(0, 2**31 - 1)


def observe(model, pairs, batches, window=48):
    """Batch by batch, each given by the numbers of its pairs; the first and last words of sentences are special."""
    for numbers in batches:
        batch = make_batch(pairs, numbers, window=window)
        with torch.no_grad(), record_heads(model) as records:
            model(batch)
        source, target = batch.source == END, batch.target_in == BEGIN
        special = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
        yield Observed(records, special)


def compared(weights, values, outputs):
    """Of one sentence: A (H, N, S), V (H, S, K), O (H, N, K)."""
    ((_, comparison),) = compare_heads([Observed([record_of(weights, values, outputs)], {})])
    return comparison


def of_outputs(outputs):
    """Of outputs (T, H, K) alone."""
    T, H, _ = outputs.shape
    words = Words(torch.ones(T, H, 1).double(), torch.ones(T, H, 1).double(), outputs)
    return similarity._comparison(similarity.all_sums(words))


# ---- columns of a matrix


def test_columns_without_direction_give_zeros():
    w = random(2, 6, 3)
    w[:, 1] = 0
    for matrix in (column_cosines(w), column_correlations(w)):
        assert matrix.isfinite().all()
        assert not matrix[1].any()
        assert not matrix[:, 1].any()
    w[:, 1] = 4.0
    assert not column_correlations(w)[1].any()


# ---- literal twins


def literal_js(p, q):
    """With logarithms to base 2, key by key."""
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        m = (a + b) / 2
        total += sum(0.5 * x * math.log2(x / m) for x in (a, b) if x > 0)
    return math.sqrt(max(total, 0.0))


def literal_cka(X, Y):
    """By the words' own kernels, (T, T), as Kornblith et al. define it."""
    centre = np.eye(len(X)) - 1 / len(X)
    K, L = (centre @ Z @ Z.T @ centre for Z in (X, Y))
    return (K * L).sum() / math.sqrt((K * K).sum() * (L * L).sum())


def literal_measures(model, pairs):
    """By module, sentence by sentence and word by word; END stands last in a source, BEGIN first in a target."""
    values, outputs = {}, {}
    for line in heads_by_sentence(model, pairs):
        for spec, A, _, Z in line:
            H, N, S = A.shape
            keys = range(1, S) if spec.kind == "decoder" else range(S - 1)
            for n in range(N - 1) if spec.kind == "encoder" else range(1, N):
                grid = [[(i, j) for j in range(H)] for i in range(H)]
                z = Z[:, n].detach().numpy()
                lengths = [math.hypot(*row) for row in z]
                word = {
                    "confidence": [max(A[i, n, s].item() for s in keys) for i in range(H)],
                    "entropy": [sum(-p * math.log(p) for p in A[i, n].tolist() if p > 0) for i in range(H)],
                    "cosine": [[sum(z[i] * z[j]) / (lengths[i] * lengths[j]) for i, j in row] for row in grid],
                    "l2": [[math.dist(z[i], z[j]) for i, j in row] for row in grid],
                    "js": [[literal_js(A[i, n], A[j, n]) for i, j in row] for row in grid],
                }
                values.setdefault(spec, []).append(word)
                outputs.setdefault(spec, []).append(z)
    result = {}
    for spec, rows in outputs.items():
        Z = np.array(rows)  # (T, H, K)
        Z, H = Z - Z.mean(0), Z.shape[1]
        pairs = [[(Z[:, i], Z[:, j]) for j in range(H)] for i in range(H)]
        sigma = np.linalg.svd(Z.reshape(len(Z), -1), compute_uv=False)
        share = [s / sigma.sum() for s in sigma.tolist() if s > 1e-12]
        result[spec] = {name: np.mean([word[name] for word in values[spec]], axis=0) for name in values[spec][0]} | {
            "queries": len(Z),
            "correlation": [[np.corrcoef(X.ravel(), Y.ravel())[0, 1] for X, Y in row] for row in pairs],
            "cka": [[literal_cka(X, Y) for X, Y in row] for row in pairs],
            "effective_rank": math.exp(-sum(s * math.log(s) for s in share)),
        }
    return result


@pytest.mark.parametrize(("window", "batches"), [(48, [range(7)]), (1, [range(3), range(3, 7)])])
def test_measures_are_the_literal_ones(window, batches):
    """However sentences are packed and batched. Confidence leaves special tokens out, as queries and as keys."""
    model, _ = tiny({"name": "baseline"}, encoder_layers=2)
    pairs = some_pairs(7, seed=2)
    compared_modules = compare_heads(observe(model, pairs, batches, window))
    literal = literal_measures(model, pairs)
    assert [spec for spec, _ in compared_modules] == list(literal)
    for spec, measured in compared_modules:
        assert vars(measured).keys() == literal[spec].keys()
        for name, expected in literal[spec].items():
            np.testing.assert_allclose(getattr(measured, name), expected, atol=1e-9, err_msg=f"{spec} {name}")
        average = [sum(measured.l2[i, j].item() for j in range(3) if j != i) / 2 for i in range(3)]
        assert measured.average_l2().tolist() == pytest.approx(average)


def test_the_gradient_of_the_entropy():
    weights = made_up_heads(5)[0].requires_grad_()
    assert torch.autograd.gradcheck(entropies, weights)
    one_hot = torch.eye(3, requires_grad=True)
    entropies(one_hot).sum().backward()
    assert one_hot.grad.isfinite().all()
    assert entropies(torch.full((2, 4), 0.25)).tolist() == pytest.approx([math.log(4)] * 2)


# ---- what must not change them, and where they end


def test_effective_ranks_that_are_known():
    assert effective_rank(torch.eye(5).double()) == pytest.approx(5)
    assert effective_rank(torch.ones(5, 5).double()) == pytest.approx(1, abs=1e-5)
    assert effective_rank(torch.zeros(5, 5).double()) == 0
    sigma = [3.0, 1.0]
    expected = math.exp(-sum(s / 4 * math.log(s / 4) for s in sigma))
    assert effective_rank(torch.diag(torch.tensor(sigma)).double() ** 2) == pytest.approx(expected)
    one = random(3, 50, 1, 4)
    assert of_outputs(torch.cat([one, 3 * one], 1)).effective_rank == pytest.approx(
        of_outputs(one).effective_rank, abs=1e-4
    )


@pytest.mark.parametrize("constant", [0.0, 1000.1])
def test_a_head_that_never_changes_is_like_none(constant):
    outputs = random(4, 30, 3, 2)
    outputs[:, 1] = constant
    measures = of_outputs(outputs)
    for matrix in (measures.correlation, measures.cka):
        assert not matrix[1].any()
        assert not matrix[:, 1].any()
        assert matrix[0, 0].item() == pytest.approx(1)
    assert measures.effective_rank == pytest.approx(of_outputs(outputs[:, [0, 2]]).effective_rank)
    assert of_outputs(torch.full((9, 2, 2), constant).double()).effective_rank == 0


@given(seed=seeds, H=st.integers(1, 4), L=st.integers(1, 7), sharp=st.sampled_from([0.0, 1.0, 50.0]))
def test_js_is_a_symmetric_distance_from_0_to_1(seed, H, L, sharp):
    weights = (sharp * random(seed, 5, H, L)).softmax(-1)
    distances = js_sum(weights)
    expected = [[sum(literal_js(row[i], row[j]) for row in weights) for j in range(H)] for i in range(H)]
    np.testing.assert_allclose(distances, expected, atol=1e-6)
    assert torch.equal(distances, distances.T)
    assert (distances <= 5).all()
    torch.testing.assert_close(js_sum(weights.flip(2)), distances)


def test_js_keeps_its_digits_where_heads_look_nearly_alike():
    p = random(5, 200, 1, 9).softmax(-1)
    near = p * (1 + 1e-4 * random(6, 200, 1, 9).sign())
    q = near / near.sum(-1, keepdim=True)
    weights = torch.cat([p, q], dim=1)
    second_order = ((p - q).square() / p).sum(-1).div(8 * math.log(2)).sqrt().mean().item()
    exact, single = (js_sum(weights.to(dtype))[0, 1].item() / 200 for dtype in (torch.float64, torch.float32))
    assert exact == pytest.approx(second_order, rel=0.001)
    assert exact < 1e-4
    assert single == pytest.approx(exact, rel=0.01)


def test_of_many_words_a_sample_stands_for_all_however_it_is_cut_into_blocks(monkeypatch):
    weights, outputs = random(12, 101, 3, 6).softmax(-1), random(13, 101, 3, 2)
    words = Words(weights, weights, outputs)
    whole = similarity.all_sums(words)
    monkeypatch.setattr(similarity, "BLOCK", 1)
    torch.testing.assert_close(js_sum(weights), whole["js"])
    assert not js_sum(weights[:0]).any()
    monkeypatch.setattr(similarity, "MOST", 101 * 3 * 6 // 4)
    sampled = similarity.all_sums(words)
    torch.testing.assert_close(sampled["js"], js_sum(weights[::5]) * 101 / 21)
    torch.testing.assert_close(sampled["js"], whole["js"], rtol=0.2, atol=0)
    assert all(torch.equal(sampled[name], whole[name]) for name in whole if name != "js")


def test_padding_may_stand_anywhere_and_an_example_be_all_padding():
    torch.manual_seed(1)
    module = MultiheadAttention(8, 2, make_method({"name": "baseline"}), batch_first=True)
    x, real = torch.randn(3, 5, 8), torch.tensor([[1, 0, 1, 1, 0], [0] * 5, [1, 1, 1, 1, 1]]).bool()
    with record_heads(module, weights=True) as records:
        module(x, x, x, ~real)
    ((_, measured),) = compare_heads([Observed(records, {})])
    with record_heads(module, weights=True) as records:
        for line, kept in zip(x, real, strict=True):
            if kept.any():
                module(*[line[kept][None]] * 3)
    ((_, literal),) = compare_heads([Observed(records, {})])
    assert measured.queries == 8
    for name in (*BY_HEAD, *BY_PAIR):
        torch.testing.assert_close(getattr(measured, name), getattr(literal, name), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{"name": "baseline"}, {"name": "moa", "experts": 4, "k": 2}])
def test_a_rank_without_a_batch_adds_zeros(monkeypatch, options):
    """Its sums have the shapes of the others', or they would wait for each other for ever."""
    model, _ = tiny(options)
    shapes = []
    monkeypatch.setattr("headdiv.core.distributed.total", lambda values: shapes.append(values.shape) or values)
    measured, unmeasured = (compare_heads(observe(model, some_pairs(), batches), model) for batches in ([range(6)], []))
    assert [spec for spec, _ in measured] == [spec for spec, _ in unmeasured]
    assert shapes
    assert shapes[: len(shapes) // 2] == shapes[len(shapes) // 2 :]
    assert all(zeros.queries == 0 and not zeros.l2.any() for _, zeros in unmeasured)
    assert compare_heads([]) == []
    assert compare_heads([Observed([], {})]) == []


def test_only_as_much_is_read_as_is_needed(monkeypatch):
    model, _ = tiny({"name": "baseline"})
    pairs = some_pairs(6)
    words = [min(len(side[i]) for side in (pairs.source, pairs.target)) for i in range(6)]
    monkeypatch.setattr(similarity, "ENOUGH", sum(words[:2]) + 1)  # that of the module that has seen least
    read = []

    def batches():
        for i in range(6):
            read.append(i)
            yield [i]

    results = compare_heads(observe(model, pairs, batches()))
    assert len(read) in (2, 3)
    assert min(measured.queries for _, measured in results) >= sum(words[:2]) + 1


@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_widened(autocast):
    heads = [x.bfloat16() for x in made_up_heads(9)]
    single = compared(*(x.float() for x in heads))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        half = compared(*heads)
    for name, value in vars(half).items():
        assert np.array_equal(value, getattr(single, name)), name


# ---- as they are shown


def test_averages_are_over_heads_and_over_pairs_of_different_heads():
    matrix = torch.tensor([[9.0, 0.5, -0.1], [0.5, 9.0, 0.2], [-0.1, 0.2, 9.0]])
    assert between_heads(matrix) == pytest.approx(0.2)
    comparison = compared(*made_up_heads(10))
    result, js = averages(comparison), comparison.js
    assert result["heads"] == 3
    assert result["confidence"] == pytest.approx(comparison.confidence.mean().item())
    assert result["js"] == pytest.approx(np.array([js[0, 1], js[0, 2], js[1, 2]]).mean())


def test_a_single_head_is_compared_with_none():
    comparison = compared(*made_up_heads(11, H=1))
    result = averages(comparison)
    assert all(math.isnan(result[name]) for name in similarity.BY_PAIR)
    assert comparison.js.tolist() == [[0]]
    assert comparison.average_l2().tolist() == [0]
    assert result["effective_rank"] >= 1
