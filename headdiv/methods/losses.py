"""Losses that push the heads of a module apart: λ times how different they are is subtracted from the loss.

How different the heads are, for each sentence of a batch:

    disagreement    −1/H² Σ_i Σ_j cos(φ_i, φ_j); weights: −1/H² Σ_i Σ_j |A^i ⊙ A^j|, here for each query: divided by N
    orthogonality   −1/(H(H − 1)) Σ_{i≠j} cos²(φ_i, φ_j)
    dpp             det L, L_ij = q_i cos(φ_i, φ_j) q_j, q_i = 1 / (1 + entropy(A^i))
    hsic            −1/(H(H − 1)) Σ_{i≠j} CKA(X_i, X_j)

φ_i is the whole matrix of head i in the sentence, by the option ``term``: its values V^i (S, K), attention weights
A^i (N, S) or outputs O^i (N, K); cosines are those of matrices taken as vectors. What is subtracted is the mean over
modules, summed over sentences like log-likelihoods and divided by the batch's predictions. A head that is 0 throughout
a sentence has no direction: its cosines are 0. Without a sentence (a rank may have none) the term is 0.

Letters: B sentences, T rows, R windows, N query slots, S key slots, H heads, K head width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headdiv.analysis.similarity import entropies
from headdiv.core import distributed
from headdiv.core.errors import TrainingError
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.methods.base import Method, MethodOptions, RequiredRecords, groups, of_kinds
from headdiv.methods.registry import register
from headdiv.nn.dot_product import out_of_windows
from headdiv.nn.packing import PackedRows
from headdiv.nn.records import HeadRecord
from headdiv.nn.sizes import ATTENTION_KINDS, Kind

Term = Literal["subspace", "position", "output"]


# ---- what the losses share


class HeadLoss(Method, ABC):
    """Subtracts from the loss λ times how different the heads of a module are."""

    class Options(Method.Options):
        """No paper gives a λ for DPP; 1 is that of Li et al. for disagreement."""

        repeatable = True

        term: Term = Field(description="what is compared: values, attention weights or head outputs")
        weight: float = Field(1.0, gt=0, description="λ")
        kinds: tuple[Kind, ...] = Field(
            ATTENTION_KINDS, min_length=1, description="kinds of attention that it is taken over"
        )

        @property
        def needs_weights(self) -> bool:
            return self.term == "position"

    options: Options

    def required_records(self) -> RequiredRecords:
        return "weights" if self.options.needs_weights else "heads"

    @abstractmethod
    def differences(self, records: list[HeadRecord]) -> Tensor:
        """How different the heads of each module are in each sentence: (modules, B), for modules of equal H and B."""

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """−λ times `differences` per prediction: summed over sentences, averaged over modules.

        Raises:
            TrainingError: the model has no attention of these kinds, or the records lack weights that are compared.
        """
        chosen = of_kinds(records, self.options.kinds)
        if self.options.needs_weights and any(record.weights is None for record in chosen):
            raise TrainingError("found records without attention weights; expected record_heads(model, weights=True)")
        total = 0.0
        for group in groups(chosen, lambda record: (record.outputs.shape[1], len(record.layout.queries.lengths))):
            with full_precision(group[0].outputs):  # other libraries' loops call this under autocast
                differences = self.differences(group)  # (modules, B)
            total = total + differences.mean(0).sum() * (len(group) / len(chosen))
        return -self.options.weight * total * (distributed.world() / count)


def no_values_to_compare(other: MethodOptions, name: str, others_name: str) -> str | None:
    """The conflict between method ``name``, whose heads all have the same values, and a loss that compares values."""
    if isinstance(other, HeadLoss.Options) and other.term == "subspace":
        return f"{others_name!r} compares the heads' values, which all experts of {name!r} share; expected another term"
    return None


def by_sentence(rows: Tensor, layout: PackedRows) -> Tensor:
    """Sums over the rows of each sentence: (T, …) -> (B, …)."""
    sums = rows.new_zeros(len(layout.lengths), *rows.shape[1:])
    return sums.index_add(0, layout.sentence_of_row(), rows)


def inverse_root(squares: Tensor) -> Tensor:
    """1/√ of squared norms, any shape; 0 for a norm below the precision, whose vector counts as zero.

    Its direction would be noise, and its gradient huge.
    """
    least = torch.finfo(squares.dtype).eps ** 2
    return torch.where(squares > least, squares.clamp_min(least).rsqrt(), 0.0)


def similarity(x: Tensor, layout: PackedRows) -> Tensor:
    """cos(φ_i, φ_j) of each sentence's heads, whole matrices: (T, H, K) -> (B, H, H).

    The products of a sentence are the sums of its rows' products, and their diagonal holds the squared norms.
    """
    products = by_sentence(x @ x.transpose(1, 2), layout)  # (B, H, H)
    squares = products.diagonal(dim1=1, dim2=2)  # (B, H)
    inverse = inverse_root(squares)
    return products * inverse.unsqueeze(1) * inverse.unsqueeze(2)


def similarities(record: HeadRecord, term: Term) -> Tensor:
    """`similarity` of what the term compares: (B, H, H)."""
    queries = record.layout.queries
    if term == "subspace":
        return similarity(at_least_float32(record.values), record.layout.keys)
    if term == "position":
        return similarity(out_of_windows(at_least_float32(record.weights), queries), queries)
    return similarity(at_least_float32(record.outputs), queries)


# ---- disagreement


def agreement(x: Tensor, layout: PackedRows) -> Tensor:
    """1/H² Σ_i Σ_j cos(x^i, x^j) of each sentence: (T, H, K) -> (B,).

    The double sum of products is the square of a sum, so no pairs are formed.
    """
    inverse = inverse_root(by_sentence(x.square().sum(-1), layout))  # (B, H), of norms over whole sentences
    units = x * inverse[layout.sentence_of_row()].unsqueeze(-1)
    return by_sentence(units.sum(1).square().sum(-1), layout) / x.shape[1] ** 2


def overlap(weights: Tensor, layout: PackedRows) -> Tensor:
    """1/H² Σ_i Σ_j |A^i ⊙ A^j| for each query, the mean over a sentence: (R, H, N, S) -> (B,)."""
    H = weights.shape[1]
    overlaps = out_of_windows(weights.sum(1, keepdim=True).square().sum(-1), layout)  # (T, 1)
    return by_sentence(overlaps, layout).squeeze(1) / (H**2 * layout.lengths.clamp_min(1))


def disagreement(record: HeadRecord, term: Term) -> Tensor:
    """D of each sentence: (B,)."""
    if term == "position":
        return -overlap(at_least_float32(record.weights), record.layout.queries)
    if term == "subspace":
        return -agreement(at_least_float32(record.values), record.layout.keys)
    return -agreement(at_least_float32(record.outputs), record.layout.queries)


@register
class Disagreement(HeadLoss):
    """Disagreement regularisation (Li et al. 2018, as the DPP poster gives it).

    D is between −1 and 0 (a mean of all cosines, i = j included, is a squared length).
    """

    name = "disagreement"

    def differences(self, records: list[HeadRecord]) -> Tensor:
        return torch.stack([disagreement(record, self.options.term) for record in records])


# ---- orthogonality


@register
class Orthogonality(HeadLoss):
    """Squared cosines of pairs of heads (compare Lee et al. 2019, arXiv 1910.04500).

    0 where all heads are orthogonal. Disagreement takes the cosines themselves, so it is largest for heads that point
    in opposite directions; here they count as equal.
    """

    name = "orthogonality"

    def differences(self, records: list[HeadRecord]) -> Tensor:
        squares = torch.stack([similarities(record, self.options.term).square() for record in records])
        H = squares.shape[-1]
        trace = squares.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (trace - squares.sum((-2, -1))) / max(H * (H - 1), 1)


# ---- DPP


def quality(weights: Tensor, layout: PackedRows) -> Tensor:
    """q of each sentence's heads, in (0, 1], entropy in nats, mean over the queries: (R, H, N, S) -> (B, H)."""
    entropy = out_of_windows(entropies(weights), layout)  # (T, H)
    return 1 / (1 + by_sentence(entropy, layout) / layout.lengths.clamp_min(1).unsqueeze(1))


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
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """(…) -> (…, H, H)."""
        values, vectors = ctx.saved_tensors
        H = values.shape[-1]
        factors = values.unsqueeze(-2).expand(*values.shape, H)
        diagonal = torch.eye(H, dtype=torch.bool, device=values.device)
        products = factors.masked_fill(diagonal, 1.0).prod(-1)  # (…, H) of all but the i-th
        return grad[..., None, None] * (vectors * products.unsqueeze(-2)) @ vectors.transpose(-2, -1)


