"""The methods: what each changes in attention, loss or update. `headdiv.methods.base` says how to add one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headdiv.methods.options import check_method, stored_method
    from headdiv.methods.registry import METHODS, make_method

__all__ = ["METHODS", "check_method", "make_method", "stored_method"]


def __getattr__(name: str) -> Any:
    """Look up a name on first use: `headdiv.methods.options` is imported without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "options" if name in ("check_method", "stored_method") else "registry"
    return getattr(importlib.import_module(f"headdiv.methods.{module}"), name)
