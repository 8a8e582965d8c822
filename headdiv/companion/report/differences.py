"""Figures of differences: of rows to the Transformer, of one change, of methods at several levels of a factor."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from headdiv.companion.analysis.comparison import Difference, uneven
from headdiv.companion.experiments.papers import BASELINE, Column, PaperTask
from headdiv.companion.report import plotting
from headdiv.companion.report.families import (
    CHANGES,
    compared_scores,
    design_of,
    families_of,
    means_of,
    outlier_note_by_score,
    pair_differences,
    reported_difference,
    scores_of,
    seed_by_seed,
    stored_contrasts,
)
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import as_printed, plural, signed, with_unit
from headdiv.companion.report.groups import runs_of_figure, title, title_without_seeds
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import SMALL, VERDICT_LOOKS
from headdiv.companion.report.result_tables import results_of
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NOT_JUDGED, NOT_YET, verdict
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import NotStoredError

WIDTH = 9.2  # inches
LETTERS = 30  # of a row's label, in one line
FEW = 2  # scores, beside whose panels there is room for numbers
FAR = 6  # half intervals: a row off the axis, its number beside it; twice as many where the row is judged


PANELS = {  # how scores are called here; others as in the paper's table
    LOWEST_LOSS: Column(label="lowest validation loss", unit="nats/token", better="lower", digits=3),
    "bleu": Column(label="BLEU", unit="0 to 100", better="higher", digits=2),
}


def column_of(task: PaperTask, kind: str, score: str) -> Column:
    """How a score is called and printed; by the kind of task where the paper has no such column."""
    main = TASKS[kind].main_score
    other = Column(label=main.label, unit="", better=main.better, digits=main.digits)
    return PANELS.get(score) or task.columns.get(score) or other


def _unit_of_difference(panel: Column) -> str:
    return "points" if panel.unit in {"0 to 100", "%"} else panel.unit


def draw_rows(
    ax: Axes, differences: Sequence[Difference], higher: bool, margin: float | None = None, judged: bool = True
) -> list[str]:
    """A row for each difference, coloured by its verdict; the margin of equivalence is shaded. Returns the verdicts."""
    ax.axvline(0, color="0.35", lw=1, ls="--", zorder=0)
    if margin is not None:
        ax.axvspan(-margin, margin, color="0.9", lw=0, zorder=-1)
    verdicts = [verdict(difference, higher, margin) if judged else NOT_YET for difference in differences]
    for y, (difference, decision) in enumerate(zip(differences, verdicts, strict=True)):
        plotting.add_interval(ax, y, difference, **VERDICT_LOOKS[decision])
    ax.set_title("better →" if higher else "← better", fontsize=SMALL, color="0.35")
    return verdicts


def shaded() -> Patch:
    """The legend's entry of a shaded margin."""
    within = f"within ±{MARGINS[LOWEST_LOSS]} nats, ±{MARGINS['bleu']} BLEU"
    return Patch(color="0.9", label=f"equivalence: {within}")


# ---- every row, and one change


class Line(NamedTuple):
    """What is drawn of a pair in one score."""

    difference: Difference
    seeds: list[float]  # differences of the same seed
    paper: list[float]  # that of the paper, where it reports both


