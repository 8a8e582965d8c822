"""Tensors as arguments of public calls: floating point, their shapes, and which of them are the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headdiv.core.arguments import must_be


def must_be_tensor(name: str, x: Any, shape: str, half: bool = True) -> None:
    """Raise unless it is a floating-point tensor with a shape such as ``"k m"``, or with more dimensions in front.

    Args:
        name: of the argument.
        x: the argument.
        shape: letters of the last dimensions, of which none but N may be 0; a repeated letter is one size; "..." in
            front allows further dimensions.
        half: whether half precision is allowed.

    Raises:
        TypeError: it is not a tensor, or not floating point.
        ValueError: it has another shape.
    """
    must_be(name, x, Tensor, "a tensor")
    if not x.is_floating_point() or (not half and x.dtype in (torch.float16, torch.bfloat16)):
        kind = "floating point" if half else "float32 or float64"
        raise TypeError(f"{name}: found a tensor of {x.dtype}, expected one of {kind}")
    if torch.compiler.is_compiling():  # sizes may be symbols, without a value to look at
        return
    letters = shape.removeprefix("...").split()
    last = tuple(x.shape[-len(letters) :])
    fits = x.dim() >= len(letters) if shape.startswith("...") else x.dim() == len(letters)
    sizes = dict(zip(letters, last, strict=False))
    empty = any(size == 0 and letter != "N" for letter, size in sizes.items())
    if not fits or empty or any(sizes[letter] != size for letter, size in zip(letters, last, strict=True)):
        wanted = shape.replace("...", "..., ").replace(" ", ", ").replace(",,", ",")
        raise ValueError(f"{name}: found the shape {tuple(x.shape)}, expected ({wanted}), none but N 0")


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
