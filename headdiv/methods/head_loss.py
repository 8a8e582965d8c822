"""What losses on a module's heads share: sums by sentence, and the terms that are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import query_rows
from headdiv.core import distributed
from headdiv.core.arguments import must_be_count
from headdiv.core.errors import TrainingError
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.methods.base import Method, RequiredRecords, groups, of_kinds
from headdiv.methods.options.losses import HeadLossOptions, Term
from headdiv.nn.packing import PackedLayout
from headdiv.nn.records import HeadRecord


def by_sentence(rows: Tensor, side: PackedLayout) -> Tensor:
    """Sums over the rows of each sentence: (T, …) -> (B, …)."""
    sums = rows.new_zeros(len(side.lengths), *rows.shape[1:])
    return sums.index_add(0, side.sentence_of_row(), rows)


def inverse_root(squares: Tensor) -> Tensor:
    """1/√ of squared norms, any shape; 0 for a norm below the precision, whose vector counts as zero.

    Its direction would be noise, and its gradient huge.
    """
    least = torch.finfo(squares.dtype).eps ** 2
    return torch.where(squares > least, squares.clamp_min(least).rsqrt(), 0.0)


def similarity(x: Tensor, side: PackedLayout) -> Tensor:
    """φ_i·φ_j of each sentence's heads, the cosines of whole matrices: (T, H, K) -> (B, H, H).

    The products of a sentence are the sums of its rows' products, and their diagonal holds the squared norms.
    """
    products = by_sentence(x @ x.transpose(1, 2), side)  # (B, H, H)
    squares = products.diagonal(dim1=1, dim2=2)  # (B, H)
    inverse = inverse_root(squares)
    return products * inverse.unsqueeze(1) * inverse.unsqueeze(2)


def similarities(record: HeadRecord, term: Term) -> Tensor:
    """`similarity` of what the term compares: (B, H, H)."""
    queries = record.layout.queries
    if term == "subspace":
        return similarity(at_least_float32(record.values), record.layout.keys)
    if term == "position":
        return similarity(query_rows(at_least_float32(record.weights), queries), queries)
    return similarity(at_least_float32(record.outputs), queries)


class HeadLoss(Method, ABC):
    """Subtracts from the loss λ times how different the heads of a module are."""

    Options = HeadLossOptions
    options: HeadLossOptions

    def required_records(self) -> RequiredRecords:
        """Weights only where they are compared."""
        return "weights" if self.options.needs_weights else "heads"

    @abstractmethod
    def differences(self, records: list[HeadRecord]) -> Tensor:
        """How different the heads of each module are in each sentence: (modules, B), for modules of equal H and B."""

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """−λ times `differences` per prediction: summed over sentences, like log-likelihoods, averaged over modules.

        Raises:
            TrainingError: the model has no attention of these kinds, or the records lack weights that are compared.
            ValueError: ``count`` is not a number of predictions.
        """
        must_be_count(count)
        chosen = of_kinds(records, self.options.kinds)
        if self.required_records() == "weights":
            for record in chosen:
                if record.weights is None:
                    raise TrainingError(
                        f"records: found none of the attention weights of {record.spec.place}, which the method "
                        "compares; expected record_heads(model, weights=True)"
                    )
        total = 0.0
        for alike in groups(chosen, lambda record: (record.outputs.shape[1], len(record.layout.queries.lengths))):
            with full_precision(alike[0].outputs):  # other libraries' loops call this under autocast
                each = self.differences(alike)  # (modules, B)
            total = total + each.mean(0).sum() * (len(alike) / len(chosen))
        return -self.options.weight * total * (distributed.world() / count)
