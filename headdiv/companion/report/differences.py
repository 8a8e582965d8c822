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

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.papers import BASELINE, task_of
from headdiv.companion.report import plotting
from headdiv.companion.report.contrasts import (
    compared_scores,
    differences_of,
    means_of,
    reported_difference,
    scores_of,
    seed_by_seed,
    set_apart_by_score,
    stored_contrasts,
)
from headdiv.companion.report.families import CHANGES, design_of, families_of, scores_in_common
from headdiv.companion.report.formats import as_printed, plural, signed
from headdiv.companion.report.groups import (
    Groups,
    chosen,
    failed_trainings,
    judged_with,
    labels_of,
    not_judged_yet,
    title,
)
from headdiv.companion.report.headtohead import all_quiet
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

WIDTH = 9.2  # inches
LETTERS = 30  # of a row's label, in one line
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


def draw_contrasts(profile: str, figure: FigureEntry) -> Figure:
    """Every row against the Transformer, and below it what one change does to two rows: a panel for each score.

    Beside the stored runs' differences stand the paper's where it reports them.
    """
    groups, task = plotting.runs_of_figure(profile, figure), task_of(figure.experiment)
    model, scores = judged_with(profile, figure.experiment), compared_scores(task)
    rows = [(task.label(name), name, BASELINE) for name in groups if name != BASELINE and BASELINE in groups]
    asked = [(one.what, one.variant, one.against) for one in stored_contrasts(task, groups) if one.against != BASELINE]
    parts = [part for part in (rows, asked) if part]
    if not parts:
        raise NotStoredError(f"{figure.label} needs two variants to compare among the stored runs of profile {profile}")
    heights = [len(part) + 1.8 for part in parts]
    drawn, axes = plotting.new_figure(
        WIDTH, 0.33 * sum(heights) + 1.0, len(parts), len(scores), sharex="col", sharey="row", height_ratios=heights
    )
    pairs = [pair for part in parts for _, *pair in part]
    points = {(name, *pair): seed_by_seed(groups, *pair, name) for pair in pairs for name in scores}
    found = {}
    for name in scores:
        ones = comparison.differences(scores_of(model, name), [(v, a) for _, v, a in asked])
        ones |= {(variant, BASELINE): one for variant, one in differences_of(model, name).items()}
        found |= {(name, *pair): ones.get(tuple(pair), NO_DIFFERENCE) for pair in pairs}
    papers = {(name, *pair): reported_difference(task, *pair, name) for pair in pairs for name in scores}
    for ax, name in zip(axes[-1], scores, strict=True):
        keys = [(name, *pair) for pair in pairs]
        ends = [end for key in keys for end in (*points[key], *_ends(found[key]), *papers[key])]
        ax.set_xlim(_range(ends))
    verdicts = []
    for part, line in zip(parts, axes, strict=True):
        for ax, (name, column) in zip(line, scores.items(), strict=True):
            keys = [(name, variant, against) for _, variant, against in part]
            verdicts += draw_rows(ax, [found[key] for key in keys], column.better != "lower", MARGINS.get(name))
            for y, key in enumerate(keys):
                _mark_cut(ax, y, found[key], verdicts[len(verdicts) - len(keys) + y])
                ax.plot(points[key], np.full(len(points[key]), y), "o", color="0.2", ms=2.5, mew=0, zorder=3)
                if papers[key]:
                    ax.plot(papers[key], [y], "o", color="0.2", mfc="none", ms=7, zorder=4)
            unit = f"\n({column.unit})" if column.unit else ""
            last = part is parts[-1]
            labels = [plotting.wrapped(label, LETTERS) for label, *_ in part]
            plotting.name_rows(ax, labels, xlabel=f"{column.label}{unit}" if last else "")
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.tick_params(labelsize=SMALL)
    handles = [Line2D([], [], color="0.2", marker="o", ms=2.5, mew=0, ls="none", label="a seed")]
    handles += plotting.verdict_handles(verdicts)
    if any(papers.values()):
        handles.append(Line2D([], [], color="0.2", marker="o", mfc="none", ms=7, ls="none", label="the paper, one run"))
    if MARGINS.keys() & scores.keys():
        handles.append(shaded())
    plotting.add_handles(drawn, handles, 4, SMALL)
    what = "Differences from the Transformer" + ", and effects of single changes" * bool(asked)
    plotting.add_title(drawn, f"{title(what, groups)}; simultaneous 95 % intervals")
    return drawn


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


def _range(values: list[float]) -> tuple[float, float]:
    """Of an axis that shows all of these and 0."""
    low, high = min([0.0, *values]), max([0.0, *values])
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room


# ---- methods beside the Transformer


