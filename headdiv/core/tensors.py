"""Tensors as arguments of public calls: of floating point, of a shape, and which of them are one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headdiv.core.arguments import must_be


def must_be_tensor(name: str, x: Any, shape: str, half: bool = True) -> None:
    """Raise unless it is a tensor of floating point with a shape such as ``"k m"``, or with more dimensions in front.

    Args:
        name: of the argument.
        x: the argument.
        shape: letters of the last dimensions, of which none but N may be 0; a letter that stands twice is one size;
            "..." in front allows further ones.
        half: whether half precision will do.

    Raises:
        TypeError: it is no tensor, or none of floating point.
        ValueError: it has another shape.
    """
    must_be(name, x, Tensor, "a tensor")
    if not x.is_floating_point() or (not half and x.dtype in (torch.float16, torch.bfloat16)):
        kind = "floating point" if half else "float32 or float64"
        raise TypeError(f"{name}: found a tensor of {x.dtype}, expected one of {kind}")
    if torch.compiler.is_compiling():  # sizes may be symbols, of which nothing can be asked
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
    """Whether two tensors have the same values, NaN included; without a look at them where they are one memory."""
    if a.is_nested or b.is_nested or (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        return False
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    return torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=True)


def one_to_autograd(a: Tensor, b: Tensor) -> bool:
    """Whether a gradient of one of two equal tensors may go to the other: not of copies, nor where one is detached.

    The same view of one tensor, made twice, is one; so are any two where no gradients are asked for.
    """
    if a is b or not torch.is_grad_enabled() or not (a.requires_grad or b.requires_grad):
        return True
    if a.grad_fn is None or b.grad_fn is None:
        return False
    made = ((x.data_ptr(), x.stride(), type(x.grad_fn), x.grad_fn.next_functions, x.output_nr) for x in (a, b))
    return next(made) == next(made)
