"""Tensors as arguments of public calls: of floating point, and of a shape."""

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
