"""Changes to a model that are made completely or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def all_or_nothing(model: nn.Module) -> Iterator[None]:
    """If an error leaves the block, every module has its parameters, submodules, hooks and attributes as before.

    Tensors changed in place stay changed.
    """
    kept = []
    for part in list(model.modules()):
        state = dict(part.__dict__)
        kept.append((part, state, {name: dict(value) for name, value in state.items() if isinstance(value, dict)}))
    try:
        yield
    except BaseException:
        for part, state, contents in kept:
            part.__dict__.clear()
            part.__dict__.update(state)
            for name, entries in contents.items():
                state[name].clear()
                state[name].update(entries)
        raise
