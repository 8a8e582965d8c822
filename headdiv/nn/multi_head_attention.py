"""Multi-head attention on packed rows (Vaswani et al. 2017, section 3.2): projections, heads, and an output stage.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, N query slots, S key slots, H heads,
D model width, K head width (d_k); one token at a time N lines of n texts with W slots each, as in `headdiv.nn.caches`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.nn.attention import AttentionLayout, AttentionModule, AttentionSpec
from headdiv.nn.caches import BeamState, Cache
from headdiv.nn.dot_product import dot_product, into_windows, out_of_windows
from headdiv.nn.dropout import Dropout
from headdiv.nn.packing import PackedLayout
from headdiv.nn.projections import blocks_apart

RESTING = (nn.Identity, nn.Dropout, Dropout)  # modules that do nothing in evaluation
ROWWISE = (*RESTING, nn.Linear)


class MultiHeadAttention(AttentionModule):
    """Scaled dot-product attention in H heads, and an output stage (in the baseline, W^O).

    The projections W^Q, W^K, W^V are the three blocks of ``in_projection``'s rows; head i, from 0, owns rows i·K to
    (i+1)·K of each.

    Args:
        spec: where the module stands, and its sizes.
        output: the output stage, (T, H·K) -> (T, D); W^O where left out.
        before_output: what the heads go through in front of it, (T, H·K) -> (T, H·K). It becomes the output stage's
            ``inhibition``, whatever stage that is: state dictionaries have the same names.
    """

    # Of a subclass: whether what it does with the heads is `rowwise`, and whether it does something in training alone.
    editable = True
    rowwise_heads: ClassVar[bool] = False
    trains_alone: ClassVar[bool] = False

    def __init__(
        self, spec: AttentionSpec, output: nn.Module | None = None, before_output: nn.Module | None = None
    ) -> None:
        super().__init__(spec)
        width = spec.heads * spec.d_head
        self.in_projection = nn.Linear(spec.d_model, 3 * width, bias=spec.bias)
        self.set_output(nn.Linear(width, spec.d_model) if output is None else output, before_output)

    @property
    def is_plain(self) -> bool:
        """See `AttentionModule`."""
        return (self.trains_alone or type(self) is MultiHeadAttention) and rests(
            getattr(self.output, "inhibition", None)
        )

    @property
    def rowwise(self) -> bool:
        """See `AttentionModule`; an output stage, and what stands in front of it, say it by the same name."""
        parts = self.output, getattr(self.output, "inhibition", nn.Identity())
        apart = all(type(part) in ROWWISE or getattr(part, "rowwise", False) for part in parts)
        return apart and (self.rowwise_heads or type(self) is MultiHeadAttention)

    def set_output(self, output: nn.Module, before_output: nn.Module | None) -> None:
        """Put in an output stage, and what the heads go through in front of it."""
        self.output = output
        if before_output is not None:
            output.inhibition = before_output
            output.register_forward_pre_hook(_inhibit)

    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """See `AttentionModule`."""
        return self.output(self.attend(x, memory, layout))

    def mask_heads(self, mask: Tensor) -> torch.utils.hooks.RemovableHandle:
        """See `AttentionModule`."""
        wide = mask.repeat_interleave(self.head_width)  # (H·K,)

        def multiply(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0] * wide.to(inputs[0]),)

        return self.output.register_forward_pre_hook(multiply, prepend=True)  # what inhibits sees masked heads

    def attend(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """The heads side by side, as the output stage reads them: (T, H·K)."""
        H, K = self.spec.heads, self.spec.d_head
        if memory is None:
            projected = self.in_projection(x)  # (T, 3·H·K)
            q, k, v = into_windows(projected, layout.queries, 3, H)  # (R, H, N, K) each
        else:
            projected = self._project(memory, 1, 3)  # (T', 2·H·K)
            (q,) = into_windows(self._project(x, 0, 1), layout.queries, 1, H)
            k, v = into_windows(projected, layout.keys, 2, H)
        z, weights = self.weighted(q, k, v, layout)
        heads = self.finished(out_of_windows(z, layout.queries), x, layout.queries)  # (T, H·K)
        values, shape = projected[:, -H * K :], (-1, self.head_slots, self.head_width)
        self.record(layout, weights, values.view(shape), heads.view(shape))
        return self.edited(heads.view(shape), layout.queries).flatten(1) if self.edits else heads

    def weighted(
        self, q: Tensor, k: Tensor, v: Tensor, layout: AttentionLayout | Cache
    ) -> tuple[Tensor, Tensor | None]:
        """The heads' outputs, (R, H, N, K), and where `needs_weights` their weights; in `step` of one query a line."""
        return dot_product(q, k, v, layout, self.needs_weights)

    def finished(self, heads: Tensor, x: Tensor, side: PackedLayout | None) -> Tensor:
        """What the output stage reads, (T, H·K), of the heads' outputs and the rows x (T, D); no side in `step`."""
        return heads

    def _project(self, x: Tensor, first: int, last: int) -> Tensor:
        """Blocks first to last (of query 0, key 1, value 2) of the projections: (T, D) -> (T, (last−first)·H·K)."""
        width = self.spec.heads * self.spec.d_head
        if x.shape[-1] != getattr(self.in_projection, "in_features", None):
            return blocks_apart(self.in_projection, x, first)
        rows = slice(first * width, last * width)
        bias = self.in_projection.bias
        return F.linear(x, self.in_projection.weight[rows], None if bias is None else bias[rows])

    # ---- one token at a time

    def self_cache(self, lines: BeamState, like: Tensor) -> Cache:
        """See `AttentionModule`."""
        return Cache.empty(lines, self.spec.heads, self.spec.d_head, like)

    def cross_cache(self, lines: BeamState, memory: Tensor, mask: Tensor) -> Cache:
        """See `AttentionModule`."""
        keys, values = self._project(memory, 1, 3).unflatten(-1, (2, self.spec.heads, -1)).permute(2, 0, 3, 1, 4)
        return Cache(lines, keys.contiguous(), values.contiguous(), mask)

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        """See `AttentionModule`."""
        if cache.mask is None:
            q, k, v = self.in_projection(x).unflatten(-1, (3, self.spec.heads, -1)).unbind(1)  # (N, H, K) each
            cache.add(k, v)
        else:
            q = self._project(x, 0, 1).unflatten(-1, (self.spec.heads, -1))
        z, _ = self.weighted(*cache.windows(q.unsqueeze(2)), cache)  # (n, H, W, K)
        return self.output(self.finished(cache.rows(z), x, None))


def rests(module: nn.Module | None) -> bool:
    """Whether a module passes its input on in evaluation: it is none, a dropout, or has an attribute ``rests``."""
    return module is None or type(module) in RESTING or getattr(module, "rests", False)


def _inhibit(output: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (output.inhibition(inputs[0]),)
