"""How different heads are: measures on weights and outputs, each with its definition, range and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headdiv.core import distributed
from headdiv.core.precision import at_least_float32
from headdiv.nn.attention import AttentionSpec, HeadRecord, attention_modules
from headdiv.nn.packing import Side


def column_cosines(w: Tensor) -> Tensor:
    """Cosine between every two columns of w (k, M) -> (M, M), in [−1, 1]; the identity for principal components.

    What DEACON's Figure 6 calls the correlation matrix of the PCA layer's weights: the paper compares it
    with the identity, which orthonormal columns have for their cosines (Pearson's correlation, with the
    mean of each column taken off, is not zero between orthonormal columns). A zero column gives zeros.
    """
    unit = w / w.norm(dim=0).clamp(min=torch.finfo(w.dtype).tiny)
    return unit.T @ unit


def column_correlations(w: Tensor) -> Tensor:
    """Pearson's correlation between every two columns of w (k, M) -> (M, M), in [−1, 1]."""
    return column_cosines(w - w.mean(dim=0))


def mean_off_diagonal(matrix: Tensor) -> float:
    """Mean absolute value off the diagonal of (M, M): 0 for the identity; 0 too where M = 1."""
    m = matrix.shape[0]
    if m < 2:
        return 0.0
    total = matrix.abs().sum() - matrix.diagonal().abs().sum()
    return float(total / (m * (m - 1)))


# ---- what heads do


def query_rows(x: Tensor, side: Side) -> Tensor:
    """(R, H, N, …) in windows -> (T, H, …), a row for each query; empty slots are dropped."""
    rows = x.transpose(1, 2).flatten(0, 1)  # (R·N, H, …)
    return rows if side.full else rows.index_select(0, side.slots)


class Entropy(torch.autograd.Function):
    """−Σ p log p, with one logarithm for both passes and a finite gradient where a weight is 0."""

    @staticmethod
    def forward(ctx: Any, p: Tensor) -> Tensor:
        """(…, S) -> (…)."""
        log = p.clamp_min(torch.finfo(p.dtype).tiny).log_()
        ctx.save_for_backward(log)
        return -torch.einsum("...s,...s->...", p, log)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """(…) -> (…, S)."""
        (log,) = ctx.saved_tensors
        return (log + 1).mul_(-grad.unsqueeze(-1))


def entropies(weights: Tensor) -> Tensor:
    """Entropy of each query's weights in nats, 0 to log S: (…, S) -> (…)."""
    return Entropy.apply(weights)


ENOUGH = 20_000  # queries of each module that the measures are taken over


class Seen(Protocol):
    """What the heads did with one batch: see `headdiv.methods.base.Observed`."""

    records: list[HeadRecord]
    special_tokens: dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Words:
    """What the heads of one module did with the words of a batch; queries that are marks are left out.

    Attributes:
        weights: (T, H, L) of the keys of each query's own sentence, L of the longest; what else is there is 0.
        counted: (T, H, L) the same, 0 for keys that are marks.
        outputs: (T, H, K), before the output stage.
    """

    weights: Tensor
    counted: Tensor
    outputs: Tensor


HeadSums = dict[str, Tensor]  # over words, float64; "queries" is how many words


@dataclass
class Measured:
    """Measures of one module's heads, means over its queries (words; marks such as </s> are left out).

    Of a mixture of heads they are its slots: head i of a query is the i-th of the heads that were chosen for it.

    Attributes:
        queries: how many words they are taken over.
        confidence: (H,) mean of the largest weight that a head gives a word, in (0, 1] (Voita et al. 2019; Eq. 5 of
            Azov & Landau). The weight of </s> does not count.
        entropy: (H,) of the weights, in nats, from 0 (all on one key) to the logarithm of the number of keys.
        cosine: (H, H) of the outputs of two heads, in [−1, 1].
        l2: (H, H) Euclidean distance of the outputs of two heads, from 0 without bound.
    """

    queries: int
    confidence: Tensor
    entropy: Tensor
    cosine: Tensor
    l2: Tensor

    def average_l2(self) -> Tensor:
        """(H,) average distance of a head from the others (Eq. 6 of Azov & Landau); 0 for a single head."""
        return self.l2.sum(1) / max(len(self.l2) - 1, 1)


