"""Modules of a model that are replaced by others: planned as a whole, which may raise, and then done, which cannot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headdiv.core.errors import ConfigError
from headdiv.nn.linear import WeightAndBias


@dataclass(frozen=True)
class Replacement:
    """A module that is to stand where another one does now."""

    owner: nn.Module
    name: str  # of the owner's attribute
    new: nn.Module

    @property
    def old(self) -> nn.Module:
        """What stands there."""
        return getattr(self.owner, self.name)


def replace(plan: list[Replacement]) -> None:
    """Put the new modules where the old ones are, with the hooks of those."""
    for old, new in {each.old: each.new for each in plan}.items():
        _move_hooks(old, new)
    for each in plan:
        setattr(each.owner, each.name, each.new)


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Move the hooks of forward and backward passes; their handles stay valid."""
    for name, value in vars(nn.Module()).items():
        if "_hooks" in name and name.startswith(("_forward", "_backward")):
            moved = old.__dict__[name]
            moved.update(new.__dict__[name])
            new.__dict__[name], old.__dict__[name] = moved, type(value)()
    new._is_full_backward_hook, old._is_full_backward_hook = old._is_full_backward_hook, None


@torch.no_grad()
def start_from(stage: nn.Module, weight: Tensor, offset: Tensor | None) -> None:
    """Start an output stage from a projection's weight (D, H·K) and bias; frozen where they are."""
    values = torch.zeros(len(weight)) if offset is None else offset
    if hasattr(stage, "init_from"):
        stage.init_from(weight, values)
    elif isinstance(stage, nn.Linear):
        stage.weight.copy_(weight)
        stage.bias.copy_(values)
    else:
        raise ConfigError(
            f"the output stage {type(stage).__name__} cannot start from a projection's weights; "
            "expected an nn.Linear, or a method init_from(weight, bias)"
        )
    projection = stage if isinstance(stage, nn.Linear | WeightAndBias) else getattr(stage, "project", None)
    if projection is not None:
        projection.weight.requires_grad_(weight.requires_grad)
        projection.bias.requires_grad_((weight if offset is None else offset).requires_grad)
