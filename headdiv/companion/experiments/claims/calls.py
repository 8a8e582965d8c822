"""A claim's function with the numbers that it gets: its result, and how that depends on each of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from headdiv.companion.experiments.claims.functions import itself

MOVE = 1e-6  # by which a number is moved to see how a margin depends on it


class ClaimError(ValueError):
    """A claim names what is not there, or its numbers have no result."""


@dataclass(frozen=True)
class Given:
    """A number that a function gets.

    Attributes:
        step: one unit of its last printed digit, so that what was rounded lay within half of it; 0: exact.
        what: what it is, in words: "BLEU"; "" of a constant.
        of: whose: "Direct-8".
    """

    value: float
    step: float = 0.0
    what: str = ""
    of: str = ""


@dataclass(frozen=True)
class Call:
    """A function with its arguments, each a number or a list of numbers."""

    function: Callable[..., float | list[float]]
    arguments: tuple[Given | tuple[Given, ...], ...]

    @property
    def numbers(self) -> tuple[Given, ...]:
        """All of them, one after the other."""
        return tuple(one for given in self.arguments for one in (given if isinstance(given, tuple) else (given,)))

    def result(self) -> float | list[float]:
        """What the function returns. Raises ClaimError: the numbers have no result, such as 1 / 0."""
        values = ([one.value for one in given] if isinstance(given, tuple) else given.value for given in self.arguments)
        try:
            result = self.function(*values)
        except ArithmeticError:
            result = math.nan
        if not all(map(math.isfinite, result if isinstance(result, list) else [result])):
            raise ClaimError(f"{self.equation()} has no result")
        return result

    def value(self) -> float | bool:
        """The result; of a relation whether all of its comparisons hold."""
        result = self.result()
        return all(margin >= 0 for margin in result) if isinstance(result, list) else result

    def margins(self) -> list[float]:
        """By how much each comparison of a relation holds: below 0 where it does not."""
        result = self.result()
        return result if isinstance(result, list) else []

    def slopes(self) -> list[list[float]]:
        """How each comparison's margin changes with each of the `numbers`.

        Exact to six digits where the sides are sums; of a maximum or minimum only the number that it gives counts.
        """
        up, down = ([self._moved(at, by).margins() for at in range(len(self.numbers))] for by in (MOVE, -MOVE))
        columns = [
            [round((high - low) / (2 * MOVE), 6) for high, low in zip(above, below, strict=True)]
            for above, below in zip(up, down, strict=True)
        ]
        return [list(of_margin) for of_margin in zip(*columns, strict=True)]

    def spread(self) -> float:
        """How far the result can be off because its numbers were rounded when they were printed: 0 or more.

        The sum over the numbers of how far half a unit of the last digit moves the result, which is exact for sums
        and, for ratios of numbers with several digits, off by next to nothing.
        """
        result = self.result()
        if isinstance(result, list):
            return 0.0
        return sum(
            max(abs(self._moved(at, side * number.step / 2).value() - result) for side in (-1, 1))
            for at, number in enumerate(self.numbers)
            if number.step
        )

    @property
    def what(self) -> str:
        """What is computed: the function's docstring; of a number itself what it is."""
        said = (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")
        return self.numbers[0].what if self.function is itself and self.numbers[0].what else said

    def equation(self) -> str:
        """The same, and of which numbers."""
        parts = []
        for what, group in groupby(self.numbers, lambda one: one.what):
            listed = ", ".join(f"{one.of} {show(one.value)}".strip() for one in group)
            parts.append(f"{what}: {listed}" if what else listed)
        numbers = "; ".join(parts)
        return numbers if self.function is itself else f"{self.what} ({numbers})"

    def text(self) -> str:
        """The same with its result."""
        return self.equation() if self.function is itself else f"{self.equation()}: {show(self.value())}"

    def _moved(self, at: int, by: float) -> Call:
        numbers: Sequence[Given] = [
            replace(one, value=one.value + by) if position == at else one for position, one in enumerate(self.numbers)
        ]
        rest: Iterator[Given] = iter(numbers)
        arguments = (
            tuple(next(rest) for _ in given) if isinstance(given, tuple) else next(rest) for given in self.arguments
        )
        return replace(self, arguments=tuple(arguments))


def show(value: float) -> str:
    """A number in a text: whole ones in full, with thousands set apart, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{int(value):,}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"
