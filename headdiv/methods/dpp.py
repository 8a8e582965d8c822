"""DPP regularisation (Kim & Shin, poster): the heads of a module as items of a determinantal point process.

Of every sentence, with φ_i the whole matrix V^i, A^i or O^i of head i divided by its norm:

    q_i  = 1 / (1 + entropy(A^i))     quality; the entropy in nats, mean over the sentence's queries
    L_ij = q_i (φ_i·φ_j) q_j          (H, H)

The loss of a sentence loses λ·det L, the mean over modules: heads that attend sharply and differ from each other
span a large volume. det L is in [0, 1]; it is 0 where two heads are parallel or one is zero throughout a sentence.
Without a sentence (a rank may have none of a batch) the term is 0. (The poster writes sums over i and j into φ_i·φ_j,
which would make all entries equal; they are left out here.)

Letters: B sentences, T rows, R windows, N query slots, S key slots, H heads, K head width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.diversity import entropies, query_rows
from headdiv.core import distributed
from headdiv.core.precision import at_least_float32
from headdiv.core.settings import Settings
from headdiv.methods.base import Method, RequiredRecords
from headdiv.methods.disagreement import ALL_KINDS, by_sentence, inverse_root, of_kinds
from headdiv.nn.attention import HeadRecord, Kind
from headdiv.nn.packing import Side


def quality(weights: Tensor, side: Side) -> Tensor:
    """q of each sentence's heads, in (0, 1]: (R, H, N, S) -> (B, H)."""
    each = query_rows(entropies(weights), side)  # (T, H)
    return 1 / (1 + by_sentence(each, side) / side.lengths.unsqueeze(1))


def similarity(x: Tensor, side: Side) -> Tensor:
    """φ_i·φ_j of each sentence's heads, the cosines of whole matrices: (T, H, K) -> (B, H, H).

    The products of a sentence are the sums of its rows' products, and their diagonal holds the squared norms.
    """
    products = by_sentence(x @ x.transpose(1, 2), side)  # (B, H, H)
    squares = products.diagonal(dim1=1, dim2=2)  # (B, H)
    inverse = inverse_root(squares)
    return products * inverse.unsqueeze(1) * inverse.unsqueeze(2)


class GramDeterminant(torch.autograd.Function):
    """det L for a Gram matrix L, with a gradient that stays finite where heads coincide.

    The gradient is the adjugate, which from eigenvalues λ is V diag(Π_{j≠i} λ_j) Vᵀ: no inverse is needed. A Gram
    matrix has no negative eigenvalues; what rounding makes of a 0 is set right.
    """

    @staticmethod
    def forward(ctx: Any, L: Tensor) -> Tensor:
        """(…, H, H) -> (…); NaN where L is not finite, for the trainer to say so."""
        values, vectors = torch.linalg.eigh(L.nan_to_num())  # which would refuse NaN with an error of its own
        values = values.clamp_min(0)
        ctx.save_for_backward(values, vectors)
        return values.prod(-1) + 0 * L.sum((-2, -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """(…) -> (…, H, H)."""
        values, vectors = ctx.saved_tensors
        H = values.shape[-1]
        others = values.unsqueeze(-2).expand(*values.shape, H)
        itself = torch.eye(H, dtype=torch.bool, device=values.device)
        products = others.masked_fill(itself, 1.0).prod(-1)  # (…, H) of all but the i-th
        return grad[..., None, None] * (vectors * products.unsqueeze(-2)) @ vectors.transpose(-2, -1)


def kernel(record: HeadRecord, term: str) -> Tensor:
    """L of each sentence: (B, H, H); ``term``: subspace, position or output."""
    queries, weights = record.layout.queries, at_least_float32(record.weights)
    if term == "subspace":
        phi = similarity(at_least_float32(record.values), record.layout.keys)
    elif term == "position":
        phi = similarity(query_rows(weights, queries), queries)
    else:
        phi = similarity(at_least_float32(record.outputs), queries)
    q = quality(weights, queries)  # (B, H)
    return q.unsqueeze(2) * phi * q.unsqueeze(1)


class Dpp(Method):
    """The method: λ·det L is taken off the loss."""

    class Options(Settings):
        """The poster gives no λ."""

        term: Literal["subspace", "position", "output"] = Field(
            description="φ: values, attention weights, head outputs"
        )
        weight: float = Field(1.0, gt=0, description="λ")
        kinds: tuple[Kind, ...] = Field(ALL_KINDS, min_length=1, description="kinds of attention that it is taken over")

    options: Options

    def required_records(self) -> RequiredRecords:
        """The quality is that of the weights."""
        return "weights"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """−λ·det L for each prediction: summed over sentences, as their log-likelihoods are, mean over modules.

        Raises:
            TrainingError: the model has no attention of these kinds.
        """
        chosen = of_kinds(records, self.options.kinds)
        L = torch.stack([kernel(record, self.options.term) for record in chosen])  # (modules, B, H, H)
        return -self.options.weight * GramDeterminant.apply(L).mean(0).sum() * (distributed.world() / count)
