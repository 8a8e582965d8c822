"""Attention modules on packed rows, their arithmetic, and records of what their heads do.

Letters for shapes: B batch, T rows (real tokens), R windows, N query slots, S key slots, H heads,
D model width, K head width (d_k).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.errors import DataError
from headdiv.core.precision import HALF, at_least_float32
from headdiv.nn.caches import Cache, Lines, cached_product
from headdiv.nn.packing import Side, attention_mask

Found = TypeVar("Found")
Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)

WIDE = 64 * 64  # weights of a window and head: up to here our own product is as fast, beyond torch's fused one wins


@dataclass(frozen=True)
class AttentionSpec:
    """Position and sizes of an attention module that a method is to build."""

    kind: Kind  # encoder self-, decoder self- or encoder-decoder attention
    layer: int  # from 0
    d_model: int  # D
    heads: int  # H
    bias: bool = False  # of the query, key and value projections
    width: int | None = None  # K, where it is not D / H

    @property
    def d_head(self) -> int:
        """K, the paper's d_k: D / H unless ``width`` says otherwise."""
        return self.width or self.d_model // self.heads

    @property
    def place(self) -> str:
        """What results call it: "encoder 1", "decoder 2", "cross 1"."""
        return f"{self.kind} {self.layer + 1}"


@dataclass(frozen=True)
class BlockSpec:
    """Position and width of a block (layer) whose output a method may change."""

    stack: Literal["encoder", "decoder"]
    layer: int  # from 0
    d_model: int  # D


@dataclass(frozen=True)
class AttentionLayout:
    """Queries, keys and the mask between them, for one kind of attention.

    Without a mask every slot attends to itself and all earlier ones of its window (a language model's full windows).
    """

    queries: Side
    keys: Side
    mask: Tensor | None  # (R, 1, N, S), added to the scores; (R, H, N, S) where heads have masks of their own
    # Of the weights. Where it is a number, attention is computed as torch.nn.MultiheadAttention does it: a query that
    # may see nothing is NaN, and the mask has a gradient.
    dropout: float | None = None

    def written_out(self) -> Tensor:
        """The mask, also where it is only implied."""
        return attention_mask(self.queries, self.keys, causal=True) if self.mask is None else self.mask

    @property
    def wide(self) -> bool:
        """Whether a window's weights are too many to be held for the backward pass."""
        return self.queries.sentences.shape[1] * self.keys.sentences.shape[1] > WIDE


@dataclass(frozen=True)
class HeadRecord:
    """What the heads of one module did in one forward pass, with gradient; nothing is averaged over heads."""

    spec: AttentionSpec
    layout: AttentionLayout
    weights: Tensor | None  # (R, H, N, S); None where they were not asked for
    values: Tensor  # (T', H, K), a row for each key
    outputs: Tensor  # (T, H, K), before the output stage


@dataclass(frozen=True)
class Recorder:
    """Collects what a module's heads do while `record_heads` is open."""

    weights: bool  # whether attention weights are recorded
    records: list[HeadRecord]
    outer: Recorder | None = None  # of a `record_heads` that was open before: it records too

    @property
    def needs_weights(self) -> bool:
        """Whether somebody asked for the attention weights."""
        return self.weights or (self.outer is not None and self.outer.needs_weights)

    def append(self, record: HeadRecord) -> None:
        """Add a record wherever it is asked for, with weights only where they are."""
        self.records.append(record if self.weights else replace(record, weights=None))
        if self.outer is not None:
            self.outer.append(record)


