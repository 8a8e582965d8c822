"""Families of weighted differences between variants, and the table of those that a paper's file names.

The intervals of a family hold together. docs/contest.md has the rules by which they are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import BASELINE, Column, Factor, PaperTask
from headdiv.companion.report.contrasts import (
    compared_scores,
    means_of,
    scores_of,
    set_apart_by_score,
    stored_contrasts,
)
from headdiv.companion.report.formats import NONE, with_intervals, with_unit
from headdiv.companion.report.groups import Groups, chosen, failed_trainings, measured, not_judged_yet, task_shown
from headdiv.companion.report.scale import scale
from headdiv.companion.report.table_data import PLUS_MINUS, TableData, ends
from headdiv.companion.report.verdicts import (
    AS_GOOD,
    BETTER,
    MARGINS,
    NO_DIFFERENCE,
    NOT_JUDGED,
    UNDECIDED,
    WORSE,
    verdict,
)
from headdiv.core.errors import DataError

Weights = dict[str, float]  # of variants' means; they add up to 0
PLAIN = "Transformer"  # among models that are else called as methods are
OF_AN_ARM = {  # verdicts, as docs/contest.md words them for a method against the Transformer
    BETTER: "helps",
    WORSE: "hurts",
    AS_GOOD: "makes no difference that matters",
    UNDECIDED: "undecided",
    NOT_JUDGED: "not judged",
}

# ---- methods at several levels of a factor


@dataclass(frozen=True)
class Design:
    """Variants by method and level of a factor.

    Attributes:
        factor: what it is that varies.
        plain: the Transformer at each level, the lowest first.
        methods: the same of each method, by its label.
    """

    factor: Factor
    plain: dict[float, str]
    methods: dict[str, dict[float, str]]

    @property
    def levels(self) -> list[float]:
        """The levels, the lowest first."""
        return list(self.plain)

    def pairs(self) -> dict[tuple[str, float], tuple[str, str]]:
        """By method and level, the variants that are compared: the method, and the Transformer beside it."""
        return {(name, level): (of[level], self.plain[level]) for name, of in self.methods.items() for level in of}

    def among(self, groups: Groups) -> Design:
        """With the methods alone of which a run is stored."""
        stored = {name: of for name, of in self.methods.items() if groups.keys() & of.values()}
        return replace(self, methods=stored)


def design_of(task: PaperTask) -> Design | None:
    """The design of a task whose rows are methods at several levels of a factor; None for any other."""
    if task.factor is None:
        return None
    models: dict[str, dict[float, str]] = {}
    for variant, row in task.variants.items():
        models.setdefault(row.label, {})[row.level] = variant
    models = {name: dict(sorted(of.items())) for name, of in models.items()}
    plain = models.pop(task.variants[BASELINE].label)
    return Design(task.factor, plain, models)


def beside(task: PaperTask, variants: Iterable[str]) -> dict[str, str]:
    """What each variant but the baseline is compared with: the baseline, or the Transformer at the same level.

    The Transformer's own rows at other levels are compared with the baseline.
    """
    found = {variant: BASELINE for variant in variants if variant != BASELINE}
    design = design_of(task)
    return found | {one: plain for one, plain in (design.pairs().values() if design else ()) if one in found}


def slope_weights(levels: Sequence[float]) -> list[float]:
    """Weights of values at these levels that add up to their least-squares slope over log₁₀ of the level."""
    x = np.log10(levels)
    return list((x - x.mean()) / ((x - x.mean()) ** 2).sum())


# ---- families


@dataclass(frozen=True)
class Row:
    """A weighted difference of variants' means."""

    names: tuple[str, ...]  # the cells that name it
    weights: Weights


@dataclass(frozen=True)
class Family:
    """Differences whose intervals hold together.

    Attributes:
        caption: of its table.
        heads: of the columns with the rows' names.
        verdicts: by the head of a column, the score that decides; {}: nothing is decided.
        words: what verdicts are called.
        sums: by name, weighted sums that are formed of each seed on its own, and stand in the place of variants. (The
            residuals of scores would be pooled over the levels, and loss on fewer pairs has more noise.)
    """

    caption: str
    heads: tuple[str, ...]
    rows: list[Row]
    verdicts: dict[str, str]
    words: dict[str, str] = field(default_factory=dict)
    sums: dict[str, Weights] = field(default_factory=dict)

    def scores(self, scores: comparison.Scores) -> comparison.Scores:
        """What the additive model is of: variants' scores by seed, or these sums of them."""
        return {name: _seed_by_seed(weights, scores) for name, weights in self.sums.items()} or scores

    def estimate(self, scores: comparison.Scores) -> list[Difference]:
        """The rows' differences."""
        return comparison.contrasts(self.scores(scores), [row.weights for row in self.rows])


