"""The arithmetic of attention: rows into windows and out of them, and softmax(q kᵀ/√K + mask) v between the two.

Letters for shapes: T rows (real tokens), R windows, N query slots, S key slots, H heads, K head width (d_k).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import functional as F

from headdiv.core.precision import HALF, at_least_float32
from headdiv.nn.caches import Cache, cached_product
from headdiv.nn.packing import AttentionLayout, PackedRows


class ScaledDotProduct(torch.autograd.Function):
    """softmax(q kᵀ/√K + mask) v (Vaswani et al. 2017, Eq. 1), with a backward pass of four batched products, no copies.

    On short windows this takes 60 % of the time of torch's fused CPU kernel. It also returns the weights, for losses
    on them; they cost nothing as long as they are not used.
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
    """softmax(q kᵀ/√K + mask) v, (R, H, N, K), computed in whichever way is faster for windows of this width.

    The weights (R, H, N, S), before dropout, are returned too where they are requested.
    """
    if isinstance(layout, Cache):
        return cached_product(q, k, v, layout.mask), None
    if layout.dropout is not None:
        mask = layout.written_out().to(q.dtype)
        if not weights:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=layout.dropout), None
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + mask
        p = masked_softmax(scores, layout.blind)
        if not layout.dropout:
            return p.to(v.dtype) @ v, p.to(v.dtype)
        dropped = F.dropout(p, layout.dropout)
        layout.dropped.append(dropped)
        return dropped.to(v.dtype) @ v, p.to(v.dtype)
    if (blind := layout.blind) is not None:
        scores = at_least_float32(q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        p = masked_softmax(scores + layout.written_out(), blind).to(v.dtype)
        return p @ v, p if weights else None
    if weights or not layout.wide:
        z, p = ScaledDotProduct.apply(q, k, v, layout.written_out())
        return z, p if weights else None
    mask = layout.mask if layout.mask is None else layout.mask.to(q.dtype)
    with contextlib.nullcontext() if layout.full or q.device.type == "cpu" or is_compiling() else _without_cudnn():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None), None


def masked_softmax(scores: Tensor, blind: Tensor | None) -> Tensor:
    """Weights (R, H, N, S) from scores with the mask; 0 where a query is ``blind``, as torch's fused kernels have it.

    A softmax of -inf alone, and its gradient, would be NaN.
    """
    if blind is None:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(scores.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)


@contextlib.contextmanager
def _without_cudnn() -> Iterator[None]:
    """Leave out cuDNN's kernel, torch's choice for masks on an H200: it takes long for each new shape."""
    flags = torch.backends.cuda
    was_enabled = flags.cudnn_sdp_enabled()
    try:
        if flags.mem_efficient_sdp_enabled() or flags.math_sdp_enabled():  # else the caller has chosen cuDNN's alone
            flags.enable_cudnn_sdp(False)
        yield
    finally:
        flags.enable_cudnn_sdp(was_enabled)


def into_windows(x: Tensor, rows: PackedRows, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(T, parts·H·K) rows -> ``parts`` tensors (R, H, N, K); an empty slot holds some row's values."""
    if not rows.full:
        if not is_compiling() and not x.shape[0]:  # nothing but padding: empty slots hold zeros
            x = F.pad(x, (0, 0, 0, 1))
        x = x.index_select(0, rows.row_of_slot)
    R, N = rows.sentences.shape
    K = x.shape[1] // (parts * heads)
    return x.view(R, N, parts, heads, K).permute(2, 0, 3, 1, 4).contiguous().unbind(0)


def out_of_windows(z: Tensor, rows: PackedRows) -> Tensor:
    """(R, H, N, …) windows -> (T, H, …) rows; empty slots are dropped."""
    x = z.transpose(1, 2).flatten(0, 1)  # (R·N, H, …)
    return x if rows.full else x.index_select(0, rows.slots)
