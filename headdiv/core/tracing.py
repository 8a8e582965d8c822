"""Whether torch traces or transforms what is computed."""

from __future__ import annotations

import torch

NO_PASS = -1


def is_transformed() -> bool:
    """Whether a transform of `torch.func` runs, which takes no `torch.autograd.Function` of the old style."""
    return torch._C._are_functorch_transforms_active()


def is_traced() -> bool:
    """Whether a transform runs, or `torch.compile` or `torch.export` traces: values cannot be looked at then."""
    return torch.compiler.is_compiling() or is_transformed()


def is_recomputing() -> bool:
    """Whether this forward pass is one of activation checkpointing's, within a backward pass: it was counted before."""
    return backward_pass() != NO_PASS


def backward_pass() -> int:
    """The number of the backward pass within which this runs; `NO_PASS` where it runs in none."""
    return NO_PASS if torch.compiler.is_compiling() else torch._C._current_graph_task_id()


def refuse_second_derivatives(of: str) -> None:
    """Raise, in a backward pass written by hand, where its own gradient is asked for, which would come out wrong."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(f"{of}: has no second derivative; found create_graph=True, expected False")
