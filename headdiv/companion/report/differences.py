"""Figures of differences: of rows to the Transformer, of one change, of methods at several levels of a factor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from pydantic import Field

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.experiments.papers import BASELINE, PaperTask, task_of
from headdiv.companion.report import plotting
from headdiv.companion.report.families import (
    CHANGES,
    compared_scores,
    design_of,
    families_of,
    means_of,
    reported_difference,
    scores_in_common,
    scores_of,
    seed_by_seed,
    set_apart_by_score,
    stored_contrasts,
)
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import as_printed, plural, signed, with_unit
from headdiv.companion.report.groups import (
    Groups,
    all_quiet,
    chosen,
    failed_trainings,
    judged_with,
    labels_of,
    not_judged_yet,
    task_shown,
    title,
)
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import GREY, SMALL, VERDICT_LOOKS
from headdiv.companion.report.verdicts import (
    LOWEST_LOSS,
    MARGINS,
    NO_DIFFERENCE,
    NOT_JUDGED,
    NOT_YET,
    verdict,
)
from headdiv.core.errors import NotStoredError
from headdiv.core.settings import Settings

WIDTH = 9.2  # inches
LETTERS = 30  # of a row's label, in one line
FEW = 2  # scores, beside whose panels there is room for numbers
FAR = 6  # half intervals: a row off the axis, its number beside it; twice as many where the row is judged


class ScorePanel(NamedTuple):
    """A score whose differences are drawn."""

    label: str
    unit: str
    higher: bool  # is better
    digits: int


PANELS = {
    LOWEST_LOSS: ScorePanel("lowest validation loss", "nats/token", False, 3),
    "bleu": ScorePanel("BLEU", "0 to 100", True, 2),
}


def draw_rows(
    ax: Axes, found: Sequence[Difference | None], higher: bool, margin: float | None = None, judged: bool = True
) -> list[str]:
    """A row for each difference, coloured by its verdict; the margin of equivalence is shaded. Returns the verdicts."""
    ax.axvline(0, color="0.35", lw=1, ls="--", zorder=0)
    if margin is not None:
        ax.axvspan(-margin, margin, color="0.9", lw=0, zorder=-1)
    verdicts = []
    for y, one in enumerate(found):
        if one is not None:
            verdicts.append(verdict(one, higher, margin) if judged else NOT_YET)
            plotting.add_interval(ax, y, one, **VERDICT_LOOKS[verdicts[-1]])
    ax.set_title("better →" if higher else "← better", fontsize=SMALL, color="0.35")
    return verdicts


def shaded() -> Patch:
    """The legend's entry of a shaded margin."""
    within = f"within ±{MARGINS[LOWEST_LOSS]} nats, ±{MARGINS['bleu']} BLEU"
    return Patch(color="0.9", label=f"equivalence: {within}")


# ---- every row, and one change


class Pair(NamedTuple):
    """Two variants that are compared."""

    label: str
    variant: str
    against: str


class DifferencesOptions(Settings):
    """What is compared."""

    scores: list[str] = Field(default_factory=list, description="those of the table where left out")
    costs: bool = Field(False, description="parameters and times beside them")


