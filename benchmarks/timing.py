"""Times of steps taken in turn: only their ratios mean anything on another machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

WARM_UP = 3  # rounds that are not counted

Step = Callable[[int], object]  # called with the number of the round


class Ratio(NamedTuple):
    """Over the rounds."""

    low: float  # a quartile
    median: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> Ratio:
        """Of each round's ratio: (rounds,)."""
        return cls(*np.quantile(values, [0.25, 0.5, 0.75]).round(4).tolist())


def interleaved(steps: Mapping[str, Step], rounds: int) -> dict[str, np.ndarray]:
    """Time every step once a round, in every second round in reverse order.

    Returns:
        By name, seconds of each round after `WARM_UP` others: (rounds,).
    """
    seconds = {name: np.zeros(WARM_UP + rounds) for name in steps}
    for number in range(WARM_UP + rounds):
        for name in list(steps)[:: -1 if number % 2 else 1]:
            began = time.perf_counter()
            steps[name](number)
            seconds[name][number] = time.perf_counter() - began
    return {name: values[WARM_UP:] for name, values in seconds.items()}
