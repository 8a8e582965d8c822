"""Functions by which claims are computed: what they return is what their docstring says, and nothing is rounded.

A paper's own stand in its file of claims. Of a relation a function returns its margins: by how much each comparison
holds, below 0 where it does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

Margins = list[float]
TIE = 1e-12  # what a strict comparison of equal numbers falls short by


def itself(number: float) -> float:
    """The number itself."""
    return number


def hundredth(number: float) -> float:
    """The number as a share of 1, of 100."""
    return number / 100


def in_thousands(number: float) -> float:
    """The number, in thousands."""
    return number / 1000


def in_millions(number: float) -> float:
    """The number, in millions."""
    return number / 1e6


def total(numbers: Sequence[float]) -> float:
    """The sum of the numbers."""
    return sum(numbers)


def highest(numbers: Sequence[float]) -> float:
    """The highest of the numbers."""
    return max(numbers)


def lowest(numbers: Sequence[float]) -> float:
    """The lowest of the numbers."""
    return min(numbers)


def difference(number: float, other: float) -> float:
    """The first number minus the second."""
    return number - other


def product(number: float, other: float) -> float:
    """The first number times the second."""
    return number * other


def ratio(number: float, other: float) -> float:
    """The first number divided by the second."""
    return number / other


def percent(number: float, whole: float) -> float:
    """The first number in percent of the second."""
    return 100 * number / whole


def percent_of_total(number: float, numbers: Sequence[float]) -> float:
    """The first number in percent of the sum of the others."""
    return 100 * number / sum(numbers)


def percent_above(number: float, other: float) -> float:
    """By how many percent of the second number the first is above it."""
    return 100 * (number / other - 1)


def percent_below(number: float, other: float) -> float:
    """By how many percent of the second number the first is below it."""
    return 100 * (1 - number / other)


def words(reported: float, of_one: float, of_two: float) -> float:
    """How many words make the first count, the second being that of one word and the third that of two."""
    return 1 + (reported - of_one) / (of_two - of_one)


def whole_words(reported: float, of_one: float, of_two: float) -> float:
    """The count nearest to the first that a whole number of words makes, by the counts of one word and of two."""
    word = of_two - of_one
    return of_one + word * round((reported - of_one) / word)


# ---- relations


def higher(number: float, other: float) -> Margins:
    """The first number is higher than the second."""
    return [number - other - TIE]


def lower(number: float, other: float) -> Margins:
    """The first number is lower than the second."""
    return [other - number - TIE]


def not_higher(number: float, other: float) -> Margins:
    """The first number is not higher than the second."""
    return [other - number]


def within_half_a_point(number: float, other: float) -> Margins:
    """The two numbers differ by half a point at the most."""
    return [number - other + 0.5, 0.5 - (number - other)]


def ascending(numbers: Sequence[float]) -> Margins:
    """Each of the numbers is higher than the one before it."""
    return [after - before - TIE for before, after in itertools.pairwise(numbers)]


def each_higher(numbers: Sequence[float], others: Sequence[float]) -> Margins:
    """Each of the first numbers is higher than its counterpart among the second."""
    return [number - other - TIE for number, other in zip(numbers, others, strict=True)]


def all_higher(numbers: Sequence[float], others: Sequence[float]) -> Margins:
    """All of the first numbers are higher than all of the second."""
    return [min(numbers) - max(others) - TIE]


def best_is_higher(numbers: Sequence[float], others: Sequence[float]) -> Margins:
    """The highest of the first numbers is higher than all of the second."""
    return [max(numbers) - max(others) - TIE]


def best_is_as_high(numbers: Sequence[float], others: Sequence[float]) -> Margins:
    """The highest of the first numbers is the highest of the second as well."""
    return [-abs(max(numbers) - max(others))]


def best_is_higher_in_each(*columns: Sequence[float] | float) -> Margins:
    """In each list of numbers the highest is higher than the number that stands after the list."""
    return [max(numbers) - other - TIE for numbers, other in _pairs(columns)]


def all_higher_in_each(*columns: Sequence[float] | float) -> Margins:
    """In each list all numbers are higher than the number that stands after the list."""
    return [min(numbers) - other - TIE for numbers, other in _pairs(columns)]


def all_lower_in_each(*columns: Sequence[float] | float) -> Margins:
    """In each list all numbers are lower than the number that stands after the list."""
    return [other - max(numbers) - TIE for numbers, other in _pairs(columns)]


def _pairs(columns: Sequence[Any]) -> Iterator[tuple[Sequence[float], float]]:
    return zip(columns[::2], columns[1::2], strict=True)
