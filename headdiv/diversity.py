"""How different heads are: measures on weights and outputs, each with its definition, range and source."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headdiv.methods.deacon import pca_layers


def column_cosines(w: Tensor) -> Tensor:
    """Cosine between every two columns of w (k, M) -> (M, M), in [−1, 1]; the identity for principal components.

    What DEACON's Figure 6 calls the correlation matrix of the PCA layer's weights: the paper compares it
    with the identity, which orthonormal columns have for their cosines (Pearson's correlation, with the
    mean of each column taken off, is not zero between orthonormal columns). A zero column gives zeros.
    """
    unit = w / w.norm(dim=0).clamp(min=torch.finfo(w.dtype).tiny)
    return unit.T @ unit


def column_correlations(w: Tensor) -> Tensor:
    """Pearson's correlation between every two columns of w (k, M) -> (M, M), in [−1, 1]."""
    return column_cosines(w - w.mean(dim=0))


def mean_off_diagonal(matrix: Tensor) -> float:
    """Mean absolute value off the diagonal of (M, M): 0 for the identity; 0 too where M = 1."""
    m = matrix.shape[0]
    if m < 2:
        return 0.0
    total = matrix.abs().sum() - matrix.diagonal().abs().sum()
    return float(total / (m * (m - 1)))


def pca_weights(model: nn.Module) -> dict[str, dict[str, Any]]:
    """What Figure 6 needs of every PCA layer, by module name; empty for a model without any.

    Returns:
        For each: the matrix of `column_cosines`, its `mean_off_diagonal`, that of `column_correlations`,
        and the length of each column.
    """
    told = {}
    for name, layer in pca_layers(model).items():
        w = layer.w.detach().double().cpu()
        cosines = column_cosines(w)
        told[name.removesuffix(".output")] = {
            "place": f"{layer.spec.kind} {layer.spec.layer + 1}",
            "cosines": [[round(value, 6) for value in row] for row in cosines.tolist()],
            "mean_absolute_cosine": mean_off_diagonal(cosines),
            "mean_absolute_correlation": mean_off_diagonal(column_correlations(w)),
            "column_lengths": w.norm(dim=0).tolist(),
        }
    return told
