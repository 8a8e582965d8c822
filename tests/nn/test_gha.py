"""GHA and DEACON's update against literal twins, their invariants, and every degenerate case."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from packed import random

from headdiv import gha
from headdiv.gha import (
    covariance,
    deacon_update,
    gha_inner_loop,
    joined_moments,
    moments,
    principal_components,
    sanger_rule,
    stable_learning_rate,
)

seeds = st.integers(0, 2**31 - 1)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def random_covariance(seed, *batch, k):
    rows = random(seed, *batch, 10 * k, k) @ random(seed + 1, *batch, k, k)
    return covariance(rows)


def inner(a, b):
    return (a * b).sum(dim=(-2, -1))


def literal_sanger(X, w):
    """Eq. 14 sample by sample, in the paper's column form (weights m × k, lower triangle)."""
    W = w.T
    total = torch.zeros_like(W)
    for x in X:
        y = W @ x
        total += torch.outer(y, x) - torch.tril(torch.outer(y, y)) @ W
    return (total / len(X)).T


def literal_deacon(G, F, delta_p, xi):
    """Eqs. 13 and 15 to 19 as the paper has them."""
    I_GG, I_GF, I_FF = inner(G, G), inner(G, F), inner(F, F)
    dQ = -xi * delta_p * I_GG.sqrt()
    lambda_2 = 0.5 * ((I_GG * delta_p**2 - dQ**2) / (I_FF * I_GG - I_GF**2)) ** -0.5
    lambda_1 = (I_GF - 2 * lambda_2 * dQ) / I_GG
    return -(lambda_1 / (2 * lambda_2)) * G + F / (2 * lambda_2)


@given(seed=seeds, k=st.integers(1, 6), m=st.integers(1, 6))
def test_sanger_rule_is_the_mean_of_the_literal_rule_over_samples(seed, k, m):
    m = min(m, k)
    X, w = random(seed, 20, k), random(seed + 1, k, m)
    X = X - X.mean(dim=0)
    torch.testing.assert_close(sanger_rule(X.T @ X / len(X), w), literal_sanger(X, w))
    torch.testing.assert_close(covariance(X + 3.0), X.T @ X / len(X))


def literal_rate(C, w):
    """1 / (2 ‖C‖_∞ max(1, ‖wᵀw‖_∞)), row by row."""
    largest_C, largest_w = (max(sum(map(abs, row)) for row in x.tolist()) for x in (C, w.T @ w))
    return 1 / (2 * largest_C * max(1.0, largest_w))


@given(seed=seeds)
def test_inner_loop_repeats_sangers_rule_for_every_leading_index(seed):
    C, w = random_covariance(seed, 2, 3, k=5), random(seed + 2, 2, 3, 5, 4)
    expected, before = w.clone(), w.clone()
    for i, j in itertools.product(range(2), range(3)):
        for step in range(35):
            if step in (0, 10, 30):  # where the loop works its rate out anew
                lr = literal_rate(C[i, j], expected[i, j])
            expected[i, j] += lr * sanger_rule(C[i, j], expected[i, j])
    torch.testing.assert_close(gha_inner_loop(C, w, 35), expected)
    rate = stable_learning_rate(C, w)  # that of the first ten steps
    torch.testing.assert_close(gha_inner_loop(C, w, 7, rate), gha_inner_loop(C, w, 7))
    assert torch.equal(w, before)
    assert torch.equal(gha_inner_loop(C, w, 0), w)


def test_inner_loop_in_torch_gives_what_it_gives_in_numpy():
    C, w = random_covariance(1, 6, k=8), random(2, 6, 8, 3)
    by_torch = w.clone()
    gha._iterate(torch, 0.01 * C, by_torch, torch.ones(3, 3, dtype=w.dtype).triu(), 50)
    torch.testing.assert_close(by_torch, gha_inner_loop(C, w, 50, lr=0.01))


@pytest.mark.parametrize(("k", "m"), [(8, 8), (8, 3), (1, 1)])
def test_inner_loop_converges_to_the_principal_components(k, m):
    basis = torch.linalg.qr(random(3, k, k))[0]
    C = basis @ torch.diag(torch.linspace(float(k), 1.0, k, dtype=torch.float64)) @ basis.T
    w = gha_inner_loop(C, random(4, k, m), 4000)
    expected = principal_components(C, m)
    cosines = (w * expected).sum(dim=0).abs()
    torch.testing.assert_close(cosines, torch.ones_like(cosines), atol=1e-6, rtol=0)
    torch.testing.assert_close(sanger_rule(C, expected), torch.zeros(k, m, dtype=C.dtype), atol=1e-10, rtol=0)


