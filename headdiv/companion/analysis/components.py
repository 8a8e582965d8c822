"""Weights of a PCA layer against the principal components of its inputs.

Letters: k inputs and M columns of the weights w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headdiv.gha import principal_components


@dataclass(frozen=True)
class Components:
    """A PCA layer's weights w (k, M) against the principal components of its inputs.

    Attributes:
        cosines: (M, M) absolute cosine of column i of w with the j-th component; an eigenvector has no sign.
        best: (k,) share of the inputs' variance that their first 1, 2, … components keep: the most that is possible.
        kept: (M,) share that the span of the first 1, 2, … columns of w keeps.
    """

    cosines: np.ndarray
    best: np.ndarray
    kept: np.ndarray


def compare_components(w: Tensor, C: Tensor) -> Components:
    """The comparison of weights (k, M) with inputs of covariance C (k, k), whose trace is above 0; both float64."""
    values = torch.linalg.eigvalsh(C).clamp_min(0).flip(0)
    return Components(
        absolute_cosines(w, principal_components(C, w.shape[1])).numpy(),
        (values.cumsum(0) / values.sum()).numpy(),
        variance_shares(C, w).numpy(),
    )


def absolute_cosines(w: Tensor, components: Tensor) -> Tensor:
    """|cosine| of every column of w with every unit column of components: (k, M), (k, m) -> (M, m); 0 for w = 0."""
    return ((w / w.norm(dim=0).clamp_min(torch.finfo(w.dtype).tiny)).T @ components).abs().clamp_max(1)


def variance_shares(C: Tensor, w: Tensor) -> Tensor:
    """tr(Pᵢ C) / tr C, Pᵢ the projection onto the span of the first i columns of w: (k, k), (k, M) -> (M,).

    Columns may depend on each other and be of any length.
    """
    M = w.shape[1]
    first = torch.ones(M, M, dtype=w.dtype).tril()  # row i: which columns belong to the i-th span
    U, S, _ = torch.linalg.svd(w * first[:, None], full_matrices=False)  # (M, k, M), (M, M)
    rounding = S.amax(-1, keepdim=True) * len(w) * torch.finfo(w.dtype).eps
    there = rounding < S  # (M, M)
    along = torch.einsum("iks,kl,ils->is", U, C, U)  # variance along each direction
    return (along * there).sum(-1) / C.trace()
