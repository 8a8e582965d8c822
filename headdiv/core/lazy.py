"""Packages whose names are imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader


def attach(
    package: str, file: str, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__, __dir__, __all__`` of a package, from the stub ``__init__.pyi`` that type checkers read too.

    Args:
        package: its ``__name__``; ``file``: its ``__file__``.
        extra: the extra of headdiv that an ImportError names where something is not installed.
    """
    found, names, public = lazy_loader.attach_stub(package, file)

    def lookup(name: str) -> Any:
        try:
            return found(name)
        except ModuleNotFoundError as error:
            if extra is None or (error.name or "").startswith("headdiv"):
                raise
            raise ImportError(f"{package}.{name} needs {error.name}: pip install 'headdiv[{extra}]'") from error

    return lookup, names, public