def kernel(record: HeadRecord, term: Term) -> Tensor:
    """L of each sentence: (B, H, H)."""
    q = quality(at_least_float32(record.weights), record.layout.queries)  # (B, H)
    return q.unsqueeze(2) * similarities(record, term) * q.unsqueeze(1)


@register
class Dpp(HeadLoss):
    """DPP regularisation (Kim & Shin, poster): the heads of a module as items of a determinantal point process.

    Heads that attend sharply and differ from each other span a large volume. det L is in [0, 1]; it is 0 where two
    heads are parallel. (The poster writes sums over i and j into φ_i·φ_j, which would make all of these equal and det L
    zero; they are left out here.)
    """

    name = "dpp"

    class Options(HeadLoss.Options):
        """Those of every loss on heads; the quality of a head is computed from its weights."""

        label = "DPP"

        @property
        def needs_weights(self) -> bool:
            return True

    def differences(self, records: list[HeadRecord]) -> Tensor:
        """det L: (modules, B)."""
        L = torch.stack([kernel(record, self.options.term) for record in records])  # (modules, B, H, H)
        return GramDeterminant.apply(L)


# ---- HSIC


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


@register
class Hsic(HeadLoss):
    """HSIC regularisation: the dependence of pairs of heads (Gretton et al. 2005; for heads Yun et al. 2021).

    With the linear kernel HSIC is ‖X_iᵀ X_j‖²_F / (n − 1)², X_i (n, K) the centred rows of head i. Normalised it is
    linear CKA (Kornblith et al. 2019), ‖X_iᵀ X_j‖²_F / (‖X_iᵀ X_i‖_F ‖X_jᵀ X_j‖_F), the measure that results report, so
    that a head cannot satisfy it by becoming small. Rows are all those of a batch, on all ranks: a sentence has fewer
    than a head has dimensions, and with so few rows any two heads depend on each other.
    """

    name = "hsic"

    class Options(HeadLoss.Options):
        """Attention weights are not rows of a fixed width, so they cannot be compared."""

        label = "HSIC"
        term: Literal["subspace", "output"] = Field(description="what is compared: values or head outputs")

    options: Options

    def differences(self, records: list[HeadRecord]) -> Tensor:
        by_module = []
        for record in records:
            cka = linear_cka(at_least_float32(record.values if self.options.term == "subspace" else record.outputs))
            H = len(cka)
            D = (cka.trace() - cka.sum()) / max(H * (H - 1), 1)
            by_module.append(D.expand(len(record.layout.queries.lengths)))
        return torch.stack(by_module)