@figure_kind("differences", against_baseline=True)
def draw_differences(profile: str, figure: FigureEntry, scores: Sequence[str] = ()) -> Figure:
    """Every row against the baseline, and below it what one change does to two rows: a panel for each score.

    Rows are in the paper's order, or, where the lowest validation loss is shown, in its order, with rows that are not
    judged below all others. Small points are differences of the same seed, rings the paper's.

    Args:
        profile: name or path of a profile.
        figure: whose runs are shown.
        scores: by default those of the paper's table.

    Raises:
        NotStoredError: no two variants that are compared are stored.
    """
    results, groups = results_of(profile, figure.experiment), runs_of_figure(profile, figure)
    task = results.task
    # Labels by the two variants that are compared.
    rows = {(variant, BASELINE): task.label(variant) for variant in groups if variant != BASELINE}
    changes = {
        (contrast.variant, contrast.against): contrast.what
        for contrast in stored_contrasts(task, groups)
        if contrast.against != BASELINE
    }
    if not rows:
        raise NotStoredError(f"{figure.label} needs two variants to compare among the stored runs of profile {profile}")
    kind = results.runs[0].kind
    panels = {score: column_of(task, kind, score) for score in scores or compared_scores(task)}
    values, lines = {score: scores_of(results.model, score) for score in panels}, {}
    pairs = [*rows, *changes]
    for score in panels:
        lines[score] = {
            pair: Line(difference, seed_by_seed(groups, *pair, score), reported_difference(task, *pair, score))
            for pair, difference in zip(pairs, pair_differences(values[score], pairs), strict=True)
        }
    if LOWEST_LOSS in lines:
        losses = {pair: line.difference for pair, line in lines[LOWEST_LOSS].items()}
        in_order = sorted(rows, key=lambda pair: (verdict(losses[pair]) == NOT_JUDGED, losses[pair].mean))
        rows = {pair: rows[pair] for pair in in_order}
    parts = [part for part in (rows, changes) if part]
    heights = [len(part) + 1.8 for part in parts]
    fig, axes = plotting.new_figure(
        WIDTH, 0.3 * sum(heights) + 1.2, len(parts), len(panels), sharex="col", sharey="row", height_ratios=heights
    )
    verdicts = []
    for (score, panel), column in zip(panels.items(), axes.T, strict=True):
        margin, numbers = MARGINS.get(score), len(panels) <= FEW
        column[0].set_xlim(*_limits(list(lines[score].values()), margin or 0.0, numbers))
        for ax, part in zip(column, parts, strict=True):
            shown = [lines[score][pair] for pair in part]
            differences = [line.difference for line in shown]
            decisions = draw_rows(ax, differences, panel.better != "lower", margin, not results.pending_note)
            for y, line in enumerate(shown):
                _mark_line(ax, y, line, VERDICT_LOOKS[decisions[y]]["color"])
            if numbers:  # to the right of the axis
                for y, line in enumerate(shown):
                    text = "no seed in common"
                    if line.difference.count:
                        text = signed(line.difference.mean, panel.digits, line.difference.half)
                    place = {"xy": (1.03, y), "xycoords": ("axes fraction", "data")}
                    ax.annotate(text, **place, va="center", fontsize=SMALL - 1)
            plotting.name_rows(ax, [plotting.wrapped(label, LETTERS) for label in part.values()])
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.tick_params(labelsize=SMALL)
            verdicts += decisions
        base = means_of({BASELINE: groups[BASELINE]}, score)[BASELINE]
        heading = with_unit(f"{panel.label}: difference", _unit_of_difference(panel))
        level = as_printed(base.mean, panel.digits, base.half)
        column[-1].set_xlabel(f"{heading}\nthe Transformer's: {level}", fontsize=SMALL)
    handles = [Line2D([], [], color="0.2", marker="o", ms=2.5, mew=0, ls="none", label="a seed")]
    handles += plotting.verdict_handles(verdicts)
    if any(line.paper for by_pair in lines.values() for line in by_pair.values()):
        handles.append(Line2D([], [], color="0.2", marker="o", mfc="none", ms=7, ls="none", label="the paper, one run"))
    if MARGINS.keys() & panels.keys():
        handles.append(shaded())
    plotting.add_handles(fig, handles, 4, SMALL)
    subject = f"{task.table}: differences from the Transformer"
    if changes:
        subject += ", and effects of single changes"
    outliers = {panel.label: uneven(values[score]) & groups.keys() for score, panel in panels.items()}
    heading = title(subject, groups)
    if any(plotting.half_or_zero(line.difference) for by_pair in lines.values() for line in by_pair.values()):
        heading += "; simultaneous 95 % intervals"
    plotting.add_title(fig, "\n".join([heading, *results.remarks(*outlier_note_by_score(task, outliers))]))
    return fig


def _limits(lines: Sequence[Line], margin: float, numbers: bool) -> tuple[float, float]:
    """The ends of an axis with 0 and all rows: their means, ends, seeds and the paper's.

    Where ``numbers`` stand beside the axis, it leaves out rows so far off that the others could not be read. What is
    within `FAR` margins of equivalence is near, however small the intervals are. The intervals of one or two seeds may
    run off the axis.
    """
    estimated = [line for line in lines if line.difference.count]
    near = estimated
    if numbers:
        judged = [line for line in estimated if verdict(line.difference) != NOT_JUDGED]
        sizes = [plotting.half_or_zero(line.difference) or abs(line.difference.mean) for line in judged or estimated]
        far = FAR * max(median(sizes or [0.0]), margin)
        near = [line for line in estimated if abs(line.difference.mean) <= (2 * far if line in judged else far)]
        near = near or estimated
    values = [0.0]
    for difference, seeds, paper in near:
        half = plotting.half_or_zero(difference) if difference.count > 2 else 0.0
        values += [difference.mean, difference.mean - half, difference.mean + half, *seeds, *paper]
    room = 0.05 * (max(values) - min(values)) or 1.0
    return min(values) - room, max(values) + room


