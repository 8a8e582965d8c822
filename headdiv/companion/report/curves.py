"""What an experiment's runs are like after each epoch: learning curves, and measures of the heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import BASELINE, PaperTask
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.families import PLAIN, beside, design_of, scores_of
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import signed
from headdiv.companion.report.groups import (
    Groups,
    by_variant,
    judged_with,
    labels_of,
    not_judged_yet,
    over_seeds,
    task_shown,
)
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import (
    GREY,
    SMALL,
    VERDICT_LOOKS,
    add_grid,
    add_handles,
    add_title,
    new_figure,
    verdict_areas,
    whole_ticks,
    wrapped,
)
from headdiv.companion.report.scale import data_title, training_size
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NOT_JUDGED, NOT_YET, verdict
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import VALIDATION_LOSS, Panel

UNFILLED = (NOT_JUDGED, NOT_YET)
FAR = 4  # times the median row's range: a row with a scale of its own
WIDE, HIGH, LOW = 2.5, 1.5, 0.45  # inches: a measure; the row of absolute values; a row of differences
START = 0.15  # of the updates of a level's longest run: what is before is not in the range of an axis


@figure_kind("curves")
def draw_curves(profile: str, figure: FigureEntry, by_level: bool = False) -> Figure:
    """Training loss and the task's measures of the validation split, by epoch, or by updates for each level.

    By epoch, the first row has the baseline's, means over seeds; every other row a variant's difference from the
    baseline of the same seed, or from the Transformer at the same level of a factor: the mean over seeds as an area,
    each seed as a thin line, and the last epoch's mean as a number. All differences of a measure have one scale, but
    those far beyond most. Without a baseline all rows have absolute values. A row's colour is the verdict of its
    simultaneous interval after the last epoch, once it may be judged. Where rules name the score that decides, it alone
    has colours, and its own difference is the number; there are no areas then, and the scale is that of the second half
    of the epochs. Runs that ended early are drawn as far as all of a row go.
    """
    groups = by_variant(profile, figure.experiment)
    task = task_shown(figure.experiment, groups)
    drawn, notes = _by_level(groups, task) if by_level else _by_epoch(profile, figure, groups, task)
    add_title(drawn, "\n".join([f"{task.subject}: {runs_shown(groups)}", *notes]))
    return drawn


def runs_shown(groups: Groups) -> str:
    """ "Multi30k English-German, 29,000 training pairs, mean over 2 seeds"."""
    runs = [run for of_variant in groups.values() for run in of_variant]
    return f"{data_title(runs[0].data_name)}, {training_size(*runs)}, {over_seeds(groups)}"


def _panels(groups: Groups) -> tuple[Panel, ...]:
    return TASKS[next(iter(groups.values()))[0].kind].curves


def curve_of(panel: Panel, run: RunResult) -> np.ndarray:
    """What a panel shows of a run after each epoch, (epochs,); of perplexities their logarithms."""
    return np.array([getattr(point, panel.key) for point in run.curve])


def common_epochs(curves: Sequence[Sequence[float]]) -> np.ndarray:
    """Curves as rows, (runs, epochs), cut to the shortest: with ``train.patience`` runs end at different epochs."""
    shortest = min(map(len, curves))
    return np.array([curve[:shortest] for curve in curves])


def _label(panel: Panel, run: RunResult, separator: str = " ") -> str:
    unit = run.scores["training_loss"].unit if panel.unit is None else panel.unit
    return f"{panel.label}{separator}({unit})"


# ---- by epoch: the baseline's, and differences from it


def _by_epoch(profile: str, figure: FigureEntry, groups: Groups, task: PaperTask) -> tuple[Figure, list[str]]:
    """The axes of `draw_curves`, and what is said below the title of how to read them."""
    panels, labels = _panels(groups), labels_of(figure.experiment, groups)
    variants = [variant for variant in groups if variant != BASELINE]
    absolute = [BASELINE] if BASELINE in groups else variants
    rows = [*absolute, *variants] if BASELINE in groups else variants
    heights = [HIGH if variant in absolute else LOW for variant in rows]
    drawn, axes = new_figure(WIDE * len(panels) + 1.6, sum(heights) + 0.9, len(rows), len(panels), sharex=True,
                             height_ratios=heights)  # fmt: skip
    waiting, compared_with = not_judged_yet(profile, figure.experiment, groups), beside(task, groups)
    design, model = design_of(task), judged_with(profile, figure.experiment)
    apart, verdicts = False, set()
    for column, panel in zip(axes.T, panels, strict=True):
        judged = {}
        if BASELINE in groups:
            judged = _judged(task, panel, model, groups)
        for ax, variant in zip(column, rows, strict=True):
            if variant in absolute:
                _draw_absolute(ax, panel, groups[variant])
                continue
            difference = judged.get(variant)
            decided = None
            if difference is not None:
                decided = NOT_YET if waiting else verdict(difference, panel.higher, MARGINS.get(task.primary))
                verdicts.add(decided)
            curves = _differences(panel, groups[variant], groups.get(compared_with[variant], []))
            _draw_differences(ax, panel, curves, decided, difference, bool(task.primary))
        column[0].set_title(_label(panel, groups[rows[0]][0]), fontsize=SMALL)
        apart |= _share_scale([ax for ax, variant in zip(column, rows, strict=True) if variant != BASELINE])
        for ax in column[:-1]:
            ax.tick_params(axis="x", length=0)
        column[-1].spines["bottom"].set_visible(True)
        column[-1].set_xlabel("epoch")
        whole_ticks(column[-1], 6)
    for ax, variant in zip(axes[:, 0], rows, strict=True):
        ax.set_ylabel(wrapped(labels[variant], 24), rotation=0, ha="right", va="center", fontsize=SMALL)
    if verdicts:
        add_handles(drawn, verdict_areas(verdicts), 4, SMALL)
    key = []
    if BASELINE in groups and variants:
        key.append("below the baseline: difference from it")
        if design:
            same = design.factor.same
            key = [f"methods: difference from the Transformer with the same {same}; its own: from the first row"]
    if verdicts and task.primary:
        key.append("colours, and numbers with ±: the lowest validation loss, which decides")
    elif verdicts:
        key.append("judged after the last epoch")
    if apart:
        key.append("thick axis: its own scale")
    return drawn, [note for note in ("; ".join(key), waiting) if note]


def _judged(task: PaperTask, panel: Panel, model: Groups, groups: Groups) -> dict[str, Difference]:
    """Each variant's difference to the one that it is compared with, which decides, in the measure of a panel.

    After the last epoch; or, where rules name the score that decides, of that alone, in the panel of its curve. Of a
    design, only methods are judged at each level, and the Transformer's own rows are not.
    """
    design = design_of(task)
    plain = set(design.plain.values()) if design else set()
    compared = {name: other for name, other in beside(task, groups).items() if name not in plain and other in groups}
    if not task.primary:
        scores = {name: {run.seed: float(curve_of(panel, run)[-1]) for run in runs} for name, runs in model.items()}
        compared = {name: BASELINE for name in model if name != BASELINE} | compared
    elif (task.primary, panel.key) == (LOWEST_LOSS, VALIDATION_LOSS.key):
        scores = scores_of(model, LOWEST_LOSS)
    else:
        return {}
    differences = comparison.differences(scores, list(compared.items()))
    return {name: differences[name, other] for name, other in compared.items() if name in groups}


def _draw_absolute(ax: Axes, panel: Panel, runs: list[RunResult]) -> None:
    """The mean over seeds, and the level of the simplest model."""
    values = common_epochs([curve_of(panel, run) for run in runs])
    mean = (np.exp(values) if panel.perplexity else values).mean(axis=0)
    ax.plot(np.arange(1, len(mean) + 1), mean, color=GREY, marker="o", ms=2.5, lw=1.2)
    if panel.unigram:
        level = runs[0].scores["unigram_nll"].value
        ax.axhline(np.exp(level) if panel.perplexity else level, color="0.6", lw=1, ls="--")
    ax.tick_params(labelsize=SMALL)
    if not panel.perplexity:
        return
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high < 10 * low:  # round numbers of a linear axis, for powers of ten are too far apart
        ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _differences(panel: Panel, runs: list[RunResult], others: list[RunResult]) -> np.ndarray:
    """Differences seed by seed, (seeds, epochs), of the seeds that both have; of perplexities in percent."""
    by_seed = {run.seed: curve_of(panel, run) for run in others}
    pairs = [common_epochs([curve_of(panel, run), by_seed[run.seed]]) for run in runs if run.seed in by_seed]
    if not pairs:
        return np.empty((0, 0))
    differences = common_epochs([curve - other for curve, other in pairs])
    return 100 * np.expm1(differences) if panel.perplexity else differences


def _draw_differences(
    ax: Axes, panel: Panel, curves: np.ndarray, decided: str | None, judged: Difference | None, by_rules: bool
) -> None:
    """Differences, (seeds, epochs), and the mean over seeds.

    The area is filled where ``decided`` is a verdict, and grey where it is None: nothing is decided by this measure. By
    rules there is no area, since no epoch's mean decides; the number is the difference that does, if there is one.
    """
    ax.axhline(0, color="0.6", lw=0.8)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(labelsize=SMALL - 1)
    if not len(curves):
        ax.text(0.5, 0.5, "no seed in common", transform=ax.transAxes, ha="center", va="center", fontsize=SMALL)
        return
    epochs, mean = np.arange(1, curves.shape[1] + 1), curves.mean(axis=0)
    if len(curves) > 1:
        ax.plot(epochs, curves.T, color="0.45", lw=0.5)
    colour = VERDICT_LOOKS[decided]["color"] if decided else GREY
    if by_rules:
        late = [0.0, *curves[:, len(mean) // 2 :].flat]
        if max(late) > min(late):
            ax.set_ylim(min(late), max(late))
    elif decided not in UNFILLED:
        ax.fill_between(epochs, 0, mean, color=colour, alpha=0.35, lw=0)
    ax.plot(epochs, mean, color=colour, lw=1.3, marker="o", ms=2)
    if by_rules and judged and judged.count:
        number = signed(judged.mean, 3, judged.half).replace(" ±", "\n±")
    else:
        digits = 1 if panel.perplexity or panel.higher else 2
        number = signed(round(mean[-1], digits), digits)
    number += " %" if panel.perplexity else ""
    ax.annotate(number, (1.02, 0.5), xycoords="axes fraction", va="center", fontsize=SMALL)


def _share_scale(axes: Sequence[Axes]) -> bool:
    """These rows have the range of the widest; but one that is `FAR` times as wide as most has its own.

    In its range the others would be flat lines; its axis is thick. Returns whether there is such a row.
    """
    if not axes:
        return False
    ends = np.array([ax.get_ylim() for ax in axes])  # (rows, 2)
    widths = np.ptp(ends, axis=1)
    far = widths > FAR * np.median(widths)
    shared = ends[~far, 0].min(), ends[~far, 1].max()
    for ax, limits, alone in zip(axes, ends, far, strict=True):
        low, high = limits if alone else shared
        if ax.get_yscale() == "linear":
            room = 0.1 * (high - low)
            ax.yaxis.set_major_locator(MaxNLocator(2))
        else:  # a logarithmic axis has no room below 0
            room = 0.0
        ax.set_ylim(low - room, high + room)
        if alone:
            ax.spines["left"].set_linewidth(2.5)
    return bool(far.any())


# ---- by updates, at several levels of a factor, where an epoch is not the same at all of them


def _by_level(groups: Groups, task: PaperTask) -> tuple[Figure, list[str]]:
    """A column for each stored level, with a line for each model; a ring is the lowest validation loss of a seed.

    An axis has the range of its own values after the first of the updates (`START`), since levels are far apart.
    """
    design, panels = design_of(task), _panels(groups)
    looks = looks_of(next(iter(groups.values()))[0].experiment, groups)
    models = {
        name: {level: variant for level, variant in variants.items() if variant in groups}
        for name, variants in {PLAIN: design.plain, **design.methods}.items()
    }
    colours = {name: looks[min(stored.values(), key=list(groups).index)]["color"]
               for name, stored in models.items() if stored}  # fmt: skip
    levels = [level for level in design.levels if any(level in stored for stored in models.values())]
    drawn, axes = new_figure(8.4, 2.0 * len(panels) + 1.0, len(panels), len(levels), sharex="col")
    for column, level in zip(axes.T, levels, strict=True):
        for ax, panel in zip(column, panels, strict=True):
            for name, stored in models.items():
                if level in stored:
                    _draw_by_updates(ax, panel, groups[stored[level]], colours[name])
            _keep_late(ax, panel.perplexity)
            ax.tick_params(labelsize=SMALL)
            add_grid(ax, "y")
        column[0].set_title(f"{design.factor.at(level)} of the {design.factor.same}", fontsize=SMALL)
        column[-1].set_xlabel("updates (thousand)", fontsize=SMALL)
        column[0].set_xlim(left=0)
    for ax, panel in zip(axes[:, 0], panels, strict=True):
        ax.set_ylabel(_label(panel, next(iter(groups.values()))[0], "\n"), fontsize=SMALL)
    ring = Line2D([], [], ls="", marker="o", mfc="white", mec="0.3", label="lowest validation loss of a seed")
    lines = [Line2D([], [], lw=1.6, label=name, color=colour) for name, colour in colours.items()]
    add_handles(drawn, [*lines, ring], 4, SMALL)
    return drawn, []


def _draw_by_updates(ax: Axes, panel: Panel, runs: list[RunResult], colour: str) -> None:
    """The runs of one model: thick their mean, as far as all of them go; thin a seed."""
    curves = [np.exp(curve) if panel.perplexity else curve for curve in (curve_of(panel, run) for run in runs)]
    updates = [np.array([point.steps for point in run.curve]) / 1000 for run in runs]
    mean = common_epochs(curves).mean(axis=0)  # (epochs,)
    ax.plot(min(updates, key=len), mean, lw=1.6, color=colour)
    for x, y in zip(updates, curves, strict=True):
        if len(runs) > 1:
            ax.plot(x, y, lw=0.4, alpha=0.6, color=colour)
        if panel.key == VALIDATION_LOSS.key:
            best = int(y.argmin())
            ax.plot(x[best], y[best], "o", mfc="white", mec=colour, ms=4)


def _keep_late(ax: Axes, logarithmic: bool) -> None:
    """An axis with the range of its values after `START` of the updates."""
    end = max(line.get_xdata()[-1] for line in ax.lines)
    late = np.concatenate([line.get_ydata()[np.asarray(line.get_xdata()) >= START * end] for line in ax.lines])
    low, high = late.min(), late.max()
    room = 0.05 * (high - low)
    if logarithmic:
        ax.set_yscale("log")
        ax.set_ylim(low, high + room)
    else:
        ax.set_ylim(low - room, high + room)
