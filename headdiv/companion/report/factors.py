"""Does a method's gain depend on a factor? Its differences from the Transformer at several dropouts, or shares of data.

docs/contest.md, Parts 2 and 3, has the rules: the families of intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.papers import BASELINE, PaperTask, task_of
from headdiv.companion.report.contrasts import compared_scores, means_of, scores_of, set_apart_by_score
from headdiv.companion.report.formats import NONE, plural
from headdiv.companion.report.groups import Groups, chosen, failed_trainings, measured, not_judged_yet
from headdiv.companion.report.judged import differences_table, means_table, verdicts_by
from headdiv.companion.report.scale import scale
from headdiv.companion.report.table_data import TableData, ends
from headdiv.companion.report.verdicts import MARGINS, NO_DIFFERENCE
from headdiv.core.errors import DataError

PLAIN = "the Transformer"  # among models that are else called as methods are


@dataclass(frozen=True)
class Factor:
    """What the rows of a design differ in besides their method.

    Attributes:
        name: as axes and columns have it.
        same: "the Transformer with the same …".
        shown: a level as rows' labels end. ``tick``: on an axis.
        place: where a level is on an axis.
        weights: of each level's difference, the levels in order, in what is asked of a method.
        asked: what that is.
        by_seed: what is asked is worked out of each model and seed on its own, and these numbers are compared. The
            residuals of scores would be pooled over the levels, and loss on fewer pairs has more noise.
    """

    name: str
    same: str
    shown: Callable[[float], str]
    tick: Callable[[float], str]
    place: Callable[[float], float]
    weights: Callable[[Sequence[float]], list[float]]
    asked: Callable[[Sequence[float]], str]
    by_seed: bool = False


@dataclass(frozen=True)
class Design:
    """Variants by method and level of a factor.

    Attributes:
        factor: what it is that varies.
        plain: the Transformer at each level, the lowest first.
        methods: the same of each method, by what it is called.
    """

    factor: Factor
    plain: dict[float, str]
    methods: dict[str, dict[float, str]]

    @property
    def levels(self) -> list[float]:
        """The levels, the lowest first."""
        return list(self.plain)

    def pairs(self) -> dict[tuple[str, float], tuple[str, str]]:
        """By method and level, the variants of the first family: the method, and the Transformer beside it."""
        return {(name, level): (of[level], self.plain[level]) for name, of in self.methods.items() for level in of}

    def among(self, groups: Groups) -> Design:
        """With the methods alone of which a run is stored."""
        stored = {name: of for name, of in self.methods.items() if groups.keys() & of.values()}
        return replace(self, methods=stored)


def design_of(task: PaperTask) -> Design | None:
    """The design of a task whose rows are methods at several levels of a factor; None for any other."""
    for section, key, factor in (("model", "dropout", DROPOUT), ("train", "share", SHARE)):
        rows: dict[str, dict[float, str]] = {}
        for variant, row in task.variants.items():
            if (level := getattr(row, section).get(key)) is not None:
                rows.setdefault(row.label.removesuffix(f", {factor.shown(level)}"), {})[level] = variant
        rows = {name: dict(sorted(of.items())) for name, of in rows.items()}
        plain = next((name for name, of in rows.items() if BASELINE in of.values() and len(of) > 1), None)
        if plain:
            return Design(factor, rows.pop(plain), rows)
    return None


def design_of_figure(figure: FigureEntry) -> Design:
    """The design that a figure shows.

    Raises:
        DataError: the rows of its experiment are no methods by level.
    """
    if (design := design_of(task_of(figure.experiment))) is None:
        raise DataError(f"{figure.label}: {figure.experiment} has no rows of the Transformer at several levels")
    return design


def beside(task: PaperTask, variants: Iterable[str]) -> dict[str, str]:
    """What each variant but the baseline is compared with: the baseline, or the Transformer at the same level.

    The Transformer's own rows at other levels are compared with the baseline.
    """
    found = {variant: BASELINE for variant in variants if variant != BASELINE}
    design = design_of(task)
    return found | {one: plain for one, plain in (design.pairs().values() if design else ()) if one in found}


@dataclass(frozen=True)
class Effects:
    """What runs of a design show of one score, over the seeds that all stored variants have, or over all.

    Attributes:
        gains: by method and level, minus the Transformer at the same level; intervals simultaneous over all.
        changes: by method, how its difference changes with the factor (`Factor.asked`); likewise.
        between: by two methods and level, the first minus the second; likewise.
        apart: rows whose residuals are left out of the pooled ones (`comparison.uneven`).
    """

    seeds: list[int]
    gains: dict[tuple[str, float], Difference]
    changes: dict[str, Difference]
    between: dict[tuple[str, str, float], Difference]
    apart: frozenset[str] = frozenset()


def effects(design: Design, groups: Groups, score: str, whole: bool = False) -> Effects:
    """The three families of docs/contest.md, Parts 2 and 3.

    Args:
        design: with the methods that are stored.
        groups: the runs by variant.
        score: their name.
        whole: all runs are there: a seed counts that some variant lacks, since its training failed.

    Raises:
        DataError: the stored variants have no seed in common.
    """
    wanted = [*design.plain.values(), *(variant for of in design.methods.values() for variant in of.values())]
    found = {variant: of for variant, of in scores_of(groups, score).items() if variant in wanted}
    of_all = set.union if whole else set.intersection
    seeds = sorted(of_all(*map(set, found.values()))) if found else []
    if not seeds:
        raise DataError(f"{', '.join(found) or 'the stored runs'}: expected a seed that all of them have")
    common = {variant: {seed: of[seed] for seed in seeds if seed in of} for variant, of in found.items()}
    pairs = design.pairs()
    gains = comparison.differences(common, list(pairs.values()))
    rows, sums = _asked(design, common)
    changes = comparison.contrasts(rows, sums)
    between = {
        (one, other, level): (design.methods[one][level], design.methods[other][level])
        for one, other in combinations(design.methods, 2)
        for level in design.levels
    }
    of_two = comparison.differences(common, list(between.values()))
    return Effects(
        seeds,
        {at: gains[pair] for at, pair in pairs.items()},
        dict(zip(design.methods, changes, strict=True)),
        {at: of_two[pair] for at, pair in between.items()},
        frozenset(comparison.uneven(common) | comparison.uneven(rows)),
    )


def _asked(design: Design, scores: comparison.Scores) -> tuple[comparison.Scores, list[dict[str, float]]]:
    """Rows, and their weights in what is asked of each method, minus the same of the Transformer."""
    asked = zip(design.levels, design.factor.weights(design.levels), strict=True)
    weights = {level: weight for level, weight in asked if weight}  # a level without weight need not be stored
    if design.factor.by_seed:
        models = {PLAIN: design.plain, **design.methods}
        rows = {f"slope of {name}": _seed_by_seed(of, weights, scores) for name, of in models.items()}
        return rows, [{f"slope of {name}": 1.0, f"slope of {PLAIN}": -1.0} for name in design.methods]
    return scores, [
        {of[level]: weight for level, weight in weights.items()}
        | {design.plain[level]: -weight for level, weight in weights.items()}
        for of in design.methods.values()
    ]


def _seed_by_seed(
    variants: Mapping[float, str], weights: Mapping[float, float], scores: comparison.Scores
) -> dict[int, float]:
    """A model's weighted sum over the levels, with each seed that it has at all of them."""
    of_levels = {level: scores.get(variants[level], {}) for level in weights}
    seeds = set.intersection(*map(set, of_levels.values()))
    return {seed: sum(weights[level] * of[seed] for level, of in of_levels.items()) for seed in sorted(seeds)}


