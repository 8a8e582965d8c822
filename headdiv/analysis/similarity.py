"""How similar heads are: measures on their weights and outputs, each with its definition, range and source.

All measures of a trained model are taken in one pass over a split. Only sums over its words are kept, in float64: of
functions of one word's heads, and of products of its outputs. Sums of several ranks add up.

Letters: T words, H heads, K head width, L keys, P pairs of different heads, M columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headdiv.core import distributed
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.nn.packing import pad_rows
from headdiv.nn.records import HeadRecord, attention_modules
from headdiv.nn.sizes import AttentionSpec

ENOUGH = 20_000  # queries of each module that the measures are taken over
BLOCK = 1 << 17  # numbers of all pairs processed at a time, so that they stay in the processor's cache
MOST = 1 << 22  # numbers of all pairs in a batch; where there are more, only every second, third, … word is taken
ROUNDING = 1e-12  # a variance below this share of the mean square is the rounding error of a variance of 0
BY_HEAD = ("confidence", "entropy")
BY_PAIR = ("cosine", "l2", "correlation", "cka", "js")

# ---- columns of a matrix


def column_cosines(w: Tensor) -> Tensor:
    """Cosine between every two columns of w (k, M) -> (M, M), in [−1, 1]; the identity for principal components.

    What DEACON's Figure 6 calls the correlation matrix of the PCA layer's weights: the paper compares it
    with the identity, which is the matrix of cosines for orthonormal columns (Pearson's correlation, which
    subtracts each column's mean, is not zero between orthonormal columns). A zero column gives zeros.
    """
    unit = w / w.norm(dim=0).clamp(min=torch.finfo(w.dtype).tiny)
    return unit.T @ unit


def column_correlations(w: Tensor) -> Tensor:
    """Pearson's correlation between every two columns of w (k, M) -> (M, M), in [−1, 1]."""
    return column_cosines(w - w.mean(dim=0))


def mean_off_diagonal(matrix: Tensor) -> float:
    """Mean absolute value off the diagonal of (M, M): 0 for the identity, and where M = 1."""
    m = matrix.shape[0]
    if m < 2:
        return 0.0
    total = matrix.abs().sum() - matrix.diagonal().abs().sum()
    return float(total / (m * (m - 1)))


# ---- what heads did with words


class Entropy(torch.autograd.Function):
    """−Σ p log p, with one logarithm for both passes and a finite gradient where a weight is 0."""

    @staticmethod
    def forward(ctx: Any, p: Tensor) -> Tensor:
        """(…, S) -> (…)."""
        log = p.clamp_min(torch.finfo(p.dtype).tiny).log_()
        ctx.save_for_backward(log)
        return -torch.einsum("...s,...s->...", p, log)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """(…) -> (…, S)."""
        (log,) = ctx.saved_tensors
        return (log + 1).mul_(-grad.unsqueeze(-1))


def entropies(weights: Tensor) -> Tensor:
    """Entropy of each query's weights in nats, 0 to log S: (…, S) -> (…)."""
    return Entropy.apply(weights)


@dataclass(frozen=True)
class Observed:
    """What the heads did with one batch.

    Attributes:
        records: of each attention module.
        special_tokens: by kind of attention, or by module ("encoder 1"), (T,) queries and (T',) keys: True where
            a row is a special token.
        words: by kind of attention, (T,) index of the word that each query stands for.
    """

    records: list[HeadRecord]
    special_tokens: dict[str, tuple[Tensor, Tensor]]
    words: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Words:
    """What the heads of one module did with the words of a batch; queries that are special tokens are left out.

    Attributes:
        weights: (T, H, L) of the keys of each query's own sentence, L of the longest; the rest is 0.
        counted: (T, H, L) the same, 0 for keys that are special tokens.
        outputs: (T, H, K), before the output stage.
    """

    weights: Tensor
    counted: Tensor
    outputs: Tensor


def words_of(record: HeadRecord, special_queries: Tensor | None = None, special_keys: Tensor | None = None) -> Words:
    """What the heads of a record did with words, independent of packing.

    Args:
        record: with attention weights.
        special_queries: (T,) which queries are special tokens; None: none are.
        special_keys: (T',) which keys are special tokens; None: none are.
    """
    weights, outputs = at_least_float32(record.weights_on_own_keys()), at_least_float32(record.outputs)
    counted = weights
    if special_keys is not None:
        special = pad_rows(special_keys, record.layout.keys)[record.layout.queries.sentence_of_row()]  # (T, L)
        counted = weights.masked_fill(special[:, None], 0.0)
    if special_queries is not None:
        weights, counted, outputs = (x[~special_queries] for x in (weights, counted, outputs))
    return Words(weights, counted, outputs)


# ---- measures

HeadSums = dict[str, Tensor]  # over words, float64; "queries" is how many words


@dataclass
class HeadComparison:
    """Measures of one module's heads, over its queries (words; special tokens are left out).

    Confidence, entropy and the Jensen–Shannon distance assume weights that are shares. The heads of a mixture are its
    slots: head i of a query is the i-th of the heads that were chosen for it.

    ``Z_i`` below is the matrix of a head's outputs, (T, K), minus the mean of each column. A head whose outputs never
    change has no variance: its correlations and similarities are 0, even with itself.

    Attributes:
        queries: how many words they are taken over.
        confidence: (H,) mean of the largest weight that a head gives a word, in (0, 1] (Voita et al. 2019; Eq. 5 of
            Azov & Landau). The weight of </s> does not count.
        entropy: (H,) mean over words of the weights' entropy, in nats, from 0 (all on one key) to the logarithm of the
            number of keys.
        cosine: (H, H) mean over words of the cosine of two heads' outputs, in [−1, 1].
        l2: (H, H) mean over words of the Euclidean distance of two heads' outputs, from 0 without bound.
        correlation: (H, H) Pearson's correlation of the numbers of Z_i with those in the same positions of Z_j, in
            [−1, 1]: Σ Z_i ∘ Z_j / (‖Z_i‖ ‖Z_j‖). What DEACON's direct architecture decorrelates; it depends on how
            each head numbers its dimensions.
        cka: (H, H) linear centred kernel alignment, ‖Z_jᵀ Z_i‖² / (‖Z_iᵀ Z_i‖ ‖Z_jᵀ Z_j‖) in Frobenius norms, in
            [0, 1] (Kornblith et al. 2019). Rotating or scaling a head's outputs changes nothing: 1 is the same
            information, however it is laid out. Between independent heads it is about K / T, not 0.
        js: (H, H) mean over words of the Jensen–Shannon distance of two heads' weights, in [0, 1]: the square root,
            which is a metric (Endres & Schindelin 2003), of the divergence (Lin 1991) with logarithms to base 2.
            0: the same weights, including that of </s>; 1: no key in common. In long windows a sample of evenly
            spaced words stands for all, see `MOST`.
        effective_rank: e to the power of the entropy of σ / Σσ, σ the singular values of (Z_1 … Z_H), the outputs of
            all heads side by side, (T, H·K) (Roy & Vetterli 2007). From 1 (all vary along one direction) to H·K, or
            T − 1 where that is less; 0 where nothing varies.
    """

    queries: int
    confidence: Tensor
    entropy: Tensor
    cosine: Tensor
    l2: Tensor
    correlation: Tensor
    cka: Tensor
    js: Tensor
    effective_rank: float

    def average_l2(self) -> Tensor:
        """(H,) average distance of a head from the others (Eq. 6 of Azov & Landau); 0 for a single head."""
        return self.l2.sum(1) / max(len(self.l2) - 1, 1)


@torch.no_grad()
def compare_heads(
    observed: Iterable[Observed], model: nn.Module | None = None, enough: float | None = None
) -> list[tuple[AttentionSpec, HeadComparison]]:
    """Measures of every module, in the order of a forward pass, over the words that all ranks see.

    Args:
        observed: what the heads did, batch by batch; it is read no further than is needed.
        model: whose heads these are. Needed only with several ranks, one of which may see no batch.
        enough: queries of each module on each rank after which no batch is read, by default `ENOUGH`.
    """
    enough = ENOUGH if enough is None else enough
    pooled: dict[AttentionSpec, HeadSums] = {}
    for module in [] if model is None else attention_modules(model):
        H, K, like = module.head_slots, module.head_width, next(module.parameters())
        no_weights = like.new_zeros(0, H, 1)
        pooled[module.slot_spec] = all_sums(Words(no_weights, no_weights, like.new_zeros(0, H, K)))
    for batch in observed:
        for record in batch.records:
            special, spec = batch.special_tokens, record.spec
            with full_precision(record.outputs):
                sums = all_sums(words_of(record, *special.get(spec.name, special.get(spec.kind, (None, None)))))
            if spec in pooled:
                sums = {name: value + sums[name] for name, value in pooled[spec].items()}
            pooled[spec] = sums
        if pooled and min(float(sums["queries"]) for sums in pooled.values()) >= enough:
            break
    totals = {spec: {name: distributed.total(x).cpu() for name, x in sums.items()} for spec, sums in pooled.items()}
    return [(spec, _comparison(sums)) for spec, sums in totals.items()]


def all_sums(words: Words) -> HeadSums:
    """What `HeadComparison` is computed from, summed over words; for no words, zeros of the same shapes."""
    outputs, flat = words.outputs, words.outputs.flatten(1).double()  # (T, H·K); float64: differences of large sums
    T, H, L = words.weights.shape
    unit = torch.nn.functional.normalize(outputs, dim=-1)
    of_words = {
        "confidence": words.counted.amax(-1),  # (T, H)
        "entropy": entropies(words.weights),  # (T, H)
        "cosine": unit @ unit.transpose(1, 2),  # (T, H, H)
        "l2": torch.cdist(outputs, outputs, compute_mode="donot_use_mm_for_euclid_dist"),  # (T, H, H)
    }
    sample = words.weights[:: max(1, math.ceil(T * H * (H - 1) // 2 * L / MOST))]
    return {
        "queries": outputs.new_tensor(T, dtype=torch.float64),
        **{name: x.sum(0, dtype=torch.float64) for name, x in of_words.items()},
        "js": js_sum(sample) * (T / max(1, len(sample))),  # each stands for its neighbours
        "outputs": flat.sum(0),
        "products": flat.T @ flat,
    }


def js_sum(weights: Tensor) -> Tensor:
    """Jensen–Shannon distances of every two heads' weights, summed over words: (T, H, L) -> (H, H), float64.

    With m = (p + q) / 2 and d = (p − q) / (p + q) the divergence in nats is Σ m·(½ log(1 − d²) + d·artanh d). Unlike
    a difference of entropies, this keeps its digits where p and q are nearly equal.
    """
    H, L = weights.shape[1:]
    first, second = torch.triu_indices(H, H, 1, device=weights.device)
    sums = weights.new_zeros(len(first), dtype=torch.float64)
    limits = torch.finfo(weights.dtype)
    for block in weights.split(max(1, BLOCK // max(1, len(first) * L))):
        p, q = block.index_select(1, first), block.index_select(1, second)  # (t, P, L)
        total = p + q
        d = (p - q).div_(total.clamp_min(limits.tiny)).clamp_(limits.eps - 1, 1 - limits.eps)  # artanh 1 is infinite
        nats = torch.log1p(-d * d).mul_(0.5).addcmul_(d, torch.atanh(d)).mul_(total).sum(-1) / 2  # (t, P)
        sums += (nats / math.log(2)).clamp_(0, 1).sqrt_().sum(0, dtype=torch.float64)
    matrix = sums.new_zeros(H, H)
    matrix[first, second] = sums
    return matrix + matrix.T


def _comparison(sums: HeadSums) -> HeadComparison:
    queries = int(sums["queries"])
    means = {name: x / max(queries, 1) for name, x in sums.items() if name != "queries"}
    mean, products, H = means.pop("outputs"), means.pop("products"), len(means["confidence"])
    covariance = products - torch.outer(mean, mean)  # (H·K, H·K)
    varies = covariance.diagonal() > ROUNDING * products.diagonal()
    covariance = covariance * torch.outer(varies, varies)
    blocks = covariance.view(H, -1, H, len(mean) // H).transpose(1, 2)  # (H, H, K, K)
    shared = blocks.diagonal(dim1=2, dim2=3).sum(-1)  # (H, H)
    aligned = blocks.square().sum((2, 3))  # (H, H)
    return HeadComparison(
        queries=queries,
        **means,
        correlation=_normalised(shared).clamp_(-1, 1),
        cka=_normalised(aligned).clamp_(0, 1),
        effective_rank=effective_rank(covariance),
    )


def _normalised(products: Tensor) -> Tensor:
    """Pairwise products, divided by the lengths of both: (H, H) -> (H, H); 0 where a length is 0."""
    lengths = products.diagonal().clamp_min(0).sqrt()
    scale = torch.where(lengths > 0, 1 / lengths, torch.zeros_like(lengths))
    return products * torch.outer(scale, scale)


def effective_rank(covariance: Tensor) -> float:
    """Effective rank of rows whose covariance is a multiple of this, (n, n): 1 to n; 0 for zeros, NaN if not finite."""
    if not covariance.isfinite().all():
        return math.nan
    sigma = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt()
    if not sigma.any():
        return 0.0
    share = sigma / sigma.sum()
    return math.exp(-float(torch.xlogy(share, share).sum()))


# ---- summaries


def between_heads(matrix: Tensor) -> float:
    """Mean over the pairs of different heads: (H, H); NaN for a single head."""
    H = len(matrix)
    return float(matrix.sum() - matrix.trace()) / (H * (H - 1)) if H > 1 else math.nan


def measures_by_name(found: Iterable[tuple[AttentionSpec, HeadComparison]]) -> dict[str, dict[str, Any]]:
    """Measures as JSON, by name ("encoder 1", "cross 2"), with six decimals."""
    return {
        spec.name: {
            "queries": measured.queries,
            **{name: rounded(getattr(measured, name).tolist()) for name in (*BY_HEAD, *BY_PAIR)},
            "effective_rank": rounded(measured.effective_rank),
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


def rounded(value: Any) -> Any:
    """A number with six decimals; of a list, however nested, each."""
    return [rounded(x) for x in value] if isinstance(value, list) else round(value, 6)
