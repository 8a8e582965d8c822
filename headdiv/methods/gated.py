"""Gated attention (Qiu et al. 2025, arXiv 2505.06708): a sigmoid of the query's row gates each head's output.

    Y'_h = Y_h ⊙ σ(X W_h)

The paper's best position, G1, between attention and W^O: elementwise (W is D × H·K) or one gate per head (D × H),
without a bias. X are the rows that queries are computed from; the paper's models normalise them first, ours after the
layer.

Letters: T rows, D model width, H heads, K head width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headdiv.methods.base import Method
from headdiv.methods.registry import register
from headdiv.nn.linear import Linear
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import PackedRows
from headdiv.nn.sizes import AttentionSpec


class GatedAttention(MultiHeadAttention):
    """The baseline's module with gates; head records hold the gated outputs.

    Args:
        spec: its position and sizes.
        gates: number per head: K, or 1.
    """

    rowwise_heads = True

    def __init__(self, spec: AttentionSpec, gates: int) -> None:
        super().__init__(spec)
        self.gate = Linear(spec.d_model, spec.heads * gates, bias=False)

    def transform_heads(self, heads: Tensor, x: Tensor, rows: PackedRows | None) -> Tensor:
        gates = torch.sigmoid(self.gate(x)).unflatten(1, (self.spec.heads, -1))  # (T, H, K or 1)
        return (heads.unflatten(1, (self.spec.heads, -1)) * gates).flatten(1)


@register
class Gated(Method):
    """The method: a `GatedAttention` in each position."""

    name = "gated"

    class Options(Method.Options):
        """The paper's best variant."""

        gates: Literal["elementwise", "headwise"] = Field("elementwise", description="a gate for each unit, or head")

    options: Options

    def attention(self, spec: AttentionSpec) -> GatedAttention:
        return GatedAttention(spec, spec.d_head if self.options.gates == "elementwise" else 1)
