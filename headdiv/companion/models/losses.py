"""The training loss: projection to the vocabulary, softmax and cross-entropy in one pass over the tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from headdiv.core.precision import autocast
from headdiv.nn.linear import MULTIPLE, with_rounded_rows

CHUNK_ELEMENTS = 1 << 20  # logits held at a time: 4 MiB in float32, which stay in a CPU's cache
GPU_CHUNK_ELEMENTS = 1 << 26  # there: each chunk is some 17 launches, which small ones wait for
HELD_ELEMENTS = 1 << 22  # of the logits' gradient in half precision, until they meet the rows: 8 MiB


def linear_cross_entropy(
    x: Tensor, weight: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of softmax(x weightᵀ) without ever holding all logits.

    The logits of a few hundred tokens at a time (many more on a GPU) are turned into their gradient at once, in the
    forward pass. On a CPU, memory traffic falls from about ten passes over (T, V) to none beyond the cache.

    Args:
        x: hidden states (T, D).
        weight: output embedding (V, D).
        targets: the right words (T,), as indices into V.
        label_smoothing: ε; the target distribution is (1 − ε) one-hot + ε/V uniform, as in
            `torch.nn.functional.cross_entropy`.

    Returns:
        Three sums over the tokens: the loss in nats (with gradient), the loss without smoothing, and
        the number of tokens for which no word is likelier than the right one.
    """
    with_gradient = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    return _LinearCrossEntropy.apply(autocast(x), autocast(weight), targets, label_smoothing, with_gradient)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, smoothing: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        T, V = x.shape[0], weight.shape[0]
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        loss, plain = (torch.zeros((), dtype=wide, device=x.device) for _ in range(2))
        correct = torch.zeros((), dtype=torch.int64, device=x.device)
        half = wide != x.dtype
        elements = CHUNK_ELEMENTS if x.device.type == "cpu" else GPU_CHUNK_ELEMENTS
        size = max(1, min(T, elements // V))
        if half:  # few shapes of products: see `headdiv.nn.linear.linear`
            size += -size % MULTIPLE
            x = with_rounded_rows(x)
        rows = x.shape[0]  # T'
        grad_x = torch.empty_like(x) if with_gradient else None
        grad_weight = torch.zeros_like(weight, dtype=wide) if with_gradient else None
        # In half precision the gradients of many chunks are held and multiplied at once: a product for each chunk,
        # added up in float32, would convert (V, D) numbers each time.
        held = min(rows, max(size, HELD_ELEMENTS // V // size * size)) if half and with_gradient else 0
        # Rows begin on a cache line: matrix products run 15 % faster than with an odd V. In half precision the columns
        # beyond V are computed too (of no weight, then masked), so that conversions run over whole rows.
        width = -(-V // 32) * 32 if half else -(-V // 16) * 16
        buffer = x.new_empty(size, width)
        if half:
            padded = nn.functional.pad(weight, (0, 0, 0, width - V))  # (width, D)
            scores, p_buffer = (x.new_empty(size, width, dtype=wide) for _ in range(2))
            held_p = x.new_empty(held, width)
        for start in range(0, rows, size):
            answers = targets[start : start + size, None]
            n, end = len(answers), min(start + size, rows)  # real rows, and the end of all
            if half:
                computed = torch.mm(x[start:end], padded.T, out=buffer[: end - start])
                logits = scores[:n].copy_(computed[:n])  # (chunk, width)
                logits[:, V:] = -math.inf
                p = torch.softmax(logits, dim=-1, out=p_buffer[:n])
                logits = logits[:, :V]
            else:
                logits = torch.mm(x[start:end], weight.T, out=buffer[:n, :V])  # (chunk, V)
                p = logits.softmax(dim=-1)
            highest = logits.amax(dim=-1, keepdim=True)
            target_logits = logits.gather(-1, answers)
            correct += (target_logits == highest).sum()
            log_total = highest - p.amax(dim=-1, keepdim=True).log()  # logsumexp, for the price of softmax
            nll = log_total - target_logits
            plain += nll.sum()
            if smoothing:
                loss += ((1 - smoothing) * nll + smoothing * (log_total - logits.mean(dim=-1, keepdim=True))).sum()
                p.sub_(smoothing / V)
            if with_gradient:
                p.scatter_add_(-1, answers, torch.full_like(target_logits, smoothing - 1.0))
                if held:
                    first = start // held * held  # of the rows that are held
                    held_p[start - first :][:n].copy_(p)
                    held_p[start - first + n : end - first] = 0
                    torch.mm(held_p[start - first : end - first], padded, out=grad_x[start:end])
                    if end == min(first + held, rows):
                        grad_weight += (held_p[: end - first].T @ x[first:end])[:V]
                else:
                    torch.mm(p, weight, out=grad_x[start:end])
                    grad_weight.addmm_(p.T, x[start:end])
        if not smoothing:
            loss = plain.clone()
        ctx.save_for_backward(None if grad_x is None else grad_x[:T], grad_weight)
        ctx.dtype = x.dtype
        ctx.mark_non_differentiable(plain, correct)
        return loss, plain, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        grad_x, grad_weight = ctx.saved_tensors
        return grad_x * grad.to(ctx.dtype), (grad_weight * grad).to(ctx.dtype), None, None, None
