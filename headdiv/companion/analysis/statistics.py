"""Significance of differences over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.95  # probability that an interval holds the true mean of normally distributed numbers


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
    n, mean = len(values), fmean(values) if values else math.nan
    if n < 2 or math.isnan(mean):
        return Interval(mean, math.nan, n)
    return Interval(mean, half_width(stdev(values), n), n)


def half_width(deviation: float, count: int) -> float:
    """Half the width of that interval, from the standard deviation of ``count`` numbers, two or more."""
    from scipy.special import stdtrit  # here, since importing it takes a noticeable time

    return float(stdtrit(count - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(count)