def slope_weights(levels: Sequence[float]) -> list[float]:
    """Weights of values at these levels that add up to their least-squares slope over log₁₀ of the level."""
    x = np.log10(levels)
    return list((x - x.mean()) / ((x - x.mean()) ** 2).sum())


def ends_apart(levels: Sequence[float]) -> list[float]:
    """The lowest level minus the highest."""
    return [1.0, *[0.0] * (len(levels) - 2), -1.0]


DROPOUT = Factor(
    "dropout",
    "dropout",
    lambda level: f"dropout {level}",
    str,
    lambda level: level,
    ends_apart,
    lambda levels: f"difference at {levels[0]}\nminus that at {levels[-1]}",
)
SHARE = Factor(
    "share of the training pairs",
    "pairs",
    lambda level: f"{100 * level:g} %",
    lambda level: f"{100 * level:g} %",
    math.log10,
    slope_weights,
    lambda levels: "slope of the difference\nover log₁₀ of the share",
    by_seed=True,
)


def factor_data(profile: str, experiment: str) -> TableData:
    """The table of a design: its models, their differences at each level, and how these change."""
    task, groups = task_of(experiment), chosen(profile, experiment, experiment)
    design, scores = design_of(task).among(groups), compared_scores(task)
    runs = [run for of in groups.values() for run in of]
    waiting = not_judged_yet(profile, experiment, groups)
    found = {name: effects(design, groups, name, whole=not waiting) for name in scores}
    primary, factor = found[task.primary], design.factor
    apart = set_apart_by_score(task, {column.label: found[name].apart for name, column in scores.items()})
    said = [waiting, *apart, *failed_trainings(profile, experiment)]

    def family(attribute: str, names: dict[tuple, list[str]], heads: list[str], judged: bool) -> pd.DataFrame:
        """A line for each difference, in each score, and what the primary one decides."""
        ones = {name: list(getattr(of, attribute).values()) for name, of in found.items()}
        shown = differences_table(heads, (names[at] for at in getattr(primary, attribute)), ones, scores)
        if judged and not waiting:
            decided = zip(ones[task.primary], verdicts_by(task.primary, task, ones[task.primary]), strict=True)
            shown["Verdict"] = [word if one.count else NONE for one, word in decided]
        return shown

    heading, shown = factor.name.capitalize(), {level: factor.tick(level) for level in design.levels}
    gains = family("gains", {at: [at[0], shown[at[1]]] for at in primary.gains}, ["Method", heading], True)
    change = family("changes", {at: [at] for at in primary.changes}, ["Method"], False)
    two = {at: [f"{at[0]} minus {at[1]}", shown[at[2]]] for at in primary.between}
    between = family("between", two, ["Methods", heading], True)
    return TableData(
        task.table,
        task.title,
        scale(runs, profile),
        _numbers(task, groups, design, found),
        {
            "every model": means_table(task, groups, scores),
            f"minus the Transformer with the same {factor.same}": gains,
            " ".join(factor.asked(design.levels).split()): change,
            "one method minus the other": between,
        },
        measured(runs, scores),
        [line for line in said if line],
        [
            f"Differences are of {_seeds(primary)}{' that all stored models have' if waiting else ''}. ± is half the "
            "width of the 95 % interval, simultaneous over its table, from one additive model with a pooled residual"
            f"{'; slopes enter it as one slope for each model and seed' * factor.by_seed}. "
            f"Verdicts are by the lowest validation loss; as good: within ±{MARGINS[task.primary]} nats (two one-sided "
            "t-tests, 5 %).",
            *task.notes,
        ],
    )


def _seeds(found: Effects) -> str:
    return f"{plural(len(found.seeds), 'seed')} ({', '.join(map(str, found.seeds))})"


def _numbers(task: PaperTask, groups: Groups, design: Design, found: dict[str, Effects]) -> pd.DataFrame:
    """One line a stored variant: means, and differences from the Transformer at the same level."""
    at = {pair[0]: key for key, pair in design.pairs().items()}
    means, rows = {name: means_of(groups, name) for name in found}, []
    for variant, runs in groups.items():
        row = {"variant": variant, "label": task.label(variant), "seeds": len(runs)}
        for name, of in found.items():
            row[name] = means[name][variant].mean
            row |= ends(f"{name}_difference", of.gains.get(at.get(variant), NO_DIFFERENCE))
            row[f"{name}_change"] = of.changes[at[variant][0]].mean if variant in at else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)