def draw_forest(profile: str, figure: FigureEntry) -> Figure:
    """Validation loss and BLEU of every method minus the Transformer's, with simultaneous intervals; beside it costs.

    The lowest loss is on top, the margin of equivalence shaded; rows of one seed stand below all others, hollow. The
    time of training is shown where nothing else kept the machine busy while the runs were trained.

    Raises:
        DataError: no run of the baseline is stored.
    """
    groups = chosen(profile, figure.experiment, figure.label)
    if BASELINE not in groups:
        raise NotStoredError(f"{figure.label} needs {BASELINE} among the stored runs of profile {profile}")
    model = judged_with(profile, figure.experiment)
    found = {name: differences_of(model, name) for name in PANELS}
    judge = {variant: one for variant, one in found[LOWEST_LOSS].items() if variant in groups}
    order = sorted(judge, key=lambda variant: (verdict(judge[variant]) == NOT_JUDGED, judge[variant].mean))
    groups = {variant: groups[variant] for variant in [BASELINE, *order]}
    labels, quiet = labels_of(figure.experiment, groups), all_quiet(groups)
    drawn, (axes,) = plotting.new_figure(
        WIDTH, 0.27 * len(groups) + 1.7, 1, 3 + quiet, sharey=True, width_ratios=[2.2, 2.2, 1.1, 1.1][: 3 + quiet]
    )
    plotting.name_rows(axes[0], [plotting.wrapped(label, LETTERS) for label in labels.values()])
    waiting = not_judged_yet(profile, figure.experiment, groups)
    rows = {name: [of.get(variant, NO_DIFFERENCE) for variant in order] for name, of in found.items()}
    verdicts = {
        name: _draw_panel(ax, panel, name, groups, rows[name], not waiting)
        for ax, (name, panel) in zip(axes, PANELS.items(), strict=False)
    }
    _draw_costs(axes[2:], groups)
    handles = [*plotting.verdict_handles(one for of in verdicts.values() for one in of), shaded()]
    plotting.add_handles(drawn, handles, 3, SMALL)
    task = task_of(figure.experiment)
    apart = set_apart_by_score(task, {p.label: comparison.uneven(scores_of(model, n)) for n, p in PANELS.items()})
    lines = [title(task.table, groups) + "; simultaneous 95 % intervals", *[waiting] * bool(waiting), *apart]
    lines += failed_trainings(profile, figure.experiment)
    plotting.add_title(drawn, "\n".join(lines))
    return drawn


def _draw_panel(
    ax: Axes, panel: ScorePanel, name: str, groups: Groups, rows: list[Difference], judged: bool
) -> list[str]:
    """The Transformer at 0 with its own score, then a row for each difference with its number."""
    verdicts = draw_rows(ax, [None, *rows], panel.higher, MARGINS[name], judged)
    own = means_of(groups, name)[BASELINE]
    ax.plot(0, 0, "D", color="black", mfc="white", ms=6)
    texts = [as_printed(own.mean, panel.digits, own.half)]
    texts += ["no seed in common" if not one.count else signed(one.mean, panel.digits, one.half) for one in rows]
    for y, text in enumerate(texts):
        ax.annotate(text, (1.03, y), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL - 1)
    ax.set_xlabel(f"{panel.label}\nminus the Transformer's ({panel.unit})", fontsize=SMALL)
    ax.tick_params(labelsize=SMALL)
    ax.set_xlim(*_range([end for one in _near(rows, MARGINS[name]) for end in (one.mean, *_ends(one))]))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    for y, one in enumerate(rows, start=1):
        _mark_cut(ax, y, one, verdicts[y - 1])
    return verdicts


def _near(rows: Sequence[Difference], margin: float) -> list[Difference]:
    """The differences that an axis must hold: not those that are so far off that the others could not be read.

    What is within `FAR` margins of equivalence is near, however small the intervals are.
    """
    known = [one for one in rows if one.count]
    judged = [one for one in known if verdict(one) != NOT_JUDGED]
    size = median([abs(one.mean) if math.isnan(one.half) else one.half for one in judged or known] or [0.0])
    far = FAR * max(size, margin)
    return [one for one in known if abs(one.mean) <= (2 * far if one in judged else far)] or known


def _draw_costs(axes: Iterable[Axes], groups: Groups) -> None:
    """Parameters in percent of the Transformer's, and the time of training as a multiple of that of the same seed."""
    sizes, *times = axes
    base = groups[BASELINE]
    shares = [100 * runs[0].parameters / base[0].parameters for runs in groups.values()]
    sizes.plot(shares, range(len(groups)), "o", color=GREY, ms=4.5)
    sizes.update_datalim([(95, 0), (105, 0)])  # of nearly equal sizes ticks would have five digits
    sizes.autoscale_view()
    sizes.set_xlabel("parameters\n(% of it)", fontsize=SMALL)
    of_base = {run.seed: run.cost.training_seconds for run in base}
    for ax in times:
        for y, runs in enumerate(groups.values()):
            ratios = [run.cost.training_seconds / of_base[run.seed] for run in runs if run.seed in of_base]
            plotting.add_interval(ax, y, interval(ratios), color=GREY)
        ax.set_xlabel("training time\n(× its)", fontsize=SMALL)
    for ax in (sizes, *times):
        ax.axvline(100 if ax is sizes else 1, color="0.6", lw=0.8, zorder=0)
        ax.tick_params(axis="y", length=0)
        ax.tick_params(labelsize=SMALL)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        plotting.add_grid(ax, "x")


# ---- methods at several levels of a factor


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
