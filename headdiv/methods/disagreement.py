"""Disagreement regularisation (Li et al. 2018, as the DPP poster gives it): a loss that parts the heads of a module.

What is compared are whole matrices of one sentence, as the formulas are written: V^i (S, K), A^i (N, S), O^i (N, K),
with · the sum of products of equal entries.

    subspace   D = −1/H² Σ_i Σ_j V^i·V^j / (‖V^i‖ ‖V^j‖)
    position   D = −1/H² Σ_i Σ_j |A^i ⊙ A^j|, here for each query: divided by N
    output     D = −1/H² Σ_i Σ_j O^i·O^j / (‖O^i‖ ‖O^j‖)

D is between −1 and 0 (a mean of all cosines, i = j included, is a squared length) and largest where heads differ most.
It is added to the likelihood, so the loss of a sentence loses λ·D, the mean over modules. A head that is 0 throughout
a sentence has no direction: its cosines are 0. Without a sentence (a rank may have none of a batch) the term is 0.

Letters: B sentences, T rows, R windows, N query slots, S key slots, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.diversity import query_rows
from headdiv.core import distributed
from headdiv.core.errors import TrainingError
from headdiv.core.precision import at_least_float32
from headdiv.core.settings import Settings
from headdiv.methods.base import Method, RequiredRecords
from headdiv.nn.attention import AttentionSpec, HeadRecord, Kind
from headdiv.nn.packing import Side

ALL_KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


class Placed(Protocol):
    """A record or a module: something that knows which attention of the model it belongs to."""

    @property
    def spec(self) -> AttentionSpec:
        """Of that attention."""


Some = TypeVar("Some", bound=Placed)


def of_kinds(there: Iterable[Some], kinds: tuple[Kind, ...]) -> list[Some]:
    """What belongs to attention of one of these kinds.

    Raises:
        TrainingError: there is nothing.
    """
    found = list(there)
    chosen = [one for one in found if one.spec.kind in kinds]
    if not chosen:
        has = " and ".join(kind for kind in ALL_KINDS if kind in {one.spec.kind for one in found})
        raise TrainingError(f"method.kinds: the model has no {' or '.join(kinds)} attention, only {has}")
    return chosen


def by_sentence(rows: Tensor, side: Side) -> Tensor:
    """Sums over the rows of each sentence: (T, …) -> (B, …)."""
    sums = rows.new_zeros(len(side.lengths), *rows.shape[1:])
    return sums.index_add(0, side.sentence_of_row(), rows)


def inverse_root(squares: Tensor) -> Tensor:
    """1/√ of squared norms, any shape; 0 for a norm below the precision: what it is the norm of counts as zero.

    Its direction would be noise, and the gradient huge.
    """
    least = torch.finfo(squares.dtype).eps ** 2
    return torch.where(squares > least, squares.clamp_min(least).rsqrt(), 0.0)


def unit_heads(x: Tensor, side: Side) -> Tensor:
    """Every head of every sentence divided by its norm over the whole sentence: (T, H, K) -> (T, H, K)."""
    squares = by_sentence(x.square().sum(-1), side)  # (B, H)
    return x * inverse_root(squares)[side.sentence_of_row()].unsqueeze(-1)


def agreement(x: Tensor, side: Side) -> Tensor:
    """1/H² Σ_i Σ_j cos(x^i, x^j) of each sentence: (T, H, K) -> (B,).

    The double sum of products is the square of a sum, so no pair is ever formed.
    """
    H = x.shape[1]
    return by_sentence(unit_heads(x, side).sum(1).square().sum(-1), side) / H**2


def overlap(weights: Tensor, side: Side) -> Tensor:
    """1/H² Σ_i Σ_j |A^i ⊙ A^j| for each query, the mean over a sentence: (R, H, N, S) -> (B,)."""
    H = weights.shape[1]
    each = query_rows(weights.sum(1, keepdim=True).square().sum(-1), side)  # (T, 1)
    return by_sentence(each, side).squeeze(1) / (H**2 * side.lengths)


def disagreement(record: HeadRecord, term: str) -> Tensor:
    """D of each sentence, (B,); ``term``: subspace, position or output."""
    if term == "position":
        return -overlap(at_least_float32(record.weights), record.layout.queries)
    if term == "subspace":
        return -agreement(at_least_float32(record.values), record.layout.keys)
    return -agreement(at_least_float32(record.outputs), record.layout.queries)


class Disagreement(Method):
    """The method: λ·D is taken off the loss."""

    class Options(Settings):
        """The poster gives no λ; 1 is that of Li et al."""

        term: Literal["subspace", "position", "output"] = Field(description="values, attention weights or head outputs")
        weight: float = Field(1.0, gt=0, description="λ")
        kinds: tuple[Kind, ...] = Field(ALL_KINDS, min_length=1, description="kinds of attention that it is taken over")

    options: Options

    def required_records(self) -> RequiredRecords:
        """Weights only where they are compared."""
        return "weights" if self.options.term == "position" else "heads"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """−λ·D for each prediction: summed over sentences, as their log-likelihoods are, mean over modules.

        Raises:
            TrainingError: the model has no attention of these kinds.
        """
        chosen = of_kinds(records, self.options.kinds)
        each = torch.stack([disagreement(record, self.options.term) for record in chosen])  # (modules, B)
        return -self.options.weight * each.mean(0).sum() * (distributed.world() / count)
