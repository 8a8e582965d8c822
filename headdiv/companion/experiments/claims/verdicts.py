"""The rules by which a claim gets its verdict; `VERDICTS` says what each means."""

from __future__ import annotations

import math

from headdiv.companion.analysis.statistics import Interval
from headdiv.companion.experiments.claims.records import Holds

FOLLOWS, CONTRADICTED = "follows", "contradicted"
CONFIRMED, ABOVE, REFUTED, UNDECIDED = "confirmed", "above", "refuted", "undecided"
NOT_RUN, NOT_COMPARABLE = "not run here", "not comparable"

VERDICTS = {
    FOLLOWS: "computed again from the architecture, it comes out",
    CONTRADICTED: "computed again, it does not come out; the cause is named, and how much depends on it",
    CONFIRMED: "measured at the paper's own scale: the 95 % interval lies within the tolerance, and of a table's score "
    "the tolerance is smaller than the effect that the paper reports",
    ABOVE: "measured, and higher than the paper's by more than the tolerance, of a score where higher is better",
    REFUTED: "measured at the paper's own scale: the 95 % interval lies outside the tolerance",
    UNDECIDED: "measured at the paper's own scale and left open: by the interval over seeds (one seed has none), or by "
    "a tolerance that is not smaller than the paper's effect",
    NOT_COMPARABLE: "measured, but otherwise than in the paper, so that it decides nothing",
    NOT_RUN: "a relation for which nothing stored is near enough to the paper's data, sizes, method and length",
}

# How far a measured score may lie from the paper's, by what it is: absolute, or as a share of the paper's. About what
# another seed and another library move a score by.
TOLERANCE: dict[str, tuple[float, float]] = {
    "BLEU": (1.0, 0.0),
    "%": (1.0, 0.0),
    "IMI": (0.02, 0.0),
    "epoch": (0.3, 0.0),
    "nats/token": (0.0, 0.05),
    "nats/answer": (0.0, 0.05),
    "perplexity": (0.0, 0.05),
}
TIE = 1e-12  # what equal scores fall short of a difference by

# What a variant's score minus another's may be for a relation to hold: from, to.
ACCEPTED: dict[Holds, tuple[float, float]] = {
    "higher": (TIE, math.inf),
    "lower": (-math.inf, -TIE),
    "not higher": (-math.inf, 0.0),
    "within half a point": (-0.5, 0.5),
}


def tolerance(printed: float, quantity: str) -> float:
    """How far a measured score may lie from the paper's."""
    absolute, share = TOLERANCE[quantity]
    return absolute + share * abs(printed)


def decide(measured: Interval, low: float, high: float) -> str:
    """The verdict on what runs measured.

    Args:
        measured: over seeds; one seed has no interval, which leaves it undecided.
        low: the least value with which the claim holds.
        high: the largest.
    """
    if low <= measured.low and measured.high <= high:
        return CONFIRMED
    if measured.high < low or measured.low > high:
        return REFUTED
    return UNDECIDED
