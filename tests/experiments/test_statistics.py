"""Intervals over seeds."""

import math
import statistics as plain

import numpy as np
import pytest

from headdiv.companion.analysis.statistics import interval

# Student's t, two-sided 95 %, as tables print it.
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize("freedom", PRINTED)
def test_quantiles_are_those_of_printed_tables(freedom):
    values = list(np.random.default_rng(freedom).normal(size=freedom + 1))
    assert round(interval(values).half / plain.stdev(values) * math.sqrt(freedom + 1), 3) == PRINTED[freedom]


def test_an_interval_of_three_seeds():
    found = interval([30.0, 31.0, 32.0])
    assert (found.mean, found.count) == (31.0, 3)
    assert found.half == pytest.approx(4.302653 * 1.0 / math.sqrt(3), rel=1e-6)
    assert (found.low, found.high) == (31.0 - found.half, 31.0 + found.half)


def test_one_seed_has_no_interval_and_none_no_mean():
    assert interval([4.0]).mean == 4.0
    assert all(math.isnan(x) for x in (interval([4.0]).half, interval([4.0]).low, interval([]).mean))
    assert math.isnan(interval([1.0, math.nan]).mean)
    assert interval([2.0, 2.0]).half == 0
