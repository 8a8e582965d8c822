"""Checks of public calls' arguments: a wrong one is refused in one sentence, before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Sized
from numbers import Integral, Real
from typing import Any, TypeVar

Item = TypeVar("Item")


def must_be(name: str, value: Any, kind: Any, expected: str) -> None:
    """Raise a TypeError that names the argument unless it is of this kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: found {value!r:.80}, expected {expected}")


def must_be_number(name: str, value: Any, least: float | None = None, whole: bool = False) -> None:
    """Raise a TypeError unless it is a number, or a whole one; a ValueError where it is below ``least`` (nan is)."""
    must_be(name, value, Integral if whole else Real, "a whole number" if whole else "a number")
    if least is not None and not value >= least:
        raise ValueError(f"{name}: found {value!r:.80}, expected {least:g} at least")


def must_be_progress(progress: Any) -> None:
    """Raise a TypeError or a ValueError unless it is a fraction of the training, from 0 to 1."""
    must_be_number("progress", progress, 0)
    if progress > 1:
        raise ValueError(
            f"progress: found {progress!r:.80}, expected 1 at most: the share of the training that is done"
        )


def must_be_count(count: Any) -> None:
    """Raise a TypeError or a ValueError unless it is a number of predictions, 1 or more."""
    must_be_number("count", count, 1, whole=True)


def as_number(name: str, value: Any) -> float:
    """A number, or a tensor that holds one, as a float; otherwise a TypeError."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name}: found {value!r:.80}, expected a number") from None


def as_json(name: str, value: Any) -> Any:
    """A value of JSON as it comes back from a file: tuples as lists, keys as text; TypeError or ValueError if none."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: found {value!r:.80}, expected what JSON can hold ({error})") from None


def listed(name: str, items: Iterable[Item], kind: Any = object, what: str = "anything") -> list[Item]:
    """A sequence as a list; anything without a length is not read.

    Raises:
        TypeError: it is not a sequence, or an item is not of the kind.
    """
    if not isinstance(items, Iterable) or not isinstance(items, Sized) or isinstance(items, str | bytes):
        raise TypeError(f"{name}: found {items!r:.80}, expected a list of {what}")
    found = list(items)
    for number, item in enumerate(found):
        must_be(f"{name}[{number}]", item, kind, what)
    return found


def numbers(name: str, values: Sequence[float]) -> list[float]:
    """A sequence of numbers as a list; raises as `listed`."""
    return listed(name, values, Real, "numbers")
