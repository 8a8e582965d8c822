"""Measures of how different heads are, against numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headdiv.diversity import column_correlations, column_cosines, mean_off_diagonal, pca_weights
from headdiv.training import load_run

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
