"""Gradient checkpointing of transformers in attached models: the same gradients as without it.

A checkpointed layer runs again in the backward pass, when masks and edits of heads, the labels' padding and
`record_heads` are gone: they are restored for the second pass. Of torch's two forms only the one that
transformers takes by default, ``use_reentrant=False``; torch refuses the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from headdiv.nn.records import HeadModule
from headdiv.pretrained.padding import Inputs

FUNCTION = "_gradient_checkpointing_func"  # of a layer, transformers' name


def checkpointed(
    original: Callable[..., Any], heads: Sequence[HeadModule], inputs: Inputs, forward: Callable[..., Any], *args: Any
) -> Any:
    """What ``forward(*args)`` returns, run through ``original``, which keeps only its inputs."""
    states = {part: (part.recorders, {**part.masks}, {**part.edits}) for part in heads}
    labels = inputs.labels
    return original(forward, *args, context_fn=lambda: (contextlib.nullcontext(), _restored(states, inputs, labels)))


@contextlib.contextmanager
def _restored(states: dict[HeadModule, tuple[Any, ...]], inputs: Inputs, labels: Tensor | None) -> Iterator[None]:
    """Give heads and labels the state of the first pass while it is repeated."""
    current = {part: (part.recorders, part.masks, part.edits) for part in states}
    for part, state in states.items():
        part.recorders, part.masks, part.edits = state
    try:
        with inputs.repeated(labels):
            yield
    finally:
        for part, state in current.items():
            part.recorders, part.masks, part.edits = state


def watch_checkpointing(model: nn.Module, inputs: Inputs) -> None:
    """Make a model's layers use `checkpointed` for checkpointing, which may be switched on later."""
    for module in model.modules():
        function = vars(module).get(FUNCTION)
        if getattr(module, "gradient_checkpointing", False) and function and not _is_wrapped(function):
            heads = [part for part in module.modules() if isinstance(part, HeadModule)]
            heads = [part for part in heads if getattr(part, "inputs", None) is inputs]  # copies of peft's, too
            vars(module)[FUNCTION] = partial(checkpointed, function, heads, inputs)


def leave_checkpointing(model: nn.Module) -> None:
    """Let layers be checkpointed by transformers alone."""
    for module in model.modules():
        if _is_wrapped(function := vars(module).get(FUNCTION)):
            vars(module)[FUNCTION] = function.args[0]


def _is_wrapped(function: Any) -> bool:
    return getattr(function, "func", None) is checkpointed
