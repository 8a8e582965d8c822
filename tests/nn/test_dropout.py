"""Dropout from 16 bits an element: its rate, its scale, its randomness, its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headdiv.nn.dropout import Dropout


def dropped_out(p, x, seed=0):
    torch.manual_seed(seed)
    return Dropout(p).train()(x)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_rate_and_mean_are_right_within_five_standard_errors(p):
    n = 200_000
    y = dropped_out(p, torch.ones(n))
    zeros = (y == 0).float().mean().item()
    assert abs(zeros - p) < 5 * math.sqrt(p * (1 - p) / n) + 2**-16
    assert abs(y.mean().item() - 1) < 5 * math.sqrt(p / (1 - p) / n)
    assert set(y.unique().tolist()) == {0.0, y.max().item()}
    assert y.max().item() == pytest.approx(1 / (1 - p), rel=2**-15 / (1 - p))


def test_elements_are_independent_of_their_neighbours():
    """Four elements share one draw: each lag from 1 to 5 must look uncorrelated."""
    kept = (dropped_out(0.5, torch.ones(200_000)) != 0).double() - 0.5
    for lag in range(1, 6):
        correlation = 4 * (kept[:-lag] * kept[lag:]).mean()
        assert abs(correlation) < 5 / math.sqrt(len(kept))


def test_off_in_evaluation_and_for_p_zero():
    x = torch.randn(5, 3)
    assert Dropout(0.9).eval()(x) is x
    state = torch.get_rng_state()
    assert Dropout(0.0).train()(x) is x
    assert torch.equal(torch.get_rng_state(), state)


@given(
    shape=st.lists(st.integers(0, 7), min_size=0, max_size=3),
    p=st.floats(0.01, 0.99),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_any_shape_is_kept_and_backward_uses_the_same_mask(shape, p, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).add(10).to(dtype).requires_grad_()
    y = dropped_out(p, x)
    assert (y.shape, y.dtype) == (x.shape, dtype)
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (y * weights).sum().backward()
    scale = 2**16 / (2**16 - round(p * 2**16))
    torch.testing.assert_close(y.detach(), (x * (y != 0) * scale).detach())
    torch.testing.assert_close(x.grad, weights * (y != 0) * scale)
