"""Whether torch traces or transforms what is computed."""

from __future__ import annotations

import torch


def is_transformed() -> bool:
    """Whether a transform of `torch.func` runs, which takes no `torch.autograd.Function` of the old style."""
    return torch._C._are_functorch_transforms_active()


def is_traced() -> bool:
    """Whether a transform runs, or `torch.compile` or `torch.export` traces: values cannot be looked at then."""
    return torch.compiler.is_compiling() or is_transformed()