@figure_kind("differences", Options=DifferencesOptions)
def draw_differences(profile: str, figure: FigureEntry) -> Figure:
    """Every row against the Transformer, and below it what one change does to two rows: a panel for each score.

    Rows are in the paper's order; where the lowest validation loss is shown by that, with those that are not judged
    below all others. Small points are differences of the same seed, rings the paper's. ``options`` has the scores,
    those of the table where left out, and whether parameters, and times where nothing else kept the machine busy, stand
    beside them.

    Raises:
        NotStoredError: no two variants that are compared are stored.
    """
    groups = plotting.runs_of_figure(profile, figure)
    task = task_shown(figure.experiment, groups)
    labels = labels_of(figure.experiment, groups)
    rows = [Pair(labels[name], name, BASELINE) for name in groups if name != BASELINE and BASELINE in groups]
    asked = [Pair(one.what, one.variant, one.against) for one in stored_contrasts(task, groups)]
    changes = [pair for pair in asked if pair.against != BASELINE]
    if not rows and not changes:
        needed = "two variants to compare" if BASELINE in groups else BASELINE
        raise NotStoredError(f"{figure.label} needs {needed} among the stored runs of profile {profile}")
    model, names = judged_with(profile, figure.experiment), figure.options["scores"] or list(compared_scores(task))
    panels = {name: _panel(task, name) for name in names}
    found = {name: _differences(scores_of(model, name), rows, changes) for name in names}
    if LOWEST_LOSS in names:
        judge = found[LOWEST_LOSS]
        rows.sort(key=lambda pair: (verdict(judge[pair]) == NOT_JUDGED, judge[pair].mean))
    parts, costs = [part for part in (rows, changes) if part], 0
    if figure.options["costs"] and rows:
        costs = 1 + all_quiet(groups)
    heights = [len(part) + 1.8 for part in parts]
    drawn, axes = plotting.new_figure(
        WIDTH, 0.3 * sum(heights) + 1.2, len(parts), len(names) + costs, sharex="col", sharey="row",
        height_ratios=heights, width_ratios=[2.2] * len(names) + [1.1] * costs,
    )  # fmt: skip
    waiting = not_judged_yet(profile, figure.experiment, groups)
    verdicts, papers, numbers = [], False, len(names) <= FEW
    for (name, panel), column in zip(panels.items(), axes.T, strict=False):
        column[0].set_xlim(*_range(task, groups, name, found[name], numbers))
        for ax, part in zip(column, parts, strict=True):
            ones = [found[name][pair] for pair in part]
            said = draw_rows(ax, ones, panel.higher, MARGINS.get(name), judged=not waiting)
            papers |= _mark_seeds_and_paper(ax, task, groups, name, part)
            for y, (one, word) in enumerate(zip(ones, said, strict=True)):
                _mark_cut(ax, y, one, word)
            if numbers:
                _write_numbers(ax, ones, panel.digits)
            plotting.name_rows(ax, [plotting.wrapped(pair.label, LETTERS) for pair in part])
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.tick_params(labelsize=SMALL)
            verdicts += said
        column[-1].set_xlabel(_axis_label(panel, groups, name), fontsize=SMALL)
    if costs:
        _draw_costs(axes[0, len(names) :], groups, [pair.variant for pair in rows])
        for ax in axes[1:, len(names) :].flat:
            ax.set_visible(False)
    handles = [Line2D([], [], color="0.2", marker="o", ms=2.5, mew=0, ls="none", label="a seed")]
    handles += plotting.verdict_handles(verdicts)
    if papers:
        handles.append(Line2D([], [], color="0.2", marker="o", mfc="none", ms=7, ls="none", label="the paper, one run"))
    if MARGINS.keys() & set(names):
        handles.append(shaded())
    plotting.add_handles(drawn, handles, 4, SMALL)
    what = f"{task.table}: differences from the Transformer" + ", and effects of single changes" * bool(changes)
    apart = {panel.label: comparison.uneven(scores_of(model, name)) for name, panel in panels.items()}
    notes = [waiting, *set_apart_by_score(task, apart), *failed_trainings(profile, figure.experiment)]
    lines = [f"{title(what, groups)}; simultaneous 95 % intervals", *(note for note in notes if note)]
    plotting.add_title(drawn, "\n".join(lines))
    return drawn


def _panel(task: PaperTask, name: str) -> ScorePanel:
    if name in PANELS:
        return PANELS[name]
    column = task.columns[name]
    return ScorePanel(column.label, column.unit, column.better != "lower", column.digits)


def _differences(scores: comparison.Scores, rows: Sequence[Pair], changes: Sequence[Pair]) -> dict[Pair, Difference]:
    """Rows, with intervals that hold for all of the model against the baseline; changes, with those of a family."""
    against = comparison.against(scores, BASELINE)
    pairs = comparison.differences(scores, [(pair.variant, pair.against) for pair in changes])
    return {pair: against.get(pair.variant, NO_DIFFERENCE) for pair in rows} | {
        pair: pairs[pair.variant, pair.against] for pair in changes
    }


def _axis_label(panel: ScorePanel, groups: Groups, name: str) -> str:
    """ "BLEU (0 to 100)", and below it the Transformer's own."""
    label = with_unit(panel.label, panel.unit)
    if BASELINE not in groups:
        return label
    own = means_of({BASELINE: groups[BASELINE]}, name)[BASELINE]
    return f"{label}\nthe Transformer's: {as_printed(own.mean, panel.digits, own.half)}"


