"""From stored runs to differences: scores by variant and seed, and families of weighted differences between them.

Every score goes into one additive model of variant and seed (`headdiv.companion.analysis.comparison`). It estimates
families of differences, which a paper's file names; the intervals of a family hold together. docs/contest.md has the
rules by which they are judged, and `headdiv.companion.report.verdicts` the test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

import numpy as np

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.experiments.papers import BASELINE, Column, Contrast, Factor, PaperTask
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.groups import Groups
from headdiv.companion.report.measures import MEASURES, mean_measure
from headdiv.companion.report.verdicts import (
    AS_GOOD,
    BETTER,
    LOWEST_LOSS,
    MEAN_BLEU,
    NO_DIFFERENCE,
    NOT_JUDGED,
    UNDECIDED,
    WORSE,
)

Scores = dict[str, dict[int, float]]  # by variant, by seed
Weights = dict[str, float]  # of variants' means; they add up to 0
PLAIN = "Transformer"  # its name among models, which are otherwise named by their methods
OF_AN_ARM = {  # verdicts, as docs/contest.md words them for a method against the Transformer
    BETTER: "helps",
    WORSE: "hurts",
    AS_GOOD: "makes no difference that matters",
    UNDECIDED: "undecided",
    NOT_JUDGED: "not judged",
}

# ---- scores


def score_of(run: RunResult, score: str) -> float:
    """A number of a run, NaN where it has none.

    Besides scores: the lowest loss, the mean of the test sets' BLEU, and measures of the heads, means over modules.
    """
    if score in MEASURES:
        return mean_measure(run, score)
    value = run.value(score)
    if value is None and score == LOWEST_LOSS:
        value = min(point.validation_nll for point in run.curve)
    if score == MEAN_BLEU:
        tests = ["bleu", *(f"bleu_{name}" for name in run.config.data.get("more_tests", ()))]
        value = fmean(score_of(run, test) for test in tests)
    return math.nan if value is None else value


def scores_of(groups: Groups, score: str) -> Scores:
    """A score by variant and seed, as far as the runs have it."""
    scores: Scores = {}
    for variant, runs in groups.items():
        values = {run.seed: score_of(run, score) for run in runs}
        by_seed = {seed: value for seed, value in values.items() if not math.isnan(value)}
        if by_seed:
            scores[variant] = by_seed
    return scores


def means_of(groups: Groups, score: str) -> dict[str, Interval]:
    """A score's mean by variant, with Student's interval; NaN where a run of the variant lacks it."""
    return {variant: interval([score_of(run, score) for run in runs]) for variant, runs in groups.items()}


def with_columns_of(task: PaperTask, groups: Groups) -> PaperTask:
    """The task with the columns that its runs have (`Column.where`)."""
    stored = {name for runs in groups.values() for run in runs for name in run.scores}
    columns = {name: column for name, column in task.columns.items() if not column.where or column.where in stored}
    return task.model_copy(update={"columns": columns})


def compared_scores(task: PaperTask) -> dict[str, Column]:
    """The columns of a task that are scores."""
    return {name: column for name, column in task.columns.items() if not name.startswith("parameters")}


# ---- pairs of variants


def pair_differences(scores: Scores, pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """The first minus the second of each pair of variants.

    Pairs with the baseline have Dunnett's intervals, simultaneous over all variants with scores, so that they are the
    same wherever they stand; those of the other pairs are simultaneous over these pairs.
    """
    differences = comparison.differences(scores, [pair for pair in pairs if pair[1] != BASELINE])
    for variant, difference in comparison.against(scores, BASELINE).items():
        differences[variant, BASELINE] = difference
    return [differences.get(pair, NO_DIFFERENCE) for pair in pairs]


def seed_by_seed(groups: Groups, variant: str, against: str, score: str) -> list[float]:
    """A score of one variant minus another's, for every seed of which both have it."""
    scores = scores_of({name: groups[name] for name in (variant, against)}, score)
    return list(comparison.weighted_sums(scores, _minus(variant, against)).values())