def _seed_by_seed(weights: Weights, scores: comparison.Scores) -> dict[int, float]:
    seeds = set.intersection(*(set(scores.get(variant, {})) for variant in weights))
    return {seed: sum(weight * scores[variant][seed] for variant, weight in weights.items()) for seed in sorted(seeds)}


def _against_baseline(task: PaperTask, groups: Groups) -> Family:
    rows = [Row((task.label(name),), {name: 1.0, BASELINE: -1.0}) for name in groups if name != BASELINE]
    deciding = {"Verdict": task.primary, "By BLEU": "bleu"}
    return Family("minus the Transformer", ("Method",), rows, deciding, OF_AN_ARM)


def _contrasts(task: PaperTask, groups: Groups) -> Family:
    asked = stored_contrasts(task, groups)
    rows = [Row((one.what,), {one.variant: 1.0, one.against: -1.0}) for one in asked]
    return Family("what one part adds", ("Part",), rows, {"Verdict": task.primary, "By BLEU": "bleu"})


def _at_each_level(task: PaperTask, groups: Groups) -> Family:
    design = design_of(task).among(groups)
    rows = [
        Row((method, design.factor.at(level)), {variant: 1.0, plain: -1.0})
        for (method, level), (variant, plain) in design.pairs().items()
    ]
    caption = f"minus the Transformer with the same {design.factor.same}"
    return Family(caption, ("Method", design.factor.heading), rows, {"Verdict": task.primary})


def _ends(task: PaperTask, groups: Groups) -> Family:
    """Each method's difference at the lowest level minus that at the highest."""
    design = design_of(task).among(groups)
    low, *_, high = design.levels
    rows = [
        Row((method,), {of[low]: 1.0, of[high]: -1.0, design.plain[low]: -1.0, design.plain[high]: 1.0})
        for method, of in design.methods.items()
    ]
    return Family(
        f"difference at {design.factor.at(low)} minus that at {design.factor.at(high)}", ("Method",), rows, {}
    )


def _slope(task: PaperTask, groups: Groups) -> Family:
    """Each method's slope over log₁₀ of the level minus the Transformer's, of each seed on its own."""
    design = design_of(task).among(groups)
    asked = zip(design.levels, slope_weights(design.levels), strict=True)
    weights = {level: weight for level, weight in asked if weight}  # a level without weight need not be stored
    sums = {
        f"slope of {model}": {of[level]: weight for level, weight in weights.items()}
        for model, of in {PLAIN: design.plain, **design.methods}.items()
    }
    rows = [Row((method,), {f"slope of {method}": 1.0, f"slope of {PLAIN}": -1.0}) for method in design.methods]
    caption = f"slope of the difference over log₁₀ of the {design.factor.name}"
    return Family(caption, ("Method",), rows, {}, sums=sums)


def _between_methods(task: PaperTask, groups: Groups) -> Family:
    design = design_of(task).among(groups)
    rows = [
        Row((f"{one} minus {other}", design.factor.at(level)), {of_one[level]: 1.0, of_other[level]: -1.0})
        for (one, of_one), (other, of_other) in combinations(design.methods.items(), 2)
        for level in design.levels
    ]
    return Family("one method minus the other", ("Methods", design.factor.heading), rows, {"Verdict": task.primary})


FAMILIES: dict[str, Callable[[PaperTask, Groups], Family]] = {  # by what a paper's file calls them
    "baseline": _against_baseline,
    "contrasts": _contrasts,
    "levels": _at_each_level,
    "ends": _ends,
    "slope": _slope,
    "methods": _between_methods,
}
CHANGES = ("ends", "slope")  # those of how a difference changes with the level


def families_of(task: PaperTask, groups: Groups) -> dict[str, Family]:
    """The families of a task, of the variants that are stored."""
    return {name: FAMILIES[name](task, groups) for name in task.families}


def scores_in_common(task: PaperTask, groups: Groups, score: str, whole: bool) -> dict[str, dict[int, float]]:
    """Scores by variant and seed; of a design, where it is not ``whole``, of the seeds that all stored variants have.

    ``whole``: all runs are there, so a seed counts that some variant lacks, since its training failed.

    Raises:
        DataError: they have no seed in common.
    """
    found = scores_of(groups, score)
    if task.factor is None or whole:
        return found
    seeds = set.intersection(*map(set, found.values())) if found else set()
    if not seeds:
        raise DataError(f"{', '.join(found) or 'the stored runs'}: expected a seed that all of them have")
    return {variant: {seed: of[seed] for seed in of if seed in seeds} for variant, of in found.items()}


# ---- their table


