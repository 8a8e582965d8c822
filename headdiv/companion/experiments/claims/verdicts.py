"""The rules by which a claim gets its verdict; `VERDICTS` says what each means."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval
from headdiv.companion.experiments.claims.calls import ClaimError, show
from headdiv.companion.experiments.claims.records import RELATION, Claim
from headdiv.core.settings import nearest

FOLLOWS, ROUNDING, CONTRADICTED = "follows", "rounding", "contradicted"
CONFIRMED, ABOVE, REFUTED, UNDECIDED = "confirmed", "above", "refuted", "undecided"
AGREES, DIFFERS, USED, NOT_RUN = "agrees so far", "differs so far", "used here", "not run here"
NOT_COMPARABLE = "not comparable"

VERDICTS = {
    FOLLOWS: "computed again from the paper's own numbers, an architecture or a data set, it comes out",
    ROUNDING: "it comes out but for rounding: of the numbers it is made of, or cut off instead of rounded",
    CONTRADICTED: "computed again, it does not come out; the cause is named, and how much depends on it",
    CONFIRMED: "measured at the paper's own scale: the 95 % interval over seeds lies within the tolerance, and of a "
    "table's score the tolerance is smaller than the effect that the paper reports",
    ABOVE: "measured, and higher than the paper's by more than the tolerance, of a score where higher is better",
    REFUTED: "measured at the paper's own scale: the 95 % interval over seeds lies outside the tolerance, of a loss or "
    "perplexity on either side",
    UNDECIDED: "measured at the paper's own scale and left open: by the interval over seeds (one seed has none), or by "
    "a tolerance that is not smaller than the paper's effect",
    NOT_COMPARABLE: "measured, but otherwise than in the paper, so that it decides nothing",
    AGREES: "a short run: the paper's data, sizes and method, but fewer epochs or steps; its mean lies within",
    DIFFERS: "a short run, and its mean lies outside; a longer one may agree",
    USED: "a setting that the stored runs have",
    NOT_RUN: "nothing stored is near enough to the paper's data, sizes, method and length, or nothing can compute it",
}
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

# How far a measured number may lie from the paper's, by unit: absolute, or as a share of the paper's. About what
# another seed and another library move a score by; times on another day of the same machine.
TOLERANCE: dict[str, tuple[float, float]] = {
    "BLEU": (1.0, 0.0),
    "%": (1.0, 0.0),
    "IMI": (0.02, 0.0),
    "epoch": (0.3, 0.0),
    "length": (0.05, 0.0),
    "nats/token": (0.0, 0.05),
    "nats/answer": (0.0, 0.05),
    "perplexity": (0.0, 0.05),
    "times": (0.0, 0.1),
    "days": (0.0, 0.2),
    "h": (0.0, 0.2),
    "ms": (0.0, 0.2),
}


def computed(claim: Claim, ours: float | bool, spread: float) -> tuple[str, str]:
    """The verdict on what was computed again, and a remark on it.

    ``ours`` is a truth value for a relation; ``spread`` says how far it may be off because its numbers were rounded
    when they were printed.
    """
    if _is_relation(claim, ours):
        return (FOLLOWS if ours else CONTRADICTED), ""
    off, remark = abs(ours - claim.value), ""
    if claim.sign in COMPARISONS:
        holds, room = COMPARISONS[claim.sign](ours, claim.value), claim.step / 2
        remark = f", {'' if holds else 'not '}{claim.sign} {show(claim.value)}"
    else:
        # "About 4 %" may have been rounded up or down, or cut off: one unit of the last digit instead of a half.
        room = claim.step * (1.0 if claim.sign == "about" else 0.5) + _slack(claim)
        holds = off <= room
    if holds:
        return FOLLOWS, remark
    if off <= room + spread:
        return ROUNDING, f"{remark}, which is the claim within rounding"
    if claim.sign == "=" and claim.step and abs(_cut_off(ours, claim.step) - claim.value) <= _slack(claim):
        return ROUNDING, ", which is the claim, cut off instead of rounded"
    return CONTRADICTED, remark


def measured(
    claim: Claim, values: Sequence[float | bool], intervals: Sequence[Interval], whole: bool
) -> tuple[str, str]:
    """The verdict on what runs measured, and a remark on it.

    Args:
        claim: what the paper says.
        values: what each seed's runs measured; truth values for a relation.
        intervals: over these seeds. One, of the values; or, of a relation, one for each of its comparisons, of the
            margin by which it holds (below 0: it does not).
        whole: whether the runs are as long as the paper's. Shorter ones decide by their mean, and nothing for good.
    """
    if claim.kind == "setting":
        return (USED if all(abs(value - claim.value) <= _slack(claim) for value in values) else NOT_RUN), ""
    if relation := _is_relation(claim, values[0]):
        low, high, remark = 0.0, math.inf, ""
    else:
        low, high = _accepted(claim)
        remark = "" if claim.sign in COMPARISONS else f" (tolerance {show(high - claim.value)})"
    halves = [(math.inf if math.isnan(one.half) else one.half) if whole else 0.0 for one in intervals]
    ends = [(one.mean - half, one.mean + half) for one, half in zip(intervals, halves, strict=True)]
    if len(values) > 1:
        shown = ", ".join(map(_shown, intervals))
        remark += f", {'difference' if relation else 'interval'} over {len(values)} seeds {shown}"
    elif whole:
        remark += ", and one seed has no interval"
    if all(low <= bottom and top <= high for bottom, top in ends):
        if claim.effect is None or high - claim.value < claim.effect - _slack(claim):
            return (CONFIRMED if whole else AGREES), remark
        # Then a run without the effect may lie within the tolerance as well.
        remark += f", but this tolerance is not smaller than the paper's own effect, {show(claim.effect)}"
        return (UNDECIDED if whole else AGREES), remark
    if not any(top < low or bottom > high for bottom, top in ends):
        return UNDECIDED, remark
    if claim.better == "higher" and ends[0][0] > high:
        return ABOVE, remark
    return (REFUTED if whole else DIFFERS), remark


def _shown(found: Interval) -> str:
    freedom = f" (residual degrees of freedom: {found.freedom})" if isinstance(found, Difference) else ""
    return f"{found.low:.4g} to {found.high:.4g}{freedom}"


def _accepted(claim: Claim) -> tuple[float, float]:
    """What a measured number may be for the claim to hold: from, to."""
    if claim.sign in COMPARISONS:
        return (-math.inf, claim.value) if claim.sign.startswith("<") else (claim.value, math.inf)
    if claim.unit not in TOLERANCE:
        raise ClaimError(f"the unit {claim.unit!r} has no tolerance{nearest(claim.unit, list(TOLERANCE))}")
    absolute, share = TOLERANCE[claim.unit]
    room = absolute + share * abs(claim.value)
    return claim.value - room, claim.value + room


def _is_relation(claim: Claim, ours: float | bool) -> bool:
    if (claim.unit == RELATION) != isinstance(ours, bool):
        raise ClaimError("a relation has a function that returns margins, and nothing else has")
    return isinstance(ours, bool)


def _slack(claim: Claim) -> float:
    """What floating point may be off by."""
    return 1e-9 * max(1.0, abs(claim.value))


def _cut_off(value: float, step: float) -> float:
    """Without what comes after the last printed digit."""
    return math.trunc(value / step + math.copysign(1e-9, value)) * step
