"""HSIC regularisation: a loss on the dependence of pairs of heads (Gretton et al. 2005; for heads Yun et al. 2021).

With the linear kernel HSIC is ‖X_iᵀ X_j‖²_F / (n − 1)², X_i (n, K) the centred rows of head i. Normalised it is linear
CKA (Kornblith et al. 2019), the measure that results report, so that a head cannot satisfy it by becoming small:

    D = −1/(H(H − 1)) Σ_{i≠j} ‖X_iᵀ X_j‖²_F / (‖X_iᵀ X_i‖_F ‖X_jᵀ X_j‖_F)

Rows are all those of a batch, on all ranks: a sentence has fewer than a head has dimensions, and with so few rows any
two heads depend on each other. λ·D, the mean over modules, is added to the likelihood of every sentence of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headdiv.core import distributed
from headdiv.core.precision import at_least_float32
from headdiv.methods.head_loss import HeadLoss, inverse_root
from headdiv.methods.options.losses import HsicOptions
from headdiv.nn.records import HeadRecord


def linear_cka(x: Tensor) -> Tensor:
    """CKA of every pair of heads from rows x (T, H, K) of all ranks: (H, H); 0 for a constant head."""
    _, H, K = x.shape
    rows = x.flatten(1)
    n = distributed.total(rows.new_full((1,), len(rows))).clamp_min(1)
    centred = rows - distributed.total(rows.sum(0)) / n
    C = distributed.total(centred.T @ centred) / n
    # Each head is scaled separately, which cancels below; else fourth powers of small ones would vanish beside others.
    squares = distributed.total(rows.detach().square().sum(0)) / n
    inverse = _inverse_deviations(C.detach().diagonal().view(H, K).sum(1), squares.view(H, K).sum(1))
    C = C.view(H, K, H, K) * inverse[:, None, None, None] * inverse[:, None]
    dependence = C.square().sum((1, 3))  # (H, H)
    inverse = inverse_root(dependence.diagonal())
    return dependence * inverse * inverse[:, None]


def _inverse_deviations(variances: Tensor, squares: Tensor) -> Tensor:
    """1/√ of each head's variance, (H,); 0 where the variance does not exceed the rounding of its mean ``squares``."""
    varies = variances > squares * (100 * torch.finfo(squares.dtype).eps) ** 2
    return torch.where(varies, variances.clamp_min(torch.finfo(variances.dtype).tiny).rsqrt(), 0.0)


class Hsic(HeadLoss):
    """The method: λ·D is subtracted from the loss."""

    Options = HsicOptions
    options: HsicOptions

    def differences(self, records: list[HeadRecord]) -> Tensor:
        """D, the same for every sentence: (modules, B)."""
        found = []
        for record in records:
            cka = linear_cka(at_least_float32(record.values if self.options.term == "subspace" else record.outputs))
            H = len(cka)
            D = (cka.trace() - cka.sum()) / max(H * (H - 1), 1)
            found.append(D.expand(len(record.layout.queries.lengths)))
        return torch.stack(found)
