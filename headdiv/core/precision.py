"""Number formats."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision is made float32, for sums over many numbers; all else stays as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
