"""The modules of a model that take part in its forward pass, and copies of parts of it."""

from __future__ import annotations

import copy
from collections.abc import ItemsView
from typing import Any, TypeVar

from torch import nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)
Copied = TypeVar("Copied")


def active_modules(model: nn.Module, kind: type[AnyModule] | tuple[type[AnyModule], ...]) -> dict[str, AnyModule]:
    """Modules of these classes by name, in the model's order, each once.

    Where PEFT's ``modules_to_save`` keeps a module beside copies that adapters train, only the one that runs is among
    them: the active adapter's copy, or the module itself where no adapter is active or another layer shares it.
    """
    active, seen = {}, set()
    to_visit: list[tuple[str, nn.Module]] = [("", model)]  # a stack: every step of a training walks through the model
    while to_visit:
        name, module = to_visit.pop()
        if module in seen:
            continue
        seen.add(module)
        if isinstance(module, kind):
            active[name.removeprefix(".")] = module
        for child_name, child in reversed(_active_children(module)):
            if child is not None:
                to_visit.append((f"{name}.{child_name}", child))
    return active


def _active_children(module: nn.Module) -> ItemsView[str, nn.Module | None] | list[tuple[str, nn.Module]]:
    """A module's children; of those that a wrapper of PEFT holds, the one that it runs."""
    original, copies = module._modules.get("original_module"), module._modules.get("modules_to_save")
    if original is None or not isinstance(copies, nn.ModuleDict):
        return module._modules.items()
    adapters = module.active_adapter  # one, or a list of at most one
    if module.disable_adapters:
        adapters = []
    elif isinstance(adapters, str):
        adapters = [adapters]
    active = ((f"modules_to_save.{adapter}", copies[adapter]) for adapter in adapters if adapter in copies)
    return [next(active, ("original_module", original))]


def with_state(original: Copied, memo: dict[int, Any]) -> Copied:
    """The copy that `copy.deepcopy` would make if the class had no ``__deepcopy__``."""
    copied = memo[id(original)] = original.__new__(type(original))
    copied.__dict__.update(copy.deepcopy(original.__dict__, memo))
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
