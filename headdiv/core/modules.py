"""The modules of a model that take part in its forward pass, and copies of parts of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeVar

from torch import nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)
Made = TypeVar("Made")


def active_modules(model: nn.Module, kind: type[AnyModule] | tuple[type[AnyModule], ...]) -> dict[str, AnyModule]:
    """Modules of these classes by name, in the model's order, each once.

    Where PEFT's ``modules_to_save`` keeps a module beside copies that adapters train, only the one that runs is among
    them: the active adapter's copy, or the module itself where no adapter is active or another layer shares it.
    """
    return {name: module for name, module in _active(model, "", set()) if isinstance(module, kind)}


def _active(module: nn.Module, name: str, seen: set[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    if module in seen:
        return
    seen.add(module)
    yield name, module
    for child_name, child in _running(module):
        yield from _active(child, f"{name}.{child_name}" if name else child_name, seen)


def _running(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A module's children; of those that a wrapper of PEFT holds, the one that it runs."""
    original, copies = (module._modules.get(name) for name in ("original_module", "modules_to_save"))
    if original is None or not isinstance(copies, nn.ModuleDict):
        yield from module.named_children()
        return
    adapters = module.active_adapter  # one, or a list of at most one
    adapters = [] if module.disable_adapters else [adapters] if isinstance(adapters, str) else adapters
    running = ((f"modules_to_save.{adapter}", copies[adapter]) for adapter in adapters if adapter in copies)
    yield next(running, ("original_module", original))


def with_state(made: Made, memo: dict[int, Any]) -> Made:
    """What `copy.deepcopy` makes of an object without a ``__deepcopy__`` of its own."""
    copied = memo[id(made)] = made.__new__(type(made))
    copied.__dict__.update(copy.deepcopy(made.__dict__, memo))
    return copied


class Holder:
    """Refers from a module to one that holds it, such as its layer.

    In a copy of the holder it refers to that copy, in a copy of the module alone, as PEFT makes them, to the same
    holder. It is not a submodule.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __deepcopy__(self, memo: dict[int, Any]) -> Holder:
        return Holder(memo.get(id(self.module), self.module))
