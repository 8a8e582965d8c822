"""Which tensors are the same."""

from __future__ import annotations

import torch
from torch import Tensor


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same values, NaN included; not looked at where they share one memory."""
    if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        return False
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    return torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)


def one_to_autograd(a: Tensor, b: Tensor) -> bool:
    """Whether a gradient of one of two equal tensors may go to the other: not for copies, nor if one is detached.

    The same view of one tensor, made twice, counts as one; so do any two where no gradients are needed.
    """
    if a is b or not torch.is_grad_enabled() or not (a.requires_grad or b.requires_grad):
        return True
    if a.grad_fn is None or b.grad_fn is None:
        return False
    made = ((x.data_ptr(), x.stride(), type(x.grad_fn), x.grad_fn.next_functions, x.output_nr) for x in (a, b))
    return next(made) == next(made)