@given(seed=seeds, scale=st.sampled_from([1e-3, 1.0, 30.0]))
def test_default_rate_never_diverges_from_any_start(seed, scale):
    C, w = random_covariance(seed, k=8), scale * random(seed + 1, 8, 8)
    after = gha_inner_loop(C, w, 200)
    assert after.isfinite().all()
    assert after.norm() <= max(2 * w.norm(), 2 * math.sqrt(8))


def test_principal_components_are_ordered_unit_columns_with_a_fixed_sign():
    C = random_covariance(5, 4, k=6)
    U = principal_components(C, 6)
    torch.testing.assert_close(U.transpose(-2, -1) @ U, torch.eye(6, dtype=C.dtype).expand(4, 6, 6))
    variances = (U.transpose(-2, -1) @ C @ U).diagonal(dim1=-2, dim2=-1)
    assert (variances.diff(dim=-1) <= 1e-12).all()
    assert (U.gather(-2, U.abs().argmax(dim=-2, keepdim=True)) > 0).all()


@given(
    seed=seeds,
    shape=st.sampled_from([(1, 2), (4, 3), (9, 9)]),
    delta_p=st.floats(1e-3, 10),
    xi=st.floats(0.05, 0.95),
    scale_g=st.sampled_from([1e-12, 1.0, 1e12]),
    scale_f=st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_update_equals_the_papers_equations_for_every_leading_index(seed, shape, delta_p, xi, scale_g, scale_f):
    G, F = scale_g * random(seed, 3, *shape), scale_f * random(seed + 1, 3, *shape)
    expected = torch.stack([literal_deacon(*pair, delta_p, xi) for pair in zip(G, F, strict=True)])
    torch.testing.assert_close(deacon_update(G, F, delta_p, xi), expected)


@given(seed=seeds, factor=st.sampled_from([0.0, 1.0, -1.0, 3.7, -1e-9]))
def test_update_follows_what_there_is_of_g_and_f(seed, factor):
    """Without a gradient f; with f zero or parallel to g a descent along g alone; of nothing nothing."""
    F, zero = random(seed, 4, 3), torch.zeros(4, 3, dtype=torch.float64)
    torch.testing.assert_close(deacon_update(zero, F, 0.2, 0.8), 0.2 * F / F.norm())
    torch.testing.assert_close(deacon_update(F, factor * F, 0.2, 0.8), -0.8 * 0.2 * F / F.norm())
    assert torch.equal(deacon_update(zero, zero, 0.2, 0.8), zero)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["G", "F"])
def test_nan_and_infinity_spoil_their_own_leading_index_only(bad, where):
    G, F = random(1, 3, 4, 2), random(2, 3, 4, 2)
    clean = deacon_update(G, F, 0.2, 0.8)
    (G if where == "G" else F)[1, 2, 0] = bad
    dw = deacon_update(G, F, 0.2, 0.8)
    assert dw[1].isnan().all()
    assert torch.equal(dw[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_moments_of_many_half_precision_rows_are_those_of_float32(dtype):
    """A sum of 100,000 squares is beyond float16."""
    rows = (random(0, 100_000, 3, dtype=torch.float32) + 3).to(dtype)
    for moment, expected in zip(moments(rows), moments(rows.float()), strict=True):
        assert torch.equal(moment, expected.to(dtype))
        assert moment.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type_is_taken_and_returned(dtype):
    C, w = random_covariance(1, 2, k=4).to(dtype), random(2, 2, 4, 3).to(dtype)
    F = gha_inner_loop(C, w, 20) - w
    assert F.dtype == dtype
    assert sanger_rule(C, w).dtype == dtype
    assert principal_components(C, 3).dtype == dtype
    dw = deacon_update(w, F, 0.2, 0.8)
    assert dw.dtype == dtype
    torch.testing.assert_close(inner(dw, dw).sqrt().float(), torch.full((2,), 0.2), rtol=2e-2, atol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: deacon_update(x, x, 0.0, 0.8), "found delta_p = 0.0 .*"),
        (lambda x: deacon_update(x, x, 0.2, 1.0), "found .* xi = 1.0, .*"),
        (lambda x: principal_components(x, 4), "m must be between 1 and k = 3, found 4"),
        (lambda x: deacon_update(x, x[:, :1], 0.1, 0.5), "G and F: .*"),
    ],
)
def test_a_wrong_argument_is_named(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call(torch.eye(3))


@given(seed=seeds, sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), k=st.integers(1, 4))
def test_joined_moments_are_those_of_all_rows(seed, sizes, k):
    parts = [random(seed + i, n, k) for i, n in enumerate(sizes)]
    result = [(len(x), *(y.nan_to_num() for y in moments(x))) for x in parts]
    number, mean, C = functools.reduce(joined_moments, result)
    rows = torch.cat(parts)
    assert number == len(rows)
    if number:
        torch.testing.assert_close((mean, C), moments(rows))