def _range(
    task: PaperTask, groups: Groups, name: str, found: Mapping[Pair, Difference], numbers: bool
) -> tuple[float, float]:
    """The ends of an axis with 0 and all rows: their means, ends, seeds and the paper's.

    Where ``numbers`` stand beside the axis, those far off are left out.
    """
    known = [one for one in found.values() if one.count]
    near = _near(known, MARGINS.get(name, 0.0)) if numbers else known
    values = [0.0]
    for pair, one in found.items():
        if one in near:
            values += [one.mean, *_ends(one)]
            values += seed_by_seed(groups, pair.variant, pair.against, name)
            values += reported_difference(task, pair.variant, pair.against, name)
    room = 0.05 * (max(values) - min(values)) or 1.0
    return min(values) - room, max(values) + room


def _mark_seeds_and_paper(ax: Axes, task: PaperTask, groups: Groups, name: str, part: Sequence[Pair]) -> bool:
    """A point for each seed, and a ring for the paper's difference; whether it has one."""
    papers = False
    for y, pair in enumerate(part):
        points = seed_by_seed(groups, pair.variant, pair.against, name)
        ax.plot(points, np.full(len(points), y), "o", color="0.2", ms=2.5, mew=0, zorder=3)
        if reported := reported_difference(task, pair.variant, pair.against, name):
            ax.plot(reported, [y], "o", color="0.2", mfc="none", ms=7, zorder=4)
            papers = True
    return papers


def _write_numbers(ax: Axes, rows: Sequence[Difference], digits: int) -> None:
    """Each difference as a number, to the right of the axis."""
    for y, one in enumerate(rows):
        text = signed(one.mean, digits, one.half) if one.count else "no seed in common"
        ax.annotate(text, (1.03, y), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL - 1)


def _mark_cut(ax: Axes, y: int, found: Interval, said: str) -> None:
    """An arrow head where an interval goes on beyond the axis."""
    low, high = ax.get_xlim()
    ends = (found.mean, found.mean) if math.isnan(found.half) else (found.low, found.high)
    for there, at, marker in ((ends[0] < low, low, "<"), (ends[1] > high, high, ">")):
        if there:
            ax.plot([at], [y], marker, color=VERDICT_LOOKS[said]["color"], ms=5, mew=0, clip_on=False)


def _ends(found: Difference) -> list[float]:
    """The ends of an interval that must be on the axis; those of one or two seeds may run off it."""
    return [found.low, found.high] if found.count > 2 and not math.isnan(found.half) else []


def _near(known: Sequence[Difference], margin: float) -> list[Difference]:
    """The differences that an axis must hold: not those that are so far off that the others could not be read.

    What is within `FAR` margins of equivalence is near, however small the intervals are.
    """
    judged = [one for one in known if verdict(one) != NOT_JUDGED]
    size = median([abs(one.mean) if math.isnan(one.half) else one.half for one in judged or known] or [0.0])
    far = FAR * max(size, margin)
    return [one for one in known if abs(one.mean) <= (2 * far if one in judged else far)] or list(known)


def _draw_costs(axes: Iterable[Axes], groups: Groups, variants: Sequence[str]) -> None:
    """Parameters in percent of the Transformer's, and the time of training as a multiple of that of the same seed."""
    sizes, *times = axes
    base = groups[BASELINE]
    shares = [100 * groups[variant][0].parameters / base[0].parameters for variant in variants]
    sizes.plot(shares, range(len(variants)), "o", color=GREY, ms=4.5)
    sizes.update_datalim([(95, 0), (105, 0)])  # of nearly equal sizes ticks would have five digits
    sizes.autoscale_view()
    sizes.set_xlabel("parameters\n(% of its)", fontsize=SMALL)
    of_base = {run.seed: run.cost.training_seconds for run in base}
    for ax in times:
        for y, variant in enumerate(variants):
            runs = [run for run in groups[variant] if run.seed in of_base]
            ratios = [run.cost.training_seconds / of_base[run.seed] for run in runs]
            plotting.add_interval(ax, y, interval(ratios), color=GREY)
        ax.set_xlabel("training time\n(× its)", fontsize=SMALL)
    for ax in (sizes, *times):
        ax.axvline(100 if ax is sizes else 1, color="0.6", lw=0.8, zorder=0)
        ax.tick_params(axis="y", length=0)
        ax.tick_params(labelsize=SMALL, labelbottom=True)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        plotting.add_grid(ax, "x")


