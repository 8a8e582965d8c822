"""Disagreement regularisation (Li et al. 2018, as the DPP poster gives it): a loss that pushes heads apart.

Whole matrices of one sentence are compared, as the formulas are written: V^i (S, K), A^i (N, S), O^i (N, K), with ·
the sum of the products of their entries.

    subspace   D = −1/H² Σ_i Σ_j V^i·V^j / (‖V^i‖ ‖V^j‖)
    position   D = −1/H² Σ_i Σ_j |A^i ⊙ A^j|, here for each query: divided by N
    output     D = −1/H² Σ_i Σ_j O^i·O^j / (‖O^i‖ ‖O^j‖)

D is between −1 and 0 (a mean of all cosines, i = j included, is a squared length) and largest where heads differ most.
It is added to the likelihood, so λ·D, the mean over modules, is subtracted from the loss of a sentence. A head that is
0 throughout a sentence has no direction: its cosines are 0. Without a sentence (a rank may have none) the term is 0.

Letters: B sentences, T rows, R windows, N query slots, S key slots, H heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headdiv.analysis.similarity import query_rows
from headdiv.core.precision import at_least_float32
from headdiv.methods.head_loss import HeadLoss, Term, by_sentence, inverse_root
from headdiv.methods.options.losses import HeadLossOptions
from headdiv.nn.packing import PackedLayout
from headdiv.nn.records import HeadRecord


def agreement(x: Tensor, side: PackedLayout) -> Tensor:
    """1/H² Σ_i Σ_j cos(x^i, x^j) of each sentence: (T, H, K) -> (B,).

    The double sum of products is the square of a sum, so no pairs are formed.
    """
    inverse = inverse_root(by_sentence(x.square().sum(-1), side))  # (B, H), of norms over whole sentences
    units = x * inverse[side.sentence_of_row()].unsqueeze(-1)
    return by_sentence(units.sum(1).square().sum(-1), side) / x.shape[1] ** 2


def overlap(weights: Tensor, side: PackedLayout) -> Tensor:
    """1/H² Σ_i Σ_j |A^i ⊙ A^j| for each query, the mean over a sentence: (R, H, N, S) -> (B,)."""
    H = weights.shape[1]
    each = query_rows(weights.sum(1, keepdim=True).square().sum(-1), side)  # (T, 1)
    return by_sentence(each, side).squeeze(1) / (H**2 * side.lengths.clamp_min(1))


def disagreement(record: HeadRecord, term: Term) -> Tensor:
    """D of each sentence: (B,)."""
    if term == "position":
        return -overlap(at_least_float32(record.weights), record.layout.queries)
    if term == "subspace":
        return -agreement(at_least_float32(record.values), record.layout.keys)
    return -agreement(at_least_float32(record.outputs), record.layout.queries)


class Disagreement(HeadLoss):
    """The method: λ·D is subtracted from the loss."""

    Options = HeadLossOptions

    def differences(self, records: list[HeadRecord]) -> Tensor:
        """D: (modules, B)."""
        return torch.stack([disagreement(record, self.options.term) for record in records])
