"""Whether torch has compiled what is computed, or repeats it."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from headdiv.core.errors import ConfigError

Counts = TypeVar("Counts", bound=Callable[..., bool])
NO_PASS = -1


def uncompiled() -> contextlib.AbstractContextManager[object]:
    """While open, code compiled by `torch.compile` runs uncompiled: compiled code does not see new hooks.

    Raises:
        ConfigError: compiled code itself opens it.
    """
    if "torch._dynamo" not in sys.modules:  # a slow import, without which nothing is compiled
        return contextlib.nullcontext()
    if not torch.compiler.is_compiling():
        with contextlib.suppress(RuntimeError):  # in what a compiled function calls
            return torch.compiler.set_stance("force_eager")
    raise ConfigError(
        "heads are masked or edited within a function that torch.compile has compiled; expected the mask or edit "
        "around the call of the compiled function, which then runs uncompiled"
    )


def is_recomputing() -> bool:
    """Whether activation checkpointing repeats this forward pass within a backward pass: it was counted before."""
    return backward_pass() != NO_PASS


def backward_pass() -> int:
    """The number of the backward pass within which this runs; `NO_PASS` where it runs in none."""
    return NO_PASS if torch.compiler.is_compiling() else torch._C._current_graph_task_id()


def once_a_pass(count: Counts) -> Counts:
    """For what a module counts of a forward pass: not again where activation checkpointing repeats a counted pass.

    The decorated method says whether it counted; the module remembers that as ``pass_counted``. Reentrant checkpointing
    runs the first pass without gradients: a method that does not count such a pass counts the repeated one.
    """

    @functools.wraps(count)
    def call(module: Any, *args: Any) -> bool:
        again = is_recomputing()
        if again and module.pass_counted:
            return False
        counted = count(module, *args)
        if not again and not torch.compiler.is_compiling():
            module.pass_counted = counted
        return counted

    return call
