"""Orthogonality regularisation: a loss on the squared cosines of pairs of heads (compare Lee et al. 2019, 1910.04500).

    D = −1/(H(H − 1)) Σ_{i≠j} (φ_i·φ_j)²        φ_i the whole matrix V^i, A^i or O^i of a sentence, divided by its norm

D is 0 where all heads are orthogonal. Disagreement takes the cosines themselves, so it is largest for heads that point
in opposite directions; here they count as equal. λ·D, the mean over modules, is subtracted from a sentence's loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headdiv.methods.head_loss import HeadLoss, similarities
from headdiv.methods.options.losses import HeadLossOptions
from headdiv.nn.records import HeadRecord


class Orthogonality(HeadLoss):
    """The method: λ·D is subtracted from the loss."""

    Options = HeadLossOptions

    def differences(self, records: list[HeadRecord]) -> Tensor:
        """D: (modules, B)."""
        squares = torch.stack([similarities(record, self.options.term).square() for record in records])
        H = squares.shape[-1]
        own = squares.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (own - squares.sum((-2, -1))) / max(H * (H - 1), 1)
