"""Whether torch traces or transforms what is computed."""

from __future__ import annotations

import torch


def is_transformed() -> bool:
    """Whether a transform of `torch.func` runs, which takes no `torch.autograd.Function` of the old style."""
    return torch._C._are_functorch_transforms_active()


def is_traced() -> bool:
    """Whether a transform runs, or `torch.compile` or `torch.export` traces: values cannot be looked at then."""
    return torch.compiler.is_compiling() or is_transformed()


def is_recomputing() -> bool:
    """Whether this forward pass is one of activation checkpointing's, within a backward pass: it was counted before."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
