"""A method of one's own in one file outside headdiv: multi-query attention (Shazeer 2019).

Every head has its own queries, all share one set of keys and values. It brings an attention module of its own, and a
small loss that keeps the queries short.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

import headdiv
from headdiv.methods.base import Method, MethodOptions, ValidationSplit
from headdiv.methods.losses import no_values_to_compare
from headdiv.nn.attention import AttentionModule
from headdiv.nn.dot_product import dot_product, into_windows, out_of_windows
from headdiv.nn.packing import AttentionLayout
from headdiv.nn.records import HeadRecord, attention_modules
from headdiv.nn.sizes import AttentionSpec


class MultiQueryAttention(AttentionModule):
    """H heads with queries of their own; one set of keys and values."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        width = spec.heads * spec.d_head
        self.query = nn.Linear(spec.d_model, width, bias=spec.bias)
        self.key_value = nn.Linear(spec.d_model, 2 * spec.d_head, bias=spec.bias)
        self.output = nn.Linear(width, spec.d_model)

    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """See `AttentionModule`."""
        H, K = self.spec.heads, self.spec.d_head
        shared = self.key_value(x if memory is None else memory)  # (T', 2·K)
        (q,) = into_windows(self.query(x), layout.queries, 1, H)  # (R, H, N, K)
        k, v = (part.expand(-1, H, -1, -1) for part in into_windows(shared, layout.keys, 2, 1))
        z, weights = dot_product(q, k, v, layout, self.needs_weights)
        heads = out_of_windows(z, layout.queries)  # (T, H, K)
        heads = self.record(layout, weights, shared[:, None, K:].expand(-1, H, -1), heads)
        return self.output(heads.flatten(1))


class MultiQuery(Method):
    """The method: a `MultiQueryAttention` in each position."""

    name = "multi-query"

    class Options(Method.Options):
        """Of the loss."""

        decay: float = Field(0.01, ge=0, description="weight of the mean square of the query weights in the loss")

        def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
            """All heads have the same values."""
            return no_values_to_compare(other, name, others_name)

    options: Options

    def attention(self, spec: AttentionSpec) -> MultiQueryAttention:
        """The module."""
        return MultiQueryAttention(spec)

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """The mean square of the query weights, mean over the modules."""
        squares = [module.query.weight.square().mean() for module in _modules(model)]
        return self.options.decay * torch.stack(squares).mean()

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        """The length of every module's query weights."""
        return {"query_norms": {module.spec.name: module.query.weight.norm().item() for module in _modules(model)}}


def _modules(model: nn.Module) -> list[MultiQueryAttention]:
    return [module for module in attention_modules(model) if isinstance(module, MultiQueryAttention)]


headdiv.register(MultiQuery)