def _mark_line(ax: Axes, y: int, line: Line, color: str) -> None:
    """A point for each seed, a ring for the paper's, and an arrow head where the interval goes on beyond the axis."""
    ax.plot(line.seeds, np.full(len(line.seeds), y), "o", color="0.2", ms=2.5, mew=0, zorder=3)
    if line.paper:
        ax.plot(line.paper, [y], "o", color="0.2", mfc="none", ms=7, zorder=4)
    (low, high), half = ax.get_xlim(), plotting.half_or_zero(line.difference)
    for is_cut, end, marker in (
        (line.difference.mean - half < low, low, "<"),
        (line.difference.mean + half > high, high, ">"),
    ):
        if is_cut:
            ax.plot([end], [y], marker, color=color, ms=5, mew=0, clip_on=False)


# ---- methods at several levels of a factor


@figure_kind("levels", against_baseline=True)
def draw_levels(profile: str, figure: FigureEntry) -> Figure:
    """Each method's difference from the Transformer by dropout or share of data, and how it changes.

    What is not stored yet is left out.
    """
    results = results_of(profile, figure.experiment)
    task, groups = results.task, results.groups
    design, families = design_of(task).among(groups), families_of(task, groups)
    change, factor = next(name for name in families if name in CHANGES), design.factor
    variant_looks, looks = looks_of(figure.experiment, groups), {}
    for method, variants in design.methods.items():
        looks[method] = next(look for variant, look in variant_looks.items() if variant in variants.values())
    scores = {name: scores_of(groups, name) for name in PANELS}
    changes = {name: families[change].estimate(scores[name]) for name in PANELS}
    # A change can be drawn once all levels that it asks for are stored.
    columns = 2 if any(difference.count for difference in changes[LOWEST_LOSS]) else 1
    fig, axes = plotting.new_figure(WIDTH, 5.2, 2, columns, width_ratios=(3, 2)[:columns])
    positions = np.log10(design.levels) if factor.logarithmic else np.array(design.levels)
    width = positions[-1] - positions[0]
    for (left, *right), (name, panel) in zip(axes, PANELS.items(), strict=True):
        unit = _unit_of_difference(panel)
        by_level = dict(zip(design.pairs(), families["levels"].estimate(scores[name]), strict=True))
        for number, (method, look) in enumerate(looks.items()):
            differences = [by_level[method, level] for level in design.levels]
            if not any(difference.count for difference in differences):
                continue
            shifted = positions + 0.03 * width * (number - (len(looks) - 1) / 2)
            means = [difference.mean for difference in differences]
            halves = [plotting.half_or_zero(difference) for difference in differences]
            left.errorbar(shifted, means, yerr=halves, ms=5, lw=1.2, capsize=2.5, **look)
            if changes[name][number].count:
                for ax in right:
                    plotting.add_interval(ax, number, changes[name][number], look["marker"], color=look["color"])
        left.axhspan(-MARGINS[name], MARGINS[name], color="0.9", lw=0, zorder=-1)
        left.axhline(0, color="0.35", lw=1, ls="--", zorder=0)
        left.set(xlim=(positions[0] - 0.15 * width, positions[-1] + 0.15 * width), xlabel=factor.name)
        left.set_xticks(positions, [factor.at(level) for level in design.levels])
        left.set_ylabel(f"{panel.label}\nminus the Transformer's\n({unit})", fontsize=SMALL)
        left.set_title("better ↑" if panel.better == "higher" else "better ↓", fontsize=SMALL, color="0.35")
        plotting.add_grid(left, "y")
        for ax in right:
            ax.axvline(0, color="0.35", lw=1, ls="--", zorder=0)
            plotting.name_rows(ax, [plotting.wrapped(method, 14) for method in looks])
            unit_of_change = f"{unit} per factor of 10" if change == "slope" else unit
            label = plotting.wrapped(f"{panel.label}: {families[change].caption} ({unit_of_change})", 44)
            ax.set_xlabel(label, fontsize=SMALL)
            right_is_more = (panel.better == "higher") == (change == "ends")  # a slope rises towards the highest level
            text = f"gains more at {factor.at(design.levels[0])}"
            ax.set_title(f"{text} →" if right_is_more else f"← {text}", fontsize=SMALL, color="0.35")
    handles = [Line2D([], [], label=method, **look) for method, look in looks.items()]
    plotting.add_handles(fig, [*handles, shaded()], 3, SMALL)
    subject = title_without_seeds(f"Gains by {factor.name}", groups)
    seeds = set().union(*scores[LOWEST_LOSS].values())
    intervals = f"{plural(len(seeds), 'seed')}, simultaneous 95 % intervals"
    plotting.add_title(fig, f"{subject}, {intervals}\n{results.pending_note}".rstrip())
    return fig