class HeadModule(nn.Module, ABC):
    """Heads that can be recorded, measured and masked: `AttentionModule`, or the heads of somebody else's attention."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.spec = spec  # where the module stands, and its sizes
        self.recorder: Recorder | None = None  # there while `record_heads` is open

    @property
    def head_slots(self) -> int:
        """Number of heads that can be measured and masked; of a mixture, the heads that each token is given."""
        return self.spec.heads

    @property
    def head_width(self) -> int:
        """K, the width of a head's output."""
        return self.spec.d_head

    @property
    def slot_spec(self) -> AttentionSpec:
        """``spec`` with number and width of the slots: what head records carry."""
        spec = replace(self.spec, heads=self.head_slots)
        return spec if spec.d_head == self.head_width else replace(spec, width=self.head_width)

    @abstractmethod
    def mask_heads(self, mask: Tensor) -> torch.utils.hooks.RemovableHandle:
        """Multiply the heads' outputs, but not their records, by ``mask`` (H,) until the handle's ``remove``."""

    @property
    def needs_weights(self) -> bool:
        """Whether `record` is to be given the attention weights."""
        return self.recorder is not None and self.recorder.needs_weights

    def record(
        self,
        layout: AttentionLayout,
        weights: Tensor | None,
        values: Tensor,
        outputs: Tensor,
        kind: type[HeadRecord] = HeadRecord,
        **more: Any,
    ) -> None:
        """Append a `HeadRecord` (or a subclass with ``more`` fields) of these tensors where `record_heads` is open."""
        if self.recorder is not None:
            self.recorder.append(kind(self.slot_spec, layout, weights, values, outputs, **more))


class AttentionModule(HeadModule):
    """What the rest of headdiv asks of an attention module: the base class of `MultiHeadAttention` and of methods' own.

    A subclass implements the abstract methods and calls `record` in its forward pass. It then runs in the model of
    every task and in the drop-in, decodes with cached keys and values, and its heads can be measured and masked (in
    `forward` and in `step`).
    """

    @abstractmethod
    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """(T, D) queries and, for encoder-decoder attention, (T', D) memory -> (T, D)."""

    # ---- one token at a time

    @abstractmethod
    def self_cache(self, lines: Lines, like: Tensor) -> Cache:
        """An empty cache for these lines, with dtype and device of ``like``."""

    @abstractmethod
    def cross_cache(self, lines: Lines, memory: Tensor, mask: Tensor) -> Cache:
        """Keys and values of the texts' padded memory (n, S, D); mask (n, S) is added to the scores."""

    @abstractmethod
    def step(self, x: Tensor, cache: Cache) -> Tensor:
        """One new position for each line, (N, D) -> (N, D); a self-attention cache grows by it."""


def attention_modules(model: nn.Module) -> list[HeadModule]:
    """Every attention module of a model, in the order of a forward pass."""
    return [module for module in model.modules() if isinstance(module, HeadModule)]


def keyed_by_place(found: Iterable[tuple[str, Found]]) -> dict[str, Found]:
    """What belongs to attention modules, keyed by their place; a DataError where two are at one place."""
    keyed: dict[str, Found] = {}
    for place, one in found:
        if place in keyed:
            raise DataError(
                f"two attention modules are {place!r}; expected for each a `layer` of its own, from 0, or another "
                "`kind` (arguments of headdiv.MultiheadAttention)"
            )
        keyed[place] = one
    return keyed


class ScaledDotProduct(torch.autograd.Function):
    """softmax(q kᵀ/√K + mask) v (Eq. 5) with a backward pass of four batched products and no copies.

    On short windows this takes 60 % of the time of torch's fused CPU kernel. The weights come with it, for losses
    on them; as long as nobody uses them they cost nothing.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """q (R, H, N, K), k and v (R, H, S, K), mask (R, 1, N, S) -> (R, H, N, K) and weights (R, H, N, S)."""
        ctx.set_materialize_grads(False)
        # In float32 throughout: torch's softmax of bfloat16 takes twice the time of both conversions and float32's.
        scores = at_least_float32(q @ k.transpose(-2, -1))
        p = torch.softmax(scores.mul_(q.shape[-1] ** -0.5).add_(mask), dim=-1).to(v.dtype)
        ctx.save_for_backward(q, k, v, p)
        return p @ v, p

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of q, k, v; the mask has none."""
        q, k, v, p = ctx.saved_tensors
        if grad is None and grad_weights is None:
            return None, None, None, None
        if grad is None:
            grad_v, grad_p = None, grad_weights.clone()
        else:
            grad_v = p.transpose(-2, -1) @ grad
            grad_p = grad @ v.transpose(-2, -1)
            if grad_weights is not None:
                grad_p += grad_weights
        if p.dtype in HALF:  # one pass, where a sum and a broadcast difference take four times as long
            grad_scores = torch.ops.aten._softmax_backward_data(grad_p, p, -1, p.dtype).mul_(q.shape[-1] ** -0.5)
        else:
            grad_scores = grad_p.sub_((grad_p * p).sum(dim=-1, keepdim=True)).mul_(p).mul_(q.shape[-1] ** -0.5)
        return grad_scores @ k, grad_scores.transpose(-2, -1) @ q, grad_v, None


