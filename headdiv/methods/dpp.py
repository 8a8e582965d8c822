"""DPP regularisation (Kim & Shin, poster): the heads of a module as items of a determinantal point process.

For every sentence, with φ_i the whole matrix V^i, A^i or O^i of head i divided by its norm:

    q_i  = 1 / (1 + entropy(A^i))     quality; the entropy in nats, mean over the sentence's queries
    L_ij = q_i (φ_i·φ_j) q_j          (H, H)

λ·det L, the mean over modules, is subtracted from the loss of a sentence: heads that attend sharply and differ from
each other span a large volume. det L is in [0, 1]; it is 0 where two heads are parallel or one is zero throughout a
sentence. Without a sentence (a rank may have none) the term is 0. (The poster writes sums over i and j into φ_i·φ_j,
which would make all of these equal and det L zero; they are left out here.)

Letters: B sentences, T rows, R windows, N query slots, S key slots, H heads, K head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headdiv.analysis.similarity import entropies, query_rows
from headdiv.core.precision import at_least_float32
from headdiv.core.tracing import no_second_derivative
from headdiv.methods.head_loss import HeadLoss, Term, by_sentence, similarities
from headdiv.methods.options.losses import DppOptions
from headdiv.nn.packing import PackedLayout
from headdiv.nn.records import HeadRecord


def quality(weights: Tensor, side: PackedLayout) -> Tensor:
    """q of each sentence's heads, in (0, 1]: (R, H, N, S) -> (B, H)."""
    each = query_rows(entropies(weights), side)  # (T, H)
    return 1 / (1 + by_sentence(each, side) / side.lengths.clamp_min(1).unsqueeze(1))


class GramDeterminant(torch.autograd.Function):
    """det L for a Gram matrix L, with a gradient that stays finite where heads coincide.

    The gradient is the adjugate, which from eigenvalues λ is V diag(Π_{j≠i} λ_j) Vᵀ: no inverse is needed. A Gram
    matrix has no negative eigenvalues; those that rounding makes negative count as 0.
    """

    @staticmethod
    def forward(ctx: Any, L: Tensor) -> Tensor:
        """(…, H, H) -> (…); NaN where L is not finite, for the trainer to say so."""
        values, vectors = torch.linalg.eigh(L.nan_to_num())  # it would raise its own error for NaN
        values = values.clamp_min(0)
        ctx.save_for_backward(values, vectors)
        return values.prod(-1) + 0 * L.sum((-2, -1))

    @staticmethod
    @no_second_derivative("det L")
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """(…) -> (…, H, H)."""
        values, vectors = ctx.saved_tensors
        H = values.shape[-1]
        others = values.unsqueeze(-2).expand(*values.shape, H)
        itself = torch.eye(H, dtype=torch.bool, device=values.device)
        products = others.masked_fill(itself, 1.0).prod(-1)  # (…, H) of all but the i-th
        return grad[..., None, None] * (vectors * products.unsqueeze(-2)) @ vectors.transpose(-2, -1)


def kernel(record: HeadRecord, term: Term) -> Tensor:
    """L of each sentence: (B, H, H)."""
    q = quality(at_least_float32(record.weights), record.layout.queries)  # (B, H)
    return q.unsqueeze(2) * similarities(record, term) * q.unsqueeze(1)


class Dpp(HeadLoss):
    """The method: λ·det L is subtracted from the loss."""

    Options = DppOptions

    def differences(self, records: list[HeadRecord]) -> Tensor:
        """det L: (modules, B)."""
        L = torch.stack([kernel(record, self.options.term) for record in records])  # (modules, B, H, H)
        return GramDeterminant.apply(L)
