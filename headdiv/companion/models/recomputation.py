"""Activation checkpointing (Chen et al. 2016): activations are computed again in the backward pass instead of kept.

Around a module with our attention `torch.utils.checkpoint.checkpoint` gives the same gradients, statistics and records
(records with gradient where ``use_reentrant=False``). It makes other modules count twice; `recomputed` does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from headdiv.nn.records import HeadModule, Recorder


def recomputed(module: nn.Module, *inputs: Any) -> Any:
    """``module(*inputs)``, of which only inputs and outputs are kept; gradients are the same to the last bit.

    The second pass draws the same random numbers. What modules count in a forward pass (running statistics, moments,
    activations, head records) is counted in the first pass only, as long as it is kept in buffers changed in place or
    in attributes that are replaced.
    """
    recorders = {part: part.recorders for part in module.modules() if isinstance(part, HeadModule)}
    contexts = contextlib.nullcontext(), _forgetting(module, recorders)
    return checkpoint(module, *inputs, use_reentrant=False, context_fn=lambda: contexts)


@contextlib.contextmanager
def _forgetting(module: nn.Module, recorders: dict[HeadModule, tuple[Recorder, ...]]) -> Iterator[None]:
    """Restore attributes and buffers at the end; meanwhile heads record as they did then, but nothing is kept."""
    kept = {part: part.__dict__ for part in module.modules()}
    for part, state in kept.items():
        buffers = {name: buffer if buffer is None else buffer.clone() for name, buffer in state["_buffers"].items()}
        part.__dict__ = state | {"_buffers": buffers}
    for part, earlier in recorders.items():
        part.recorders = tuple(Recorder(recorder.weights, []) for recorder in earlier)
        part.gave_weights = any(recorder.weights for recorder in earlier)
    try:
        yield
    finally:
        for part, state in kept.items():
            part.__dict__ = state
