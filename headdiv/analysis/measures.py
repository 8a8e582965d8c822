"""How alike the heads of a module are: all measures of a trained model in one pass over a split.

Nothing of the pass is kept but sums over its words, in float64: of functions of one word's heads, and of products of
its outputs. Sums of several ranks add up.

Letters: T words, H heads, K head width, L keys, P pairs of different heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.analysis.diversity import HeadSums, Measured, Seen, Words, basic_sums, means, pooled_sums
from headdiv.nn.attention import AttentionSpec

BLOCK = 1 << 17  # numbers of all pairs that are worked on at a time, so that they stay in the processor's cache
MOST = 1 << 22  # numbers of all pairs in a batch; where there are more, only every second, third, … word is taken
STILL = 1e-12  # a variance below this share of the mean square is what rounding leaves of none


@dataclass
class HeadComparison(Measured):
    """`Measured`, and how alike two heads are in what they say over the whole split, and in where they look.

    ``Z_i`` below is the matrix of a head's outputs, (T, K), with the mean of each column taken off. A head whose
    outputs never change has no variance: its correlations and similarities are 0, with itself too.

    Attributes:
        correlation: (H, H) Pearson's correlation of the numbers of Z_i with those at the same places of Z_j, in
            [−1, 1]: Σ Z_i ∘ Z_j / (‖Z_i‖ ‖Z_j‖). What DEACON's direct architecture decorrelates; it depends on how
            each head numbers its dimensions.
        cka: (H, H) linear centred kernel alignment, ‖Z_jᵀ Z_i‖² / (‖Z_iᵀ Z_i‖ ‖Z_jᵀ Z_j‖) in Frobenius norms, in
            [0, 1] (Kornblith et al. 2019). Rotating a head's outputs or scaling them changes nothing: 1 is the same
            information, however it is laid out. Between independent heads it is about K / T, not 0.
        js: (H, H) mean over words of the Jensen–Shannon distance of two heads' weights, in [0, 1]: the square root,
            which is a metric (Endres & Schindelin 2003), of the divergence (Lin 1991) with logarithms to base 2.
            0: they look at the same keys, </s> among them; 1: at none in common. Of long windows a sample of evenly
            spaced words stands for all, see `MOST`.
        effective_rank: e to the power of the entropy of σ / Σσ, σ the singular values of (Z_1 … Z_H), the outputs of
            all heads side by side, (T, H·K) (Roy & Vetterli 2007). From 1 (all vary along one direction) to H·K, or
            T − 1 where that is less; 0 where nothing varies.
    """

    correlation: Tensor
    cka: Tensor
    js: Tensor
    effective_rank: float


def compare_heads(
    observed: Iterable[Seen], model: nn.Module | None = None
) -> list[tuple[AttentionSpec, HeadComparison]]:
    """All measures of every module, in the order of a forward pass; read as by `measure_heads`.

    Args:
        observed: what the heads did, batch by batch, with attention weights.
        model: whose heads these are. Needed with several ranks only.
    """
    return [(spec, _compared(sums)) for spec, sums in pooled_sums(observed, all_sums, model)]


def all_sums(words: Words) -> HeadSums:
    """What `HeadComparison` is made of, summed over words."""
    outputs = words.outputs.flatten(1).double()  # (T, H·K): differences of large sums are taken of it
    T, H, L = words.weights.shape
    sample = words.weights[:: max(1, math.ceil(T * H * (H - 1) // 2 * L / MOST))]
    js = js_sum(sample) * (T / max(1, len(sample)))  # each stands for its neighbours
    return basic_sums(words) | {"js": js, "outputs": outputs.sum(0), "products": outputs.T @ outputs}


def js_sum(weights: Tensor) -> Tensor:
    """Jensen–Shannon distances of every two heads' weights, summed over words: (T, H, L) -> (H, H), float64.

    With m = (p + q) / 2 and d = (p − q) / (p + q) the divergence in nats is Σ m·(½ log(1 − d²) + d·artanh d). Unlike
    a difference of entropies that keeps its digits where p and q are nearly equal.
    """
    H, L = weights.shape[1:]
    one, other = torch.triu_indices(H, H, 1, device=weights.device)
    sums = weights.new_zeros(len(one), dtype=torch.float64)
    limits = torch.finfo(weights.dtype)
    for block in weights.split(max(1, BLOCK // max(1, len(one) * L))):
        p, q = block.index_select(1, one), block.index_select(1, other)  # (t, P, L)
        both = p + q
        d = (p - q).div_(both.clamp_min(limits.tiny)).clamp_(limits.eps - 1, 1 - limits.eps)  # artanh 1 is infinite
        nats = torch.log1p(-d * d).mul_(0.5).addcmul_(d, torch.atanh(d)).mul_(both).sum(-1) / 2  # (t, P)
        sums += (nats / math.log(2)).clamp_(0, 1).sqrt_().sum(0, dtype=torch.float64)
    matrix = sums.new_zeros(H, H)
    matrix[one, other] = sums
    return matrix + matrix.T


def _compared(sums: HeadSums) -> HeadComparison:
    told = means(sums)
    mean, products, H = told.pop("outputs"), told.pop("products"), len(told["confidence"])
    covariance = products - torch.outer(mean, mean)  # (H·K, H·K)
    moves = covariance.diagonal() > STILL * products.diagonal()
    covariance = covariance * torch.outer(moves, moves)
    blocks = covariance.view(H, -1, H, len(mean) // H).transpose(1, 2)  # (H, H, K, K)
    shared = blocks.diagonal(dim1=2, dim2=3).sum(-1)  # (H, H)
    aligned = blocks.square().sum((2, 3))  # (H, H)
    return HeadComparison(
        **told,
        correlation=_normalised(shared).clamp_(-1, 1),
        cka=_normalised(aligned).clamp_(0, 1),
        effective_rank=effective_rank(covariance),
    )


def _normalised(products: Tensor) -> Tensor:
    """Products of every two things, divided by the lengths of both: (H, H) -> (H, H); 0 where one has none."""
    lengths = products.diagonal().clamp_min(0).sqrt()
    scale = torch.where(lengths > 0, 1 / lengths, torch.zeros_like(lengths))
    return products * torch.outer(scale, scale)


def effective_rank(covariance: Tensor) -> float:
    """That of centred rows, from their covariance up to a factor, (n, n): 1 to n; 0 for zeros. See `HeadComparison`."""
    sigma = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt()
    if not sigma.any():
        return 0.0
    share = sigma / sigma.sum()
    return math.exp(-float(torch.xlogy(share, share).sum()))


def between_heads(matrix: Tensor) -> float:
    """Mean over the pairs of different heads: (H, H); NaN for a single head."""
    H = len(matrix)
    return float(matrix.sum() - matrix.trace()) / (H * (H - 1)) if H > 1 else math.nan


# ---- as they are kept and shown

BY_HEAD = ("confidence", "entropy")
BY_PAIR = ("cosine", "l2", "correlation", "cka", "js")


def by_place(found: Iterable[tuple[AttentionSpec, HeadComparison]]) -> dict[str, dict[str, Any]]:
    """Measures as JSON, by place ("encoder 1", "cross 2"), with six decimals."""
    return {
        spec.place: {
            "queries": measured.queries,
            **{name: _rounded(getattr(measured, name).tolist()) for name in (*BY_HEAD, *BY_PAIR)},
            "effective_rank": _rounded(measured.effective_rank),
        }
        for spec, measured in found
    }


def averages(measured: HeadComparison) -> dict[str, float]:
    """One number for each measure of a module: means over heads, and over the pairs of different heads."""
    return {
        "queries": measured.queries,
        "heads": len(measured.confidence),
        **{name: float(getattr(measured, name).mean()) for name in BY_HEAD},
        **{name: between_heads(getattr(measured, name)) for name in BY_PAIR},
        "effective_rank": measured.effective_rank,
    }


def _rounded(value: Any) -> Any:
    return [_rounded(x) for x in value] if isinstance(value, list) else round(value, 6)
