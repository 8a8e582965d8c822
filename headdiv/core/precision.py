"""Number formats."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def autocast(x: Tensor) -> Tensor:
    """In autocast's number format where autocast is on, so that what follows needs no conversions; else unchanged.

    As in torch, float64 and integers stay as they are.
    """
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not x.is_floating_point():
        return x
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def full_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Autocast switched off for computations with x; the meta device has no autocast."""
    device = x.device.type
    return contextlib.nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision becomes float32, for sums over many numbers; all else stays as it is."""
    return x.float() if x.dtype in HALF else x
