"""What one change does: differences between two variants of an experiment, seed by seed, in words and as a figure."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.analysis import comparison
from headdiv.analysis.comparison import Difference
from headdiv.analysis.statistics import Interval
from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.papers import BASELINE, Column, Contrast, PaperTask, task_of
from headdiv.companion.report.formats import plural, signed
from headdiv.companion.report.groups import Groups, title
from headdiv.companion.report.plotting import (
    BLUE,
    GREY,
    ORANGE,
    SMALL,
    add_handles,
    add_interval,
    add_title,
    judged,
    name_rows,
    new_figure,
    runs_of_figure,
)
from headdiv.core.errors import DataError

NONE = Difference(math.nan, math.nan, 0)
JUDGE = "validation_nll"  # a part is judged, and a variant chosen, without the test set


def scores_of(groups: Groups, score: str) -> dict[str, dict[int, float]]:
    """A score by variant and seed, as far as the runs have it."""
    found = {
        variant: {run.seed: value for run in runs if (value := run.value(score)) is not None}
        for variant, runs in groups.items()
    }
    return {variant: by_seed for variant, by_seed in found.items() if by_seed}


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


def stored_contrasts(task: PaperTask, groups: Groups) -> list[Contrast]:
    """The task's questions that these runs answer."""
    return [one for one in task.contrasts if one.variant in groups and one.against in groups]


def asked_differences(task: PaperTask, groups: Groups, score: str) -> list[tuple[Contrast, Difference]]:
    """The task's questions that these runs answer, with their differences; intervals are simultaneous over them."""
    asked = stored_contrasts(task, groups)
    found = comparison.differences(scores_of(groups, score), [(one.variant, one.against) for one in asked])
    return [(one, found[one.variant, one.against]) for one in asked]


def sentences(task: PaperTask, groups: Groups) -> list[str]:
    """Which changes lower the validation loss, which raise it, which is open; and which row has the lowest.

    Each with the differences of that loss and of the table's last score, and their simultaneous 95 % intervals.
    """
    *_, last = compared_scores(task)
    found: dict[str, list[str]] = {"Helps": [], "Hurts": [], "Not settled": []}
    pairs = zip(asked_differences(task, groups, JUDGE), asked_differences(task, groups, last), strict=True)
    for (one, loss), (_, score) in pairs:
        verdict = "Helps" if loss.high < 0 else "Hurts" if loss.low > 0 else "Not settled"
        found[verdict].append(f"{one.what} ({_shown(task, loss, score)})")
    said = [f"{verdict}: {'; '.join(changes)}." for verdict, changes in found.items() if changes]
    others = {name: one for name, one in differences_of(groups, JUDGE).items() if one.count}
    if said and others:
        best = min(others, key=lambda variant: others[variant].mean)
        count = plural(others[best].count, "seed")
        said.append(
            f"The lowest validation loss of all rows but the Transformer: {task.label(best)}; against the Transformer "
            f"{_shown(task, others[best], differences_of(groups, last).get(best, NONE))}, {count}."
        )
    if said:
        said[0] = f"Judged by the validation loss, differences with simultaneous 95 % intervals. {said[0]}"
    return said


def _shown(task: PaperTask, loss: Difference, score: Difference) -> str:
    *_, last = compared_scores(task)
    parts = []
    for name, one in ((JUDGE, loss), (last, score)):
        column = task.columns[name]
        sign = f"{column.label} " if name == last else ""
        parts.append(sign + signed(one.mean, column.digits, one.half))
    return ", ".join(parts)


def draw_contrasts(profile: str, figure: FigureEntry) -> Figure:
    """Every row against the Transformer, and below it what one change does to two rows: a panel for each score.

    Beside the stored runs' differences stand the paper's where it reports them.
    """
    groups, task = runs_of_figure(profile, figure), task_of(figure.experiment)
    scores = compared_scores(task)
    rows = [(task.label(name), name, BASELINE) for name in groups if name != BASELINE and BASELINE in groups]
    asked = [(one.what, one.variant, one.against) for one in stored_contrasts(task, groups) if one.against != BASELINE]
    parts = [part for part in (rows, asked) if part]
    if not parts:
        raise DataError(f"{figure.label} needs two variants to compare among the stored runs of profile {profile}")
    heights = [len(part) + 1.5 for part in parts]
    drawn, axes = new_figure(
        11.5, 0.2 * sum(heights) + 0.8, len(parts), len(scores), sharex="col", sharey="row", height_ratios=heights
    )
    pairs = [pair for part in parts for _, *pair in part]
    points = {(name, *pair): seed_by_seed(groups, *pair, name) for pair in pairs for name in scores}
    found = {
        (name, *pair): one
        for name in scores
        for part in parts  # whose intervals hold together
        for pair, one in comparison.differences(scores_of(groups, name), [(v, a) for _, v, a in part]).items()
    }
    papers = {(name, *pair): reported_difference(task, *pair, name) for pair in pairs for name in scores}
    for ax, name in zip(axes[-1], scores, strict=True):
        keys = [(name, *pair) for pair in pairs]
        ends = [end for key in keys for end in (*points[key], *_ends(found[key]), *papers[key])]
        ax.set_xlim(_range(ends))
    for part, line in zip(parts, axes, strict=True):
        for ax, (name, column) in zip(line, scores.items(), strict=True):
            for y, (_, variant, against) in enumerate(part):
                values, mean = points[name, variant, against], found[name, variant, against]
                add_interval(ax, y, mean, judged(mean.low, mean.high, column.better != "lower"))
                _mark_cut(ax, y, mean)
                ax.plot(values, np.full(len(values), y), "o", color="0.2", ms=2.5, mew=0, zorder=3)
                if paper := papers[name, variant, against]:
                    ax.plot(paper, [y], "o", color="0.2", mfc="none", ms=7, zorder=4)
            ax.axvline(0, color="0.35", lw=1, ls="--", zorder=0)
            unit = f" ({column.unit})" if column.unit else ""
            last = part is parts[-1]
            name_rows(ax, [label for label, *_ in part], xlabel=f"{column.label}{unit}" if last else "")
    add_handles(drawn, _legend(any(papers.values())), 5, SMALL)
    add_title(drawn, title("Differences to the Transformer" + ", and of one change" * bool(asked), groups))
    return drawn


def _mark_cut(ax: Axes, y: int, found: Interval) -> None:
    """An arrow head where an interval goes on beyond the axis."""
    low, high = ax.get_xlim()
    for there, at, marker in ((found.low < low, low, "<"), (found.high > high, high, ">")):
        if there:
            ax.plot([at], [y], marker, color=GREY, ms=5, mew=0, clip_on=False)


def _legend(papers: bool) -> list[Line2D]:
    """What the symbols mean."""
    mean = [(BLUE, "better"), (ORANGE, "worse"), (GREY, "undecided")]
    handles = [Line2D([], [], color="0.2", marker="o", ms=2.5, mew=0, ls="none", label="a seed")]
    handles += [Line2D([], [], color=colour, marker="D", ms=4.5, label=f"mean, {what}") for colour, what in mean]
    ring = Line2D([], [], color="0.2", marker="o", mfc="none", ms=7, ls="none", label="the paper, one run")
    return [*handles, ring] if papers else handles


def _ends(found: Difference) -> list[float]:
    """The ends of an interval that must be on the axis; those of one or two seeds may run off it."""
    return [found.low, found.high] if found.count > 2 and not math.isnan(found.half) else []


def _range(values: list[float]) -> tuple[float, float]:
    """Of an axis that shows all of these and 0."""
    low, high = min([0.0, *values]), max([0.0, *values])
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room
