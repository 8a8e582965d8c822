"""Significance of differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from headdiv.core.arguments import must_be_number, numbers

LEVEL = 0.95  # probability that an interval holds the true mean of normally distributed numbers
MOST = 1e150  # whose squares are finite


@dataclass(frozen=True)
class Interval:
    """Mean over seeds and half the width of its interval."""

    mean: float  # NaN where there is no number
    half: float  # NaN for one number: it has no interval
    count: int

    @property
    def low(self) -> float:
        """Lower end; NaN for one number."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end; NaN for one number."""
        return self.mean + self.half


def interval(values: Sequence[float]) -> Interval:
    """Mean and Student's interval, mean ± t·s/√n with n − 1 degrees of freedom, of numbers from different seeds.

    Args:
        values: one for each seed. A single one has no interval; if one is NaN, so is the mean.
    """
    values = numbers("values", values)
    n, mean = len(values), _mean(values)
    if n < 2 or math.isnan(mean):
        return Interval(mean, math.nan, n)
    return Interval(mean, half_width(stdev(values), n), n)


def half_width(deviation: float, count: int) -> float:
    """Half the width of that interval, from the standard deviation of ``count`` numbers, two or more."""
    must_be_number("deviation", deviation, 0)
    must_be_number("count", count, 2, whole=True)
    from scipy.special import stdtrit  # here, since importing it takes a noticeable time

    return float(stdtrit(count - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(count)


def _mean(values: Sequence[float]) -> float:
    """The mean; NaN without numbers; a ValueError where a number, or its square, is infinite."""
    if large := [value for value in values if abs(value) > MOST]:
        raise ValueError(f"values: found {large[0]!r:.40}, expected numbers up to {MOST:g}")
    return fmean(values) if values else math.nan