def reported_difference(task: PaperTask, variant: str, against: str, score: str) -> list[float]:
    """The paper's difference: one number, or none where it does not report both."""
    numbers = [task.numbers().get(name, {}).get(score) for name in (variant, against)]
    return [] if None in numbers else [numbers[0] - numbers[1]]


def stored_contrasts(task: PaperTask, groups: Groups) -> list[Contrast]:
    """The task's questions that these runs answer."""
    return [contrast for contrast in task.contrasts if {contrast.variant, contrast.against} <= groups.keys()]


def outlier_note(labels: Iterable[str]) -> list[str]:
    """The sentence about rows that `comparison.uneven` leaves out of the additive model; none where there are none."""
    names = ", ".join(labels)
    if not names:
        return []
    return [
        "With far larger residuals than the other rows, and so with Student's intervals, which are not simultaneous: "
        f"{names}."
    ]


def outlier_note_by_score(task: PaperTask, variants: Mapping[str, Iterable[str]]) -> list[str]:
    """The same for several scores: by a score's label, the variants."""
    return outlier_note(f"{task.label(name)} ({label})" for label, names in variants.items() for name in sorted(names))


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
        """By method and level, the variants that are compared: the method, and the Transformer at this level."""
        return {
            (method, level): (variant, self.plain[level])
            for method, variants in self.methods.items()
            for level, variant in variants.items()
        }

    def among(self, groups: Groups) -> Design:
        """The design with only those methods of which a run is stored."""
        stored = {name: variants for name, variants in self.methods.items() if groups.keys() & variants.values()}
        return replace(self, methods=stored)


def design_of(task: PaperTask) -> Design | None:
    """The design of a task whose rows are methods at several levels of a factor; None for any other."""
    if task.factor is None:
        return None
    models: dict[str, dict[float, str]] = {}
    for variant, row in task.variants.items():
        models.setdefault(row.label, {})[row.level] = variant
    models = {name: dict(sorted(variants.items())) for name, variants in models.items()}
    plain = models.pop(task.variants[BASELINE].label)
    return Design(task.factor, plain, models)


def references_of(task: PaperTask, variants: Iterable[str]) -> dict[str, str]:
    """What each variant but the baseline is compared with: the baseline, or the Transformer at the same level.

    The Transformer's own rows at other levels are compared with the baseline.
    """
    references = {variant: BASELINE for variant in variants if variant != BASELINE}
    pairs = design_of(task).pairs().values() if task.factor else ()
    return references | {variant: plain for variant, plain in pairs if variant in references}


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
        rows: the differences.
        verdicts: by the head of a column, the score that decides; {}: nothing is decided.
        words: what verdicts are called.
        sums: by name, weighted sums that are formed of each seed on its own, and stand in the place of variants. (The
            residuals of scores would be pooled over the levels, and loss on fewer pairs has more noise.)
        pairs: whether rows are pairs of variants that have the intervals of `pair_differences`.
    """

    caption: str
    heads: tuple[str, ...]
    rows: list[Row]
    verdicts: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    sums: dict[str, Weights] = field(default_factory=dict)
    pairs: bool = False

    def scores(self, scores: Scores) -> Scores:
        """The additive model's input: variants' scores by seed, or the sums of them."""
        return {name: comparison.weighted_sums(scores, weights) for name, weights in self.sums.items()} or scores

    def estimate(self, scores: Scores) -> list[Difference]:
        """The rows' differences."""
        weights = [row.weights for row in self.rows]
        if self.pairs:
            return pair_differences(scores, [(variant, against) for variant, against in weights])
        return comparison.contrasts(self.scores(scores), weights)


def _minus(variant: str, against: str) -> Weights:
    return {variant: 1.0, against: -1.0}