def family_data(profile: str, experiment: str) -> TableData:
    """The table of a task's families: the means of its variants, then each family's differences.

    Raises:
        DataError: no stored results, or results that contradict each other.
    """
    groups = chosen(profile, experiment, experiment)
    task = task_shown(experiment, groups)
    columns, runs = compared_scores(task), [run for of in groups.values() for run in of]
    waiting = not_judged_yet(profile, experiment, groups)
    scores = {name: scores_in_common(task, groups, name, whole=not waiting) for name in columns}
    families = families_of(task, groups)
    found = {
        name: {score: family.estimate(of_score) for score, of_score in scores.items()}
        for name, family in families.items()
    }
    tables = {"every model": means_table(task, groups, columns)}
    tables |= {
        family.caption: _family_table(task, family, found[name], columns, judged=not waiting)
        for name, family in families.items()
        if family.rows
    }
    apart: dict[str, set[str]] = {
        column.label: set().union(*(comparison.uneven(family.scores(scores[name])) for family in families.values()))
        for name, column in columns.items()
    }
    said = [waiting, *set_apart_by_score(task, apart), *failed_trainings(profile, experiment)]
    return TableData(
        task.table,
        task.title,
        scale(runs, profile),
        _numbers(task, groups, families, found),
        tables,
        measured(runs, columns),
        [line for line in said if line],
        _notes(task, families, scores[task.primary]),
    )


def means_table(task: PaperTask, groups: Groups, scores: Mapping[str, Column]) -> pd.DataFrame:
    """A line for each variant: seeds, and the mean of each score with Student's interval."""
    shown = pd.DataFrame({"Model": [task.label(variant) for variant in groups]}, index=list(groups))
    shown["Seeds"] = [str(len(of)) for of in groups.values()]
    for name, column in scores.items():
        shown[with_unit(column.label, column.unit)] = with_intervals(means_of(groups, name).values(), column.digits)
    return shown


def _family_table(
    task: PaperTask,
    family: Family,
    found: Mapping[str, Sequence[Difference]],
    columns: Mapping[str, Column],
    judged: bool,
) -> pd.DataFrame:
    """A line for each difference: its names, its number in each score, and its verdict, once it may be ``judged``."""
    shown = pd.DataFrame([row.names for row in family.rows], columns=list(family.heads))
    for name, column in columns.items():
        shown[column.label] = with_intervals(found[name], column.digits)
    for head, score in family.verdicts.items() if judged else ():
        higher, words = task.columns[score].better != "lower", family.words if score == task.primary else {}
        verdicts = [verdict(one, higher, MARGINS.get(score)) for one in found[score]]
        counts = [one.count for one in found[score]]
        shown[head] = [words.get(said, said) if count else NONE for said, count in zip(verdicts, counts, strict=True)]
    return shown


def _notes(task: PaperTask, families: Mapping[str, Family], scores: comparison.Scores) -> list[str]:
    column = task.columns[task.primary]
    slopes = "; slopes enter it as one slope for each model and seed" * any(of.sums for of in families.values())
    seeds = sorted(set().union(*scores.values()))
    return [
        f"Verdicts are by the {column.label[0].lower()}{column.label[1:]}: its simultaneous interval excludes 0, or "
        f"else two one-sided t-tests at 5 % show a difference within ±{MARGINS[task.primary]} {column.unit} "
        f"(BLEU: ±{MARGINS['bleu']}).",
        "The ± after a difference is half the width of its 95 % interval, simultaneous over its table, from one "
        f"additive model of variant and seed with a pooled residual{slopes}.",
        PLUS_MINUS,
        *[f"Differences are of the seeds {', '.join(map(str, seeds))}."] * (task.factor is not None),
        *task.notes,
    ]


def _numbers(
    task: PaperTask,
    groups: Groups,
    families: Mapping[str, Family],
    found: Mapping[str, Mapping[str, Sequence[Difference]]],
) -> pd.DataFrame:
    """One line a stored variant: means of scores, and differences from the Transformer (at the same level)."""
    first, *_ = families
    lines = {next(iter(row.weights)): line for line, row in enumerate(families[first].rows)}
    changes = next((name for name in families if name in CHANGES), None)
    lines_of_changes = {row.names[0]: line for line, row in enumerate(families[changes].rows)} if changes else {}
    rows = []
    for variant, runs in groups.items():
        row: dict[str, Any] = {"variant": variant, "label": task.label(variant), "seeds": len(runs)}
        row |= {} if changes else {"parameters": runs[0].parameters}
        for name, of in found[first].items():
            own = means_of({variant: runs}, name)[variant]
            difference = of[lines[variant]] if variant in lines else NO_DIFFERENCE
            row |= {name: own.mean} if changes else ends(name, own)
            row |= ends(f"{name}_difference", difference)
            if changes:
                line = lines_of_changes.get(task.variants[variant].label)
                row[f"{name}_change"] = float("nan") if line is None else found[changes][name][line].mean
            else:
                row[f"{name}_equivalence_p"] = (
                    difference.equivalence(MARGINS[name]) if name in MARGINS else float("nan")
                )
        rows.append(row)
    return pd.DataFrame(rows)
