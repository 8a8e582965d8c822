"""Numbers as they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval

NONE = "–"
FURTHEST = 7  # decimals of a small number
LONGEST = 600  # characters of a text in a table


def as_printed(value: float | None, digits: int, half: float | None = None) -> str:
    """A number with the paper's decimals, and its ± (half an interval's width) if it has one other than 0.

    A number that these decimals would round to 0 has two significant digits: 0.00012, not 0.0; but 0.0 ± 0.3. Beyond
    `FURTHEST` decimals it is 1.2e-08.
    """
    if pd.isna(value):
        return NONE
    if _vanishes(value, digits) and (pd.isna(half) or half == 0 or _vanishes(half, digits)):
        digits = _decimals(value, figures=2)
        if digits > FURTHEST:
            text = f"−{-value:.1e}" if value < 0 else f"{value:.1e}"
            return f"{text} ± {half:.1e}" if half and not pd.isna(half) else text
    return _with_half(value, digits, half)


def signed(value: float | None, digits: int, half: float | None = None) -> str:
    """A difference: the same with its sign, and with the decimals that show whether its interval leaves out 0."""
    if value is not None and half and abs(value) > half:
        while digits < FURTHEST and round(abs(value), digits) <= round(half, digits):
            digits += 1
    sign = "+" if value is not None and value > 0 else ""
    return sign + as_printed(value, digits, half)


def with_intervals(intervals: Iterable[Interval], digits: int) -> list[str]:
    """Means and their ±, `as_printed`; of differences, `signed`."""
    return [
        signed(interval.mean, digits, interval.half)
        if isinstance(interval, Difference)
        else as_printed(interval.mean, digits, interval.half)
        for interval in intervals
    ]


def enough_digits(values: Iterable[float], digits: int) -> int:
    """Decimals for a column of which every number keeps two significant digits; ``digits`` where they are enough.

    Otherwise a toy's milliseconds and days would be 0, 1 or 2 beside the paper's 41. Whole numbers need no decimals.
    """
    decimals = [_decimals(value, figures=2) for value in values if not pd.isna(value) and value != round(value)]
    limit = min(decimals, default=0) + 3  # one tiny number does not widen a column of larger ones
    return max([digits, *(number for number in decimals if number <= limit)])


def significant(value: float | None, half: float | None = None) -> str:
    """A number with four significant digits, but never rounded before the point."""
    if pd.isna(value):
        return NONE
    return _with_half(value, _decimals(value, figures=4), half)


def _vanishes(value: float, digits: int) -> bool:
    return value != 0 and float(f"{value:.{digits}f}") == 0


def _decimals(value: float, figures: int) -> int:
    if value == 0:
        return figures - 1
    return max(0, figures - 1 - math.floor(math.log10(abs(value))))


def _with_half(value: float, digits: int, half: float | None) -> str:
    text = f"{value:z,.{digits}f}".replace("-", "−")  # no −0; and a hyphen is too short beside the +
    if pd.isna(half) or half == 0:
        return text
    if _vanishes(half, digits):
        digits = _decimals(half, figures=1)
    return f"{text} ± {half:,.{digits}f}"


def with_unit(label: str, unit: str) -> str:
    """ "BLEU (0 to 100)"; without a unit the label alone."""
    return f"{label} ({unit})" if unit else label


def shortened(text: str) -> str:
    """The text, cut after `LONGEST` characters."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def plurals(counts: Iterable[int], noun: str) -> str:
    """ "2 epochs"; of different counts "2 or 5 epochs", of more than two "31 to 40 epochs"."""
    *smaller, largest = sorted(set(counts))
    if not smaller:
        return plural(largest, noun)
    return f"{smaller[0]:,} {'to' if len(smaller) > 1 else 'or'} {plural(largest, noun)}"


def seeds_named(seeds: Iterable[int]) -> str:
    """ "seed 1", "seeds 1, 2, 3"."""
    distinct = sorted(set(seeds))
    return f"seed{'' if len(distinct) == 1 else 's'} {', '.join(map(str, distinct))}"


def plural(count: int, noun: str) -> str:
    """ "1 seed", "2 seeds"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