def measure_heads(observed: Iterable[Seen], model: nn.Module | None = None) -> list[tuple[AttentionSpec, Measured]]:
    """Measures of every module, in the order of a forward pass, over the first `ENOUGH` queries of each rank.

    Those that methods are steered by; `headdiv.analysis.measures` has more of them.

    Args:
        observed: what the heads did, batch by batch; it is read no further than is needed.
        model: whose heads these are. Needed with several ranks only, one of which may see no batch at all.
    """
    return [(spec, Measured(**means(sums))) for spec, sums in pooled_sums(observed, basic_sums, model)]


@torch.no_grad()
def pooled_sums(
    observed: Iterable[Seen], sums_of: Callable[[Words], HeadSums], model: nn.Module | None = None
) -> list[tuple[AttentionSpec, HeadSums]]:
    """Sums over the words that all ranks see, by module; arguments as in `measure_heads`.

    Args:
        observed: what the heads did, batch by batch.
        sums_of: the sums over a batch; of no words they are zeros of the same shapes.
        model: whose heads these are.
    """
    found: dict[AttentionSpec, HeadSums] = {}
    for module in [] if model is None else attention_modules(model):
        H, K, like = module.head_slots, module.head_width, next(module.parameters())
        found[module.slot_spec] = sums_of(
            Words(like.new_zeros(0, H, 1), like.new_zeros(0, H, 1), like.new_zeros(0, H, K))
        )
    for seen in observed:
        for record in seen.records:
            sums = sums_of(words_of(record, *seen.special_tokens.get(record.spec.kind, (None, None))))
            if record.spec in found:
                sums = {name: value + sums[name] for name, value in found[record.spec].items()}
            found[record.spec] = sums
        if min(float(sums["queries"]) for sums in found.values()) >= ENOUGH:
            break
    return [(spec, {name: distributed.total(x).cpu() for name, x in sums.items()}) for spec, sums in found.items()]


def words_of(record: HeadRecord, query_marks: Tensor | None = None, key_marks: Tensor | None = None) -> Words:
    """What the heads of a record did with words; packing leaves no trace in it.

    Args:
        record: with attention weights.
        query_marks: (T,) which queries are marks; None: none is.
        key_marks: (T',) which keys are marks; None: none is.
    """
    queries, keys = record.layout.queries, record.layout.keys
    weights = query_rows(at_least_float32(record.weights), queries)  # (T, H, S)
    S, L = weights.shape[2], int(keys.lengths.max())
    N = queries.sentences.shape[1]
    marks = None if key_marks is None else key_marks[keys.rows].view(-1, S)[queries.slots // N]  # (T, S)
    if L < S:
        # Slots of a sentence stand side by side. Where a line of L slots goes beyond them, the weights are 0.
        first = (keys.slots[keys.offsets()] % S).clamp(max=S - L)[queries.sentence_of_row()]  # (T,)
        slots = first[:, None] + torch.arange(L, device=first.device)  # (T, L)
        weights = weights.gather(2, slots[:, None].expand(-1, weights.shape[1], -1))
        marks = None if marks is None else marks.gather(1, slots)
    outputs = at_least_float32(record.outputs)
    counted = weights if marks is None else weights.masked_fill(marks[:, None], 0.0)
    if query_marks is not None:
        weights, counted, outputs = (x[~query_marks] for x in (weights, counted, outputs))
    return Words(weights, counted, outputs)


def basic_sums(words: Words) -> HeadSums:
    """What `Measured` holds, summed over words."""
    outputs = words.outputs
    unit = torch.nn.functional.normalize(outputs, dim=-1)
    sums = {
        "confidence": words.counted.amax(-1),  # (T, H)
        "entropy": entropies(words.weights),  # (T, H)
        "cosine": unit @ unit.transpose(1, 2),  # (T, H, H)
        "l2": torch.cdist(outputs, outputs, compute_mode="donot_use_mm_for_euclid_dist"),  # (T, H, H)
    }
    queries = outputs.new_tensor(len(outputs), dtype=torch.float64)
    return {"queries": queries, **{name: x.sum(0, dtype=torch.float64) for name, x in sums.items()}}


def means(sums: HeadSums) -> dict[str, Any]:
    """Sums over words divided by their number, which is kept as an integer; zeros where there were no words."""
    queries = int(sums["queries"])
    return {"queries": queries} | {name: x / max(queries, 1) for name, x in sums.items() if name != "queries"}
