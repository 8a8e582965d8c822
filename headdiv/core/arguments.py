"""Checks of public calls' arguments: a wrong one is refused in one sentence, before anything is computed."""

from __future__ import annotations

from typing import Any


def must_be(name: str, value: Any, kind: Any, expected: str) -> None:
    """Raise a TypeError that names the argument unless it is of this kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: found {value!r:.80}, expected {expected}")


def must_be_progress(progress: float) -> None:
    """Raise a ValueError unless it is a fraction of the training: a number of steps would change results silently."""
    if not 0 <= progress <= 1:
        raise ValueError(f"progress: found {progress!r:.80}, expected the share of the training that is done, 0 to 1")
