"""Multi-head attention on packed rows (Vaswani et al. 2017, section 3.2): projections, heads, and an output stage.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, N query slots, S key slots, H heads,
D model width, K head width (d_k); one token at a time N lines of n texts, as in `headdiv.nn.caches`.
"""

from __future__ import annotations

from torch import Tensor, nn

from headdiv.nn.attention import AttentionModule
from headdiv.nn.caches import Cache
from headdiv.nn.dot_product import dot_product, into_windows, out_of_windows
from headdiv.nn.linear import Linear, linear, weight_is_all
from headdiv.nn.packing import AttentionLayout, PackedRows
from headdiv.nn.projections import project_separately
from headdiv.nn.sizes import AttentionSpec


class MultiHeadAttention(AttentionModule):
    """Scaled dot-product attention in H heads, and an output stage (in the baseline, W^O).

    The projections W^Q, W^K, W^V are the three blocks of ``in_projection``'s rows; head i, from 0, owns rows i·K to
    (i+1)·K of each.

    Args:
        spec: the module's position and sizes.
        output: the output stage, (T, H·K) -> (T, D); W^O by default.
        before_output: what the heads go through in front of it, (T, H·K) -> (T, H·K); None: nothing.
    """

    def __init__(
        self, spec: AttentionSpec, output: nn.Module | None = None, before_output: nn.Module | None = None
    ) -> None:
        super().__init__(spec)
        width = spec.heads * spec.d_head
        self.in_projection = Linear(spec.d_model, 3 * width, bias=spec.bias)
        self.output = Linear(width, spec.d_model) if output is None else output
        self.before_output = before_output

    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        H, K = self.spec.heads, self.spec.d_head
        if memory is None:
            projected = self.in_projection(x)  # (T, 3·H·K)
            q, k, v = into_windows(projected, layout.queries, 3, H)  # (R, H, N, K) each
        else:
            projected = self._project(memory, 1, 3)  # (T', 2·H·K)
            (q,) = into_windows(self._project(x, 0, 1), layout.queries, 1, H)
            k, v = into_windows(projected, layout.keys, 2, H)
        z, weights = self.weigh_values(q, k, v, layout)
        heads = self.transform_heads(out_of_windows(z, layout.queries).flatten(1), x, layout.queries)  # (T, H·K)
        values, shape = projected[:, -H * K :], (-1, self.head_slots, self.head_width)
        return self._combine(self.record(layout, weights, values.view(shape), heads.view(shape)).flatten(1))

    def _combine(self, heads: Tensor) -> Tensor:
        """What the output stage makes of the heads side by side: (T, H·K) -> (T, D)."""
        return self.output(heads if self.before_output is None else self.before_output(heads))

    def weigh_values(
        self, q: Tensor, k: Tensor, v: Tensor, layout: AttentionLayout | Cache
    ) -> tuple[Tensor, Tensor | None]:
        """The heads' outputs, (R, H, N, K), and where `needs_weights` their weights; in `step`, one query per line."""
        return dot_product(q, k, v, layout, self.needs_weights)

    def transform_heads(self, heads: Tensor, x: Tensor, rows: PackedRows | None) -> Tensor:
        """What the output stage reads, (T, H·K), from the heads' outputs and the rows x (T, D); no rows in `step`."""
        return heads

    def _project(self, x: Tensor, first: int, last: int) -> Tensor:
        """Blocks first to last (of query 0, key 1, value 2) of the projections: (T, D) -> (T, (last−first)·H·K)."""
        width = self.spec.heads * self.spec.d_head
        if x.shape[-1] != getattr(self.in_projection, "in_features", None):
            return project_separately(self.in_projection, x, first)
        rows = slice(first * width, last * width)
        if not weight_is_all(self.in_projection):
            return self.in_projection(x)[..., rows]
        bias = self.in_projection.bias
        return linear(x, self.in_projection.weight[rows], None if bias is None else bias[rows])

    # ---- one token at a time

    def self_cache(self, lines: int, like: Tensor) -> Cache:
        empty = like.new_empty(lines, self.spec.heads, 0, self.spec.d_head)
        return Cache((empty, empty))

    def cross_cache(self, memory: Tensor, mask: Tensor) -> Cache:
        keys, values = self._project(memory, 1, 3).unflatten(-1, (2, self.spec.heads, -1)).permute(2, 0, 3, 1, 4)
        return Cache((keys.contiguous(), values.contiguous()), mask[:, None, None])

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        if cache.mask is None:
            q, k, v = self.in_projection(x).unflatten(-1, (3, self.spec.heads, -1)).unbind(1)  # (N, H, K) each
            cache.add(k, v)
        else:
            q = self._project(x, 0, 1).unflatten(-1, (self.spec.heads, -1))
        queries = cache.by_text(q.unsqueeze(2))  # of B lines or texts: (B, H, N/B, K)
        z, _ = self.weigh_values(queries, *cache.kept, cache)
        heads = self.transform_heads(cache.by_line(z), x, None).view(-1, self.head_slots, self.head_width)
        return self._combine(self.edited_in_step(heads, cache).flatten(1))
