"""Is a method's gain that of a regulariser? Its differences to the Transformer at several dropouts.

docs/contest.md, Part 2, has the rules: the families of intervals, and what is said in each outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from headdiv.analysis import comparison
from headdiv.analysis.comparison import Difference
from headdiv.analysis.statistics import interval
from headdiv.companion.experiments.papers import BASELINE, PaperTask, task_of
from headdiv.companion.report.contrasts import compared_scores, scores_of
from headdiv.companion.report.formats import NONE, as_printed, plural, signed
from headdiv.companion.report.groups import Groups, chosen
from headdiv.companion.report.scale import scale
from headdiv.companion.report.table_data import TableData
from headdiv.companion.report.verdicts import (
    AS_GOOD,
    BETTER,
    LOWEST_LOSS,
    MARGINS,
    NOT_JUDGED,
    WORSE,
    verdict,
)
from headdiv.core.errors import DataError


@dataclass(frozen=True)
class Design:
    """Variants by method and dropout.

    Attributes:
        plain: the Transformer at each dropout, the lowest first.
        methods: the same of each method, by what it is called.
    """

    plain: dict[float, str]
    methods: dict[str, dict[float, str]]

    @property
    def levels(self) -> list[float]:
        """The dropouts."""
        return list(self.plain)

    def pairs(self) -> dict[tuple[str, float], tuple[str, str]]:
        """By method and dropout, the variants of the first family: the method, and the Transformer beside it."""
        return {(name, level): (of[level], self.plain[level]) for name, of in self.methods.items() for level in of}


def design_of(task: PaperTask) -> Design | None:
    """The design of a task whose rows are methods at several dropouts; None for any other."""
    rows: dict[str, dict[float, str]] = {}
    for variant, row in task.variants.items():
        if (level := row.model.get("dropout")) is not None:
            rows.setdefault(row.label.removesuffix(f", dropout {level}"), {})[level] = variant
    plain = next((name for name, of in rows.items() if BASELINE in of.values() and len(of) > 1), None)
    return Design(rows.pop(plain), rows) if plain else None


@dataclass(frozen=True)
class Effects:
    """What runs of a design show of one score, over the seeds that all stored variants have.

    Attributes:
        gains: by method and dropout, minus the Transformer with the same dropout; intervals simultaneous over all.
        interactions: by method, its difference at the lowest dropout minus that at the highest; likewise.
        between: by two methods and dropout, the first minus the second; likewise.
    """

    seeds: list[int]
    gains: dict[tuple[str, float], Difference]
    interactions: dict[str, Difference]
    between: dict[tuple[str, str, float], Difference]


def effects(design: Design, groups: Groups, score: str) -> Effects:
    """The three families of docs/contest.md, Part 2.

    Raises:
        DataError: the stored variants have no seed in common.
    """
    wanted = [*design.plain.values(), *(variant for of in design.methods.values() for variant in of.values())]
    found = {variant: of for variant, of in scores_of(groups, score).items() if variant in wanted}
    seeds = sorted(set.intersection(*map(set, found.values()))) if found else []
    if not seeds:
        raise DataError(f"{', '.join(found) or 'the stored runs'}: expected a seed that all of them have")
    common = {variant: {seed: of[seed] for seed in seeds} for variant, of in found.items()}
    pairs = design.pairs()
    gains = comparison.differences(common, list(pairs.values()))
    low, *_, high = design.levels
    ends = {name: (*pairs[name, low], *pairs[name, high]) for name in design.methods}
    weights = [{one: 1.0, plain: -1.0, other: -1.0, its: 1.0} for one, plain, other, its in ends.values()]
    between = {
        (one, other, level): (design.methods[one][level], design.methods[other][level])
        for one, other in combinations(design.methods, 2)
        for level in design.levels
    }
    apart = comparison.differences(common, list(between.values()))
    return Effects(
        seeds,
        {at: gains[pair] for at, pair in pairs.items()},
        dict(zip(ends, comparison.contrasts(common, weights), strict=True)),
        {at: apart[pair] for at, pair in between.items()},
    )


def conclusion(found: Effects, method: str, levels: list[float]) -> str:
    """What is said of a method by its validation loss, of which less is better."""
    low, *_, high = levels
    interaction, margin = found.interactions[method], MARGINS[LOWEST_LOSS]
    at_low, at_high = (verdict(found.gains[method, level], higher=False, margin=margin) for level in (low, high))
    if NOT_JUDGED in (verdict(interaction), at_low, at_high):
        return "too few runs so far"
    if interaction.high < 0:
        if at_high in (AS_GOOD, WORSE):
            return f"its gain is that of a regulariser: gone at dropout {high}"
        if at_high == BETTER:
            return f"it gains less with more dropout, and still gains at {high}"
        return f"it gains less with more dropout; whether anything is left at {high} is undecided"
    if interaction.low > 0:
        return "it gains more with more dropout, against the expectation"
    if at_high == BETTER:
        return f"it gains at dropout {high} too, and not shown to be less than at {low}"
    if at_high in (AS_GOOD, WORSE) and at_low != BETTER:
        return "no gain is shown at any dropout"
    return "undecided"


def conclusions(found: Effects, levels: list[float]) -> list[str]:
    """A sentence of each method."""
    return [f"{method[0].upper()}{method[1:]}: {conclusion(found, method, levels)}." for method in found.interactions]


def dropout_data(profile: str, experiment: str) -> TableData:
    """The table of a design: its models, their differences at each dropout, and the interactions."""
    task, groups = task_of(experiment), chosen(profile, experiment, experiment)
    design, scores = design_of(task), compared_scores(task)
    runs = [run for of in groups.values() for run in of]
    found = {name: effects(design, groups, name) for name in scores}
    primary, (low, *_, high) = found[LOWEST_LOSS], design.levels
    margin = MARGINS[LOWEST_LOSS]

    def family(attribute: str, names: dict[tuple, list[str]], heads: list[str], judged: bool) -> pd.DataFrame:
        """A line for each difference, in each score, and what the primary one decides."""
        shown = pd.DataFrame([names[at] for at in getattr(primary, attribute)], columns=heads)
        for name, column in scores.items():
            ones = getattr(found[name], attribute).values()
            shown[column.label] = [signed(one.mean, column.digits, one.half) for one in ones]
        if judged:
            ones = getattr(primary, attribute).values()
            shown["Verdict"] = [verdict(one, False, margin) if one.count else NONE for one in ones]
        return shown

    means = pd.DataFrame({"Model": [task.label(variant) for variant in groups]}, index=list(groups))
    means["Seeds"] = [str(len(of)) for of in groups.values()]
    for name, column in scores.items():
        values = scores_of(groups, name)
        ones = [interval(list(values.get(variant, {}).values())) for variant in groups]
        unit = f" ({column.unit})" if column.unit else ""
        means[f"{column.label}{unit}"] = [as_printed(one.mean, column.digits, one.half) for one in ones]
    gains = family("gains", {at: [at[0], str(at[1])] for at in primary.gains}, ["Method", "Dropout"], True)
    change = family("interactions", {at: [at] for at in primary.interactions}, ["Method"], False)
    two = {at: [f"{at[0]} minus {at[1]}", str(at[2])] for at in primary.between}
    between = family("between", two, ["Methods", "Dropout"], True)
    return TableData(
        task.table,
        task.title,
        scale(runs, profile),
        _numbers(task, groups, design, found),
        [means, gains, change, between],
        [
            "every model",
            "minus the Transformer with the same dropout",
            f"interaction: the difference at dropout {low} minus that at {high}",
            "one method minus the other",
        ],
        {column.label: runs[0].scores[name].signature for name, column in scores.items() if name in runs[0].scores},
        [
            *conclusions(primary, design.levels),
            f"Differences are of {_seeds(primary)} that all stored models have. ± is half the width of "
            "the 95 % interval, simultaneous over its table, of one additive model with a pooled residual. "
            f"Verdicts are by the lowest validation loss; as good: within ±{margin} nats (two one-sided t-tests, 5 %).",
            *task.notes,
        ],
    )


def _seeds(found: Effects) -> str:
    return f"{plural(len(found.seeds), 'seed')} ({', '.join(map(str, found.seeds))})"


def _numbers(task: PaperTask, groups: Groups, design: Design, found: dict[str, Effects]) -> pd.DataFrame:
    """One line a stored variant: means, and differences to the Transformer with the same dropout."""
    at = {pair[0]: key for key, pair in design.pairs().items()}
    rows = []
    for variant, runs in groups.items():
        row = {"variant": variant, "label": task.label(variant), "seeds": len(runs)}
        for name, of in found.items():
            row[name] = interval(list(scores_of(groups, name).get(variant, {}).values())).mean
            one = of.gains.get(at.get(variant))
            ends = (one.mean, one.low, one.high) if one else (float("nan"),) * 3
            row |= dict(zip((f"{name}_difference{end}" for end in ("", "_low", "_high")), ends, strict=True))
            row[f"{name}_interaction"] = of.interactions[at[variant][0]].mean if variant in at else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)
