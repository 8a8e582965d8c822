"""Whether torch has compiled what is computed, or repeats it."""

from __future__ import annotations

import contextlib
import sys

import torch

from headdiv.core.errors import ConfigError

NO_PASS = -1


def uncompiled() -> contextlib.AbstractContextManager[object]:
    """While open, code compiled by `torch.compile` runs uncompiled: compiled code does not see new hooks.

    Raises:
        ConfigError: compiled code itself opens it.
    """
    if "torch._dynamo" not in sys.modules:  # a slow import, without which nothing is compiled
        return contextlib.nullcontext()
    if not torch.compiler.is_compiling():
        with contextlib.suppress(RuntimeError):  # raised within what a compiled function calls
            return torch.compiler.set_stance("force_eager")
    raise ConfigError(
        "heads are masked or edited within a function that torch.compile has compiled; expected the mask or edit "
        "around the call of the compiled function, which then runs uncompiled"
    )


def is_recomputing() -> bool:
    """Whether activation checkpointing (``use_reentrant=False``) repeats this pass, which was counted before."""
    return backward_pass() != NO_PASS


def backward_pass() -> int:
    """The number of the backward pass within which this runs; `NO_PASS` where it runs in none."""
    return NO_PASS if torch.compiler.is_compiling() else torch._C._current_graph_task_id()