# ---- methods at several levels of a factor


@figure_kind("levels")
def draw_levels(profile: str, figure: FigureEntry) -> Figure:
    """Each method's difference from the Transformer by dropout or share of data, and how it changes.

    Over the seeds that all stored variants have. What is not stored yet is left out.

    Raises:
        DataError: the stored variants have no seed in common.
    """
    groups, task = chosen(profile, figure.experiment, figure.label), task_of(figure.experiment)
    design, families = design_of(task).among(groups), families_of(task, groups)
    change = next(name for name in families if name in CHANGES)
    looks, factor = looks_of(figure.experiment, groups), design.factor
    positions = np.log10(design.levels) if factor.logarithmic else np.array(design.levels)
    width = positions[-1] - positions[0]
    look = {name: next(looks[one] for one in groups if one in of.values()) for name, of in design.methods.items()}
    waiting = not_judged_yet(profile, figure.experiment, groups)
    scores = {name: scores_in_common(task, groups, name, whole=not waiting) for name in PANELS}
    changes = {name: families[change].estimate(of) for name, of in scores.items()}
    both = any(one.count for one in changes[LOWEST_LOSS])  # all levels that it asks for are stored
    drawn, axes = plotting.new_figure(WIDTH, 5.2, 2, 1 + both, width_ratios=(3, 2)[: 1 + both])
    for (left, *right), (name, panel) in zip(axes, PANELS.items(), strict=True):
        by_level = dict(zip(design.pairs(), families["levels"].estimate(scores[name]), strict=True))
        for number, (method, of) in enumerate(look.items()):
            ones = [by_level[method, level] for level in design.levels]
            shifted = positions + 0.03 * width * (number - (len(look) - 1) / 2)
            if any(one.count for one in ones):
                _draw_levels(left, shifted, ones, of)
                for ax in right if changes[name][number].count else ():
                    plotting.add_interval(ax, number, changes[name][number], of["marker"], color=of["color"])
        left.axhspan(-MARGINS[name], MARGINS[name], color="0.9", lw=0, zorder=-1)
        left.axhline(0, color="0.35", lw=1, ls="--", zorder=0)
        left.set(xlim=(positions[0] - 0.15 * width, positions[-1] + 0.15 * width), xlabel=factor.name)
        left.set_xticks(positions, [factor.at(level) for level in design.levels])
        left.set_ylabel(f"{panel.label}\nminus the Transformer's\n({panel.unit})", fontsize=SMALL)
        left.set_title("better ↑" if panel.higher else "better ↓", fontsize=SMALL, color="0.35")
        plotting.add_grid(left, "y")
        for ax in right:
            ax.axvline(0, color="0.35", lw=1, ls="--", zorder=0)
            plotting.name_rows(ax, [plotting.wrapped(method, 14) for method in look])
            what = plotting.wrapped(f"{panel.label}: {families[change].caption} ({panel.unit})", 44)
            ax.set_xlabel(what, fontsize=SMALL)
            right_is_more = panel.higher == (change == "ends")  # a slope rises towards the highest level
            more = f"gains more at {factor.at(design.levels[0])}"
            ax.set_title(f"{more} →" if right_is_more else f"← {more}", fontsize=SMALL, color="0.35")
    handles = [Line2D([], [], label=method, **of) for method, of in look.items()]
    plotting.add_handles(drawn, [*handles, shaded()], 3, SMALL)
    what = title(f"Gains by {factor.name}", groups).rpartition(", ")[0]
    seeds = set().union(*scores[LOWEST_LOSS].values())
    over = f"{plural(len(seeds), 'common seed' if waiting else 'seed')}, simultaneous 95 % intervals"
    plotting.add_title(drawn, f"{what}, {over}\n{waiting}".rstrip())
    return drawn


def _draw_levels(ax: Axes, positions: np.ndarray, ones: list[Difference], look: Mapping[str, Any]) -> None:
    """A method's differences, joined, with their intervals."""
    halves = [0.0 if math.isnan(one.half) else one.half for one in ones]
    ax.errorbar(positions, [one.mean for one in ones], yerr=halves, ms=5, lw=1.2, capsize=2.5, **look)
