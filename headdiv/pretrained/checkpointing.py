"""Gradient checkpointing of transformers in attached models: the same gradients as without it.

A checkpointed layer runs again in the backward pass, when masks and edits of heads, the labels' padding and
`record_heads` are gone. `Checkpointed` replaces the function that a layer calls for this, lets the second pass see what
the first one saw, and returns the records as outputs of the layer, so that they also have a gradient in the reentrant
form, whose first pass has none inside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from headdiv.core.tracing import is_recomputing
from headdiv.nn.records import HeadModule, HeadRecord, Recorder
from headdiv.pretrained.padding import Inputs

FUNCTION = "_gradient_checkpointing_func"  # of a layer, transformers' name


@dataclass
class Checkpointed:
    """Runs a layer through ``original``, which keeps only its inputs."""

    original: Callable[..., Any]
    heads: list[HeadModule]  # the layer's
    inputs: Inputs

    def __call__(self, forward: Callable[..., Any], *args: Any) -> Any:
        """What ``forward(*args)`` returns."""
        weights = {each: each.needs_weights for each in self.heads if each.recorders}
        states = {each: {"masks": dict(each.masks), "edits": dict(each.edits)} for each in self.heads}
        labels, first, several = self.inputs.labels, list[HeadRecord](), False

        def run(*inputs: Any) -> tuple[Any, ...]:
            nonlocal first, several
            again, records = is_recomputing(), list[HeadRecord]()
            recorders = {each: (Recorder(needed, records),) for each, needed in weights.items()}
            there = {each: state | {"recorders": recorders.get(each, ())} for each, state in states.items()}
            with self.inputs.repeated(labels) if again else contextlib.nullcontext(), _with(there):
                found = forward(*inputs)
            if not again:
                first, several = records, isinstance(found, tuple)
            recorded = [x for record in records for x in (record.weights, record.values, record.outputs)]
            return *(found if isinstance(found, tuple) else (found,)), *recorded

        outputs = self.original(run, *args)
        own = len(outputs) - 3 * len(first)
        for record, *tensors in zip(first, *(outputs[own + i :: 3] for i in range(3)), strict=True):
            place = next(each for each in weights if each.spec.name == record.spec.name)
            place.keep_record(replace(record, **dict(zip(("weights", "values", "outputs"), tensors, strict=True))))
        return outputs[:own] if several else outputs[0]


@contextlib.contextmanager
def _with(states: dict[HeadModule, dict[str, Any]]) -> Iterator[None]:
    """Temporarily with these attributes."""
    before = {each: {name: vars(each)[name] for name in state} for each, state in states.items()}
    for each, state in states.items():
        vars(each).update(state)
    try:
        yield
    finally:
        for each, state in before.items():
            vars(each).update(state)


def watch_checkpointing(model: nn.Module, inputs: Inputs) -> None:
    """Make a model's layers use `Checkpointed` for checkpointing, which may be switched on later."""
    for module in model.modules():
        function = vars(module).get(FUNCTION)
        if getattr(module, "gradient_checkpointing", False) and function and not isinstance(function, Checkpointed):
            heads = [part for part in module.modules() if isinstance(part, HeadModule)]
            own = [each for each in heads if getattr(each, "inputs", None) is inputs]  # copies of peft's, too
            vars(module)[FUNCTION] = Checkpointed(function, own, inputs)


def leave_checkpointing(model: nn.Module) -> None:
    """Let layers be checkpointed by transformers alone."""
    for module in model.modules():
        if isinstance(function := vars(module).get(FUNCTION), Checkpointed):
            vars(module)[FUNCTION] = function.original
