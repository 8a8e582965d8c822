"""Winners, boost and probabilities against the paper's equations written out with loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sparse import literal_boost, literal_keep, literal_winners

from headdiv.methods.kwta import boost, keep_probabilities, sampled, survivors, winners

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

    monkeypatch.setattr("headdiv.methods.kwta._at_hand", lambda x: False)
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
    found = boost(counts, k)
    assert (found.dtype, found.shape) == (torch.float64, (groups, n))
    torch.testing.assert_close(found.tolist(), [literal_boost(row, k) for row in counts.tolist()])
    assert found.isfinite().all()
    assert (found >= 0).all()


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
    found = keep_probabilities(counts, s, reading, delta)
    assert (found.dtype, found.shape) == (torch.float64, (groups, n))
    expected = [literal_keep(row, s, reading, delta) for row in counts.tolist()]
    torch.testing.assert_close(found.tolist(), expected)
    assert ((found >= 0.01) & (found <= 0.99)).all()
    if delta == 0:
        torch.testing.assert_close(found.median(-1).values, torch.full((groups,), s, dtype=torch.float64))


def test_masks_are_drawn_from_the_global_generator_with_these_probabilities():
    keep = torch.tensor([[0.01, 0.5], [0.9, 0.99]], dtype=torch.float64)
    torch.manual_seed(5)
    mask = sampled(keep, 20_000)
    assert (mask.dtype, mask.shape) == (torch.bool, (20_000, 2, 2))
    torch.testing.assert_close(mask.double().mean(0), keep, atol=0.01, rtol=0)
    torch.manual_seed(5)
    assert torch.equal(sampled(keep, 20_000), mask)
    assert not torch.equal(sampled(keep, 20_000), mask)
    assert sampled(keep, 0).shape == (0, 2, 2)
