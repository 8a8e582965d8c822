"""Masking heads of a trained model (Michel et al. 2019).

A masked head's outputs are 0 in front of the output stage; its neighbours in the module do not make up for it.
In DEACON that is before the batch normalisation, which turns 0 into a constant.

The heads of a model are named by attention module ("encoder 1", "decoder 2", "cross 1") and number, from 1.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from headdiv.core.errors import DataError
from headdiv.core.tracing import uncompiled
from headdiv.nn.records import HeadModule, attention_modules, by_name

Masks = Mapping[str, Sequence[float] | Tensor]  # by attention module: a number for each head, 0 or 1
Head = tuple[str, int]  # attention module, number from 1
Value = TypeVar("Value")


class HeadChange(NamedTuple):
    """What masking one head changes."""

    place: str  # attention module
    head: int  # from 1
    change: float  # of what is measured, or Michel et al.'s estimate of it; of a loss, above 0 where the head is useful


def heads_of(model: nn.Module) -> dict[str, int]:
    """Number of heads of every attention module, in the order of a forward pass; for a mixture, its slots.

    Raises:
        DataError: two modules share a name.
    """
    return {name: module.head_slots for name, module in _modules(model).items()}


def _modules(model: nn.Module) -> dict[str, HeadModule]:
    return by_name((module.spec.name, module) for module in attention_modules(model))


def module_named(name: str, modules: Mapping[str, Value]) -> Value:
    """What ``modules`` has for one of a model's attention modules; a DataError where there is none of this name."""
    if name not in modules:
        raise DataError(f"the model has no attention {name!r}; there are: {', '.join(modules)}")
    return modules[name]


@contextlib.contextmanager
def masked_heads(model: nn.Module, masks: Masks) -> Iterator[None]:
    """While open, the outputs of heads are multiplied by ``masks``, in forward passes and in cached decoding.

    Afterwards the model is as it was. Records of heads (`record_heads`) show their outputs before masking. For a
    mixture of heads the i-th number is for the i-th of each token's chosen heads. Compiled models run uncompiled
    meanwhile.

    Args:
        model: anything that holds attention modules.
        masks: by attention module: a number for each head; 0 masks it, 1 leaves it alone. Modules that are not named
            are left alone.

    Raises:
        DataError: there is no such module, its number of heads differs, or two modules share a name.
        ConfigError: it is opened within compiled code.
    """
    modules = _modules(model)
    for name, mask in masks.items():
        slots = module_named(name, modules).head_slots
        if len(mask) != slots:
            raise DataError(f"{name} has {slots} heads, found a mask of {len(mask)} numbers")
    with uncompiled(), contextlib.ExitStack() as stack:
        for name, mask in masks.items():
            device = next((p.device for p in modules[name].parameters()), None)  # attached heads have none
            stack.callback(modules[name].mask_heads(torch.as_tensor(mask, device=device)).remove)
        yield


def masks_without(model: nn.Module, removed: Sequence[Head]) -> dict[str, Tensor]:
    """The masks that remove these heads.

    Raises:
        DataError: one of them is not there.
    """
    counts, masks = heads_of(model), {}
    for name, head in removed:
        if not 1 <= head <= counts.get(name, 0):
            ranges = ", ".join(f"1 to {count} in {module}" for module, count in counts.items())
            raise DataError(f"the model has no head {head} in {name!r}; heads are {ranges}")
        masks.setdefault(name, torch.ones(counts[name]))[head - 1] = 0
    return masks


def least_important_first(importance: Sequence[HeadChange]) -> list[Head]:
    """The heads in the order in which they are pruned; those without which the metric is NaN come last."""
    ordered = sorted(importance, key=lambda entry: (math.isnan(entry.change), entry.change))
    return [(entry.place, entry.head) for entry in ordered]