def against_baseline(task: PaperTask, groups: Groups) -> Family:
    """Every variant minus the baseline."""
    rows = [Row((task.label(name),), _minus(name, BASELINE)) for name in groups if name != BASELINE]
    if not task.primary:
        return Family("differences from the baseline", ("Minus the baseline",), rows, pairs=True)
    return Family("minus the Transformer", ("Method",), rows, _deciding_scores(task), OF_AN_ARM, pairs=True)


def single_changes(task: PaperTask, groups: Groups) -> Family:
    """The task's questions that these runs answer."""
    contrasts = stored_contrasts(task, groups)
    rows = [Row((contrast.what,), _minus(contrast.variant, contrast.against)) for contrast in contrasts]
    if not task.primary:
        return Family("single changes", ("Change",), rows, {"Verdict": LOWEST_LOSS}, pairs=True)
    return Family("what one part adds", ("Part",), rows, _deciding_scores(task), pairs=True)


def _deciding_scores(task: PaperTask) -> dict[str, str]:
    """The scores that decide: the primary one, and BLEU, which the return match takes as the mean of its test sets."""
    return {"Verdict": task.primary, "By BLEU": MEAN_BLEU if MEAN_BLEU in task.columns else "bleu"}


def _at_each_level(task: PaperTask, groups: Groups) -> Family:
    """Each method at each level minus the Transformer there."""
    design = design_of(task).among(groups)
    rows = [
        Row((method, design.factor.at(level)), _minus(variant, plain))
        for (method, level), (variant, plain) in design.pairs().items()
    ]
    caption = f"minus the Transformer with the same {design.factor.same}"
    return Family(caption, ("Method", design.factor.heading), rows, {"Verdict": task.primary})


def _ends(task: PaperTask, groups: Groups) -> Family:
    """Each method's difference at the lowest level minus that at the highest."""
    design = design_of(task).among(groups)
    low, *_, high = design.levels
    base = {design.plain[low]: -1.0, design.plain[high]: 1.0}
    rows = [
        Row((method,), {variants[low]: 1.0, variants[high]: -1.0} | base) for method, variants in design.methods.items()
    ]
    caption = f"difference at {design.factor.at(low)} minus that at {design.factor.at(high)}"
    return Family(caption, ("Method",), rows)


def _slope(task: PaperTask, groups: Groups) -> Family:
    """Each method's slope over log₁₀ of the level minus the Transformer's, of each seed on its own."""
    design = design_of(task).among(groups)
    weights = dict(zip(design.levels, slope_weights(design.levels), strict=True))
    sums = {  # a level without weight need not be stored
        f"slope of {model}": {variants[level]: weight for level, weight in weights.items() if weight}
        for model, variants in {PLAIN: design.plain, **design.methods}.items()
    }
    rows = [Row((method,), _minus(f"slope of {method}", f"slope of {PLAIN}")) for method in design.methods]
    return Family(f"slope of the difference over log₁₀ of the {design.factor.name}", ("Method",), rows, sums=sums)


def _between_methods(task: PaperTask, groups: Groups) -> Family:
    """One method minus another at each level."""
    design = design_of(task).among(groups)
    rows = [
        Row((f"{first} minus {second}", design.factor.at(level)), _minus(firsts[level], seconds[level]))
        for (first, firsts), (second, seconds) in combinations(design.methods.items(), 2)
        for level in design.levels
    ]
    return Family("one method minus the other", ("Methods", design.factor.heading), rows, {"Verdict": task.primary})


FAMILIES: dict[str, Callable[[PaperTask, Groups], Family]] = {  # by what a paper's file calls them
    "baseline": against_baseline,
    "contrasts": single_changes,
    "levels": _at_each_level,
    "ends": _ends,
    "slope": _slope,
    "methods": _between_methods,
}
CHANGES = ("ends", "slope")  # the families that say how a difference changes with the level


def families_of(task: PaperTask, groups: Groups) -> dict[str, Family]:
    """The families of a task, of the variants that are stored."""
    return {name: FAMILIES[name](task, groups) for name in task.families}
