"""How different heads are: measures on weights and outputs, each with its definition, range and source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from headdiv import distributed
from headdiv.attention import AttentionSpec, HeadRecord, MultiHeadAttention
from headdiv.packing import Side


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


def attention_modules(model: nn.Module) -> list[MultiHeadAttention]:
    """Every attention module of a model, in the order of a forward pass."""
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision is made float32, for sums over many numbers; all else stays as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def query_rows(x: Tensor, side: Side) -> Tensor:
    """(R, H, N, …) in windows -> (T, H, …), a row for each query; empty slots are dropped."""
    return x.transpose(1, 2).flatten(0, 1).index_select(0, side.slots)


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
    marks: dict[str, tuple[Tensor, Tensor]]


@dataclass
class Measured:
    """Measures of one module's heads, means over its queries (words; marks such as </s> are left out).

    Attributes:
        queries: how many words they are taken over.
        confidence: (H,) mean of the largest weight that a head gives a word, in (0, 1] (Voita et al. 2019; Eq. 5 of
            Azov & Landau). The weight of </s> does not count.
        entropy: (H,) of the weights, in nats.
        cosine: (H, H) of the outputs of two heads, in [−1, 1].
        l2: (H, H) Euclidean distance of the outputs of two heads.
    """

    queries: int
    confidence: Tensor
    entropy: Tensor
    cosine: Tensor
    l2: Tensor

    def average_l2(self) -> Tensor:
        """(H,) average distance of a head from the others (Eq. 6 of Azov & Landau); 0 for a single head."""
        return self.l2.sum(1) / max(len(self.l2) - 1, 1)


@torch.no_grad()
def measure_heads(observed: Iterable[Seen], model: nn.Module | None = None) -> list[tuple[AttentionSpec, Measured]]:
    """Measures of every module, in the order of a forward pass, over the first `ENOUGH` queries of each rank.

    Args:
        observed: what the heads did, batch by batch; it is read no further than is needed.
        model: whose heads these are. Needed with several ranks only, one of which may see no batch at all.
    """
    sums: dict[AttentionSpec, Tensor] = {}
    for module in [] if model is None else attention_modules(model):
        H, like = module.spec.heads, module.in_projection.weight
        sums[module.spec] = like.new_zeros(1 + 2 * H + 2 * H**2, dtype=torch.float64)
    for seen in observed:
        for record in seen.records:
            told = _sums(record, *seen.marks.get(record.spec.kind, (None, None)))
            sums[record.spec] = sums[record.spec] + told if record.spec in sums else told
        if min(float(told[0]) for told in sums.values()) >= ENOUGH:
            break
    return [(spec, _means(distributed.total(told), spec.heads)) for spec, told in sums.items()]


def _sums(record: HeadRecord, query_marks: Tensor | None, key_marks: Tensor | None) -> Tensor:
    """Number of queries and sums over them of what `Measured` holds, in one line: (1 + 2·H + 2·H·H,), float64."""
    layout, weights = record.layout, at_least_float32(record.weights)  # (R, H, N, S)
    outputs = at_least_float32(record.outputs)  # (T, H, K)
    words = weights
    if key_marks is not None:
        R, _, _, S = weights.shape
        words = weights.masked_fill(key_marks[layout.keys.rows].view(R, 1, 1, S), 0.0)
    by_query = torch.stack([words.amax(-1), entropies(weights)], dim=-1)  # (R, H, N, 2)
    by_query = query_rows(by_query, layout.queries)  # (T, H, 2)
    if query_marks is not None:
        by_query, outputs = by_query[~query_marks], outputs[~query_marks]
    unit = torch.nn.functional.normalize(outputs, dim=-1)
    cosine = unit @ unit.transpose(1, 2)  # (T, H, H)
    l2 = torch.cdist(outputs, outputs, compute_mode="donot_use_mm_for_euclid_dist")  # (T, H, H)
    count = cosine.new_tensor([len(outputs)], dtype=torch.float64)
    sums = (x.sum(0, dtype=torch.float64).flatten() for x in (by_query[..., 0], by_query[..., 1], cosine, l2))
    return torch.cat([count, *sums])


def _means(sums: Tensor, heads: int) -> Measured:
    count, rest = sums[0], sums[1:].cpu() / sums[0].clamp_min(1).cpu()
    confidence, entropy, cosine, l2 = rest.split([heads, heads, heads**2, heads**2])
    return Measured(int(count), confidence, entropy, cosine.view(heads, heads), l2.view(heads, heads))


def head_measures(observed: Iterable[Seen]) -> dict[str, Any]:
    """`measure_heads` as JSON, by place: "encoder 1", "cross 2"."""
    return {
        "measures": {
            f"{spec.kind} {spec.layer + 1}": {
                "queries": measured.queries,
                **{name: _rounded(getattr(measured, name)) for name in ("confidence", "entropy", "cosine", "l2")},
            }
            for spec, measured in measure_heads(observed)
        }
    }


def _rounded(values: Tensor) -> Any:
    return [_rounded(row) for row in values] if values.dim() > 1 else [round(v, 6) for v in values.tolist()]
