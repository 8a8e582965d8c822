"""The optimisers: every class of `torch.optim` that needs gradients alone, by its name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from headdiv.core.errors import ConfigError
from headdiv.core.settings import nearest

_NOT_HERE = {"Optimizer", "LBFGS", "SparseAdam"}  # the base class; needs a closure; needs sparse gradients
OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    name: found
    for name, found in sorted(vars(torch.optim).items())
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and name not in _NOT_HERE
}


def check_optimiser(settings: Mapping[str, Any]) -> None:
    """Check the name and the options of an optimiser.

    Args:
        settings: {"name": …, option: value, …}.

    Raises:
        ValueError: "key: problem", with the nearest name where one is unknown.
    """
    options = dict(settings)
    name = options.pop("name", None)
    if name not in OPTIMISERS:
        raise ValueError(f"name: unknown optimiser {name!r}{nearest(str(name), list(OPTIMISERS))}")
    if "lr" in options:
        raise ValueError("lr: unknown key; expected the rate in 'learning_rate', beside 'optimiser'")
    known = [key for key in inspect.signature(OPTIMISERS[name]).parameters if key not in ("params", "lr")]
    for key in options:
        if key not in known:
            raise ValueError(f"{key}: unknown key{nearest(key, known)}")
    try:
        OPTIMISERS[name]([nn.Parameter(torch.zeros(2, 2))], lr=1e-3, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {error}") from None


def make_optimiser(
    parameters: Iterable[nn.Parameter], name: str, options: Mapping[str, Any], learning_rate: float
) -> torch.optim.Optimizer:
    """The optimiser of this name.

    Raises:
        ConfigError: it does not take these parameters (Muon takes matrices only).
    """
    try:
        return OPTIMISERS[name](parameters, lr=learning_rate, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"train.optimiser.{name}: {error}") from None
