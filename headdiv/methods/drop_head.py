"""Scheduled DropHead (Zhou et al. 2020, arXiv 2004.13342): whole heads are dropped in training.

For each sentence every head of a module is dropped with probability p, and the remaining ones are multiplied by H over
their number; one always remains. The rate follows a V over the training: from ``start`` down to 0 at the fraction
``turn``, then up to ``end``.

The schedule's numbers are ours: the paper tunes the rate for each task. A module's rate is one of its buffers, so that
interrupted training resumes with it.

Letters: B sentences, T rows, H heads, K head width.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.core.modules import active_modules
from headdiv.methods.base import Method
from headdiv.methods.registry import register
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import PackedRows
from headdiv.nn.sizes import AttentionSpec


def kept_heads(draws: Tensor, rate: Tensor | float) -> Tensor:
    """What each head is multiplied by, from uniform draws: (B, H) -> (B, H); the highest draw always stays."""
    kept = ((draws >= rate) | (draws == draws.amax(dim=1, keepdim=True))).to(draws.dtype)
    return kept * (draws.shape[1] / kept.sum(dim=1, keepdim=True))


def drop_heads(heads: Tensor, rate: Tensor, count: int, rows: PackedRows) -> Tensor:
    """(T, H·K) -> (T, H·K), of ``count`` = H heads; each sentence of ``rows`` has its own draws."""
    draws = torch.rand(len(rows.lengths), count, device=heads.device)
    factor = kept_heads(draws, rate)[rows.sentence_of_row()]  # (T, H)
    return (heads.unflatten(1, (count, -1)) * factor.unsqueeze(-1).to(heads.dtype)).flatten(1)


class DroppedHeads(nn.Module):
    """Drops heads in front of an existing model's output projection, in training."""

    def __init__(self, heads: int, rate: float) -> None:
        super().__init__()
        self.heads = heads
        self.register_buffer("rate", torch.tensor(rate))

    def forward(self, heads: Tensor, rows: PackedRows) -> Tensor:
        """(T, H·K) -> (T, H·K)."""
        return drop_heads(heads, self.rate, self.heads, rows) if self.training else heads


class DropHeadAttention(MultiHeadAttention):
    """The baseline's module that drops heads in training; head records hold zeros for them."""

    def __init__(self, spec: AttentionSpec, rate: float) -> None:
        super().__init__(spec)
        self.register_buffer("rate", torch.tensor(rate))

    def transform_heads(self, heads: Tensor, x: Tensor, rows: PackedRows | None) -> Tensor:
        if not self.training or rows is None:
            return heads
        return drop_heads(heads, self.rate, self.spec.heads, rows)


@register
class DropHead(Method):
    """The method: a `DropHeadAttention` in each position, whose rate follows the schedule."""

    name = "drop-head"

    class Options(Method.Options):
        """A V from and to 0.2; ``turn: 0`` rises from 0 throughout."""

        label = "DropHead"
        start: float = Field(0.2, ge=0, lt=1, description="rate at the start")
        turn: float = Field(0.1, ge=0, lt=1, description="share of the training at which the rate is 0")
        end: float = Field(0.2, ge=0, lt=1, description="rate at the end")

    options: Options

    def rate(self, progress: float) -> float:
        """The rate at this fraction of the training, from 0 to 1."""
        o = self.options
        if progress < o.turn:
            return o.start * (1 - progress / o.turn)
        return o.end * (progress - o.turn) / (1 - o.turn)

    def attention(self, spec: AttentionSpec) -> DropHeadAttention:
        return DropHeadAttention(spec, self.rate(0.0))

    def inserted(self, spec: AttentionSpec) -> DroppedHeads:
        """For `headdiv.insert`: see `headdiv.methods.base`."""
        return DroppedHeads(spec.heads, self.rate(0.0))

    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Set the next step's rate to that of this step's progress: it follows the schedule one step late."""
        for module in active_modules(model, (DropHeadAttention, DroppedHeads)).values():
            module.rate.fill_(self.rate(progress))
