"""What one change does: differences between two variants of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.experiments.papers import BASELINE, Column, Contrast, PaperTask
from headdiv.companion.report.groups import Groups
from headdiv.companion.report.verdicts import NO_DIFFERENCE, score_of


def scores_of(groups: Groups, score: str) -> dict[str, dict[int, float]]:
    """A score by variant and seed, as far as the runs have it."""
    found = {
        variant: {run.seed: value for run in runs if (value := score_of(run, score)) is not None}
        for variant, runs in groups.items()
    }
    return {variant: by_seed for variant, by_seed in found.items() if by_seed}


def means_of(groups: Groups, score: str) -> dict[str, Interval]:
    """A score's mean by variant, with Student's interval; NaN where none of a variant's runs has it."""
    found = scores_of(groups, score)
    return {variant: interval(list(found.get(variant, {}).values())) for variant in groups}


def seed_by_seed(groups: Groups, variant: str, against: str, score: str) -> list[float]:
    """A score of one variant minus another's, for every seed of which both have it."""
    mine, its = (scores_of({name: groups[name]}, score).get(name, {}) for name in (variant, against))
    return [value - its[seed] for seed, value in mine.items() if seed in its]


def differences_of(groups: Groups, score: str) -> dict[str, Difference]:
    """A score of every variant minus the baseline's, with Dunnett's simultaneous intervals."""
    return comparison.against(scores_of(groups, score), BASELINE)


def reported_difference(task: PaperTask, variant: str, against: str, score: str) -> list[float]:
    """The same in the paper: one number, or none where it does not report both."""
    found = [task.variants[name].reported.get(score) for name in (variant, against) if name in task.variants]
    return [found[0] - found[1]] if len(found) == 2 and None not in found else []


def compared_scores(task: PaperTask) -> dict[str, Column]:
    """The columns of a task that are scores."""
    return {name: column for name, column in task.columns.items() if not name.startswith("parameters")}


def set_apart(names: Iterable[str]) -> list[str]:
    """What is said of rows that `comparison.uneven` leaves out of the additive model; nothing where there are none."""
    named = ", ".join(names)
    said = "With far larger residuals than the other rows, and so with Student's intervals, which are not simultaneous"
    return [f"{said}: {named}."] if named else []


def set_apart_by_score(task: PaperTask, alone: Mapping[str, Iterable[str]]) -> list[str]:
    """The same of several scores: by a score's label, the variants, or what else a model of it has rows of."""
    return set_apart(f"{task.label(one)} ({label})" for label, ones in alone.items() for one in sorted(ones))


def stored_contrasts(task: PaperTask, groups: Groups) -> list[Contrast]:
    """The task's questions that these runs answer."""
    return [one for one in task.contrasts if one.variant in groups and one.against in groups]


def asked_differences(
    task: PaperTask, groups: Groups, score: str, rows: Groups | None = None
) -> list[tuple[Contrast, Difference]]:
    """The task's questions that these runs answer, with their differences.

    Intervals of those about the baseline are `differences_of`'s; the others' are simultaneous over them. ``rows``: what
    the model has (`headdiv.companion.report.groups.judged_with`); by default these runs.
    """
    asked, rows = stored_contrasts(task, groups), groups if rows is None else rows
    pairs = [(one.variant, one.against) for one in asked if one.against != BASELINE]
    found = comparison.differences(scores_of(rows, score), pairs)
    found |= {(variant, BASELINE): one for variant, one in differences_of(rows, score).items()}
    return [(one, found.get((one.variant, one.against), NO_DIFFERENCE)) for one in asked]