def dot_product(
    q: Tensor, k: Tensor, v: Tensor, layout: AttentionLayout | Cache, weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ/√K + mask) v, (R, H, N, K), by whichever way is faster for windows of this width.

    The weights (R, H, N, S) come with it where they are asked for.
    """
    if isinstance(layout, Cache):
        return cached_product(q, k, v, layout.written_out()), None
    if layout.dropout is not None:
        mask = layout.written_out().to(q.dtype)
        if not weights:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=layout.dropout), None
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + mask
        p = F.dropout(torch.softmax(scores, dim=-1), layout.dropout).to(v.dtype)
        return p @ v, p
    if weights or not layout.wide:
        z, p = ScaledDotProduct.apply(q, k, v, layout.written_out())
        return z, p if weights else None
    mask = layout.mask if layout.mask is None else layout.mask.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None), None


def into_windows(x: Tensor, side: Side, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(T, parts·H·K) rows -> ``parts`` tensors (R, H, N, K); an empty slot holds some row's values."""
    if torch.compiler.is_compiling():  # which differentiates by itself, and cannot look into the function
        return _gather(x, side, parts, heads).unbind(0)
    return _IntoWindows.apply(x, side, parts, heads)


def out_of_windows(z: Tensor, side: Side) -> Tensor:
    """(R, H, N, K) windows -> (T, H·K) rows; empty slots are dropped."""
    if torch.compiler.is_compiling():
        return _scatter([z], side)
    return _OutOfWindows.apply(z, side)


def _gather(x: Tensor, side: Side, parts: int, heads: int) -> Tensor:
    if not side.full:
        x = x.index_select(0, side.rows)
    R, N = side.sentences.shape
    K = x.shape[1] // (parts * heads)
    return x.view(R, N, parts, heads, K).permute(2, 0, 3, 1, 4).contiguous()  # (parts, R, H, N, K)


def _scatter(parts: Sequence[Tensor], side: Side) -> Tensor:
    """(R, H, N, K) each -> (T, parts·H·K), in one pass over memory."""
    R, H, N, K = parts[0].shape
    x = parts[0].new_empty(R, N, len(parts), H, K)
    for i, part in enumerate(parts):
        x[:, :, i] = part.transpose(1, 2)
    x = x.view(R * N, len(parts) * H * K)
    return x if side.full else x.index_select(0, side.slots)


class _IntoWindows(torch.autograd.Function):
    """A gather whose backward pass is a gather too: an empty slot is masked, so its gradient is zero.

    Autograd's own answer would be a scatter with addition, many times slower.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, side: Side, parts: int, heads: int) -> tuple[Tensor, ...]:
        ctx.side = side
        return _gather(x, side, parts, heads).unbind(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _scatter(grads, ctx.side), None, None, None


class _OutOfWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, side: Side) -> Tensor:
        ctx.side, ctx.heads = side, z.shape[1]
        return _scatter([z], side)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        side = ctx.side
        if side.full:
            return _gather(grad, side, 1, ctx.heads)[0], None
        R, N = side.sentences.shape
        spread = grad.new_zeros(R * N, grad.shape[1])
        spread[side.slots] = grad
        return spread.view(R, N, ctx.heads, grad.shape[1] // ctx.heads).transpose(1, 2).contiguous(), None


@contextlib.contextmanager
def record_heads(model: nn.Module, weights: bool = True) -> Iterator[list[HeadRecord]]:
    """While open, every attention module of ``model`` appends a `HeadRecord` for each forward pass.

    Args:
        model: whatever holds attention modules.
        weights: with the attention weights, which wide windows would otherwise not hold in memory.
    """
    records: list[HeadRecord] = []
    modules = attention_modules(model)
    for module in modules:
        module.recorder = Recorder(weights, records, outer=module.recorder)
    try:
        yield records
    finally:
        for module in modules:
            module.recorder = module.recorder.outer
