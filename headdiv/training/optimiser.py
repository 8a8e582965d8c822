"""The optimisers: classes of `torch.optim`, by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from headdiv.core.settings import nearest

# The base class; one that needs a closure; one for sparse gradients, and one only for matrices.
_NOT_HERE = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    name: found
    for name, found in sorted(vars(torch.optim).items())
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and name not in _NOT_HERE
}


def check_optimiser(settings: Mapping[str, Any]) -> None:
    """Check name and options of an optimiser, {"name": …, option: value, …}.

    Raises:
        ValueError: "key: problem", with the nearest name where one is unknown.
    """
    options = dict(settings)
    name = options.pop("name", None)
    if name not in OPTIMISERS:
        raise ValueError(f"name: unknown optimiser {name!r}{nearest(str(name), list(OPTIMISERS))}")
    known = [key for key in inspect.signature(OPTIMISERS[name]).parameters if key not in ("params", "lr")]
    for key in options:
        if key not in known:
            where = "; expected 'learning_rate' beside 'optimiser'" if key == "lr" else nearest(key, known)
            raise ValueError(f"{key}: unknown key{where}")
    try:
        OPTIMISERS[name]([nn.Parameter(torch.zeros(2, 2))], lr=1e-3, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {error}") from None
