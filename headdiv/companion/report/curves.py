"""Learning curves: an experiment's runs after each epoch, as differences from the baseline or by updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.families import PLAIN, design_of, references_of, scores_of
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import signed
from headdiv.companion.report.groups import Groups, over_seeds
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
from headdiv.companion.report.result_tables import Results, results_of
from headdiv.companion.report.scale import data_title, training_size
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NOT_JUDGED, NOT_YET, verdict
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import VALIDATION_LOSS, Panel

UNFILLED = (NOT_JUDGED, NOT_YET)
FAR = 4  # times the median row's range: a row with a scale of its own
WIDE, HIGH, LOW = 2.5, 1.5, 0.45  # inches: a measure; the row of absolute values; a row of differences
START = 0.15  # of the updates of a level's longest run: an axis need not show what comes before


@figure_kind("curves", against_baseline=True)
def draw_curves(profile: str, figure: FigureEntry, by_level: bool = False) -> Figure:
    """Training loss and the task's measures of the validation split, by epoch, or by updates for each level.

    By epoch, the first row has the baseline's, means over seeds; every other row a variant's difference from the
    baseline of the same seed, or from the Transformer at the same level of a factor: the mean over seeds as an area,
    each seed as a thin line, and the last epoch's mean as a number. All differences of a measure have one scale, but
    those far beyond most. A row's colour is the verdict of its simultaneous interval after the last epoch, once it may
    be judged. Where rules name the score that decides, it alone has colours, and its own difference is the number;
    there are no areas then, and the scale is that of the second half of the epochs. A row's curves end where its
    shortest run does.
    """
    results = results_of(profile, figure.experiment)
    fig, notes = _by_level(results) if by_level else _by_epoch(results)
    add_title(fig, "\n".join([f"{results.task.subject}: {runs_shown(results.groups)}", *notes]))
    return fig


def runs_shown(groups: Groups) -> str:
    """ "Multi30k English-German, 29,000 training pairs, mean over 2 seeds"."""
    runs = [run for variant_runs in groups.values() for run in variant_runs]
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


def _by_epoch(results: Results) -> tuple[Figure, list[str]]:
    """The figure of `draw_curves`, and the lines below its title that say how to read it."""
    task, groups, labels, pending_note = results.task, results.groups, results.labels, results.pending_note
    panels, references = _panels(groups), references_of(task, groups)
    variants = [variant for variant in groups if variant != BASELINE]
    heights = [HIGH, *[LOW] * len(variants)]
    fig, axes = new_figure(WIDE * len(panels) + 1.6, sum(heights) + 0.9, len(heights), len(panels), sharex=True,
                           height_ratios=heights)  # fmt: skip
    own_scale, verdicts = False, set()
    for column, panel in zip(axes.T, panels, strict=True):
        deciding = _deciding_differences(results, panel)
        _draw_absolute(column[0], panel, groups[BASELINE])
        for ax, variant in zip(column[1:], variants, strict=True):
            difference = deciding.get(variant)
            decision = None
            if difference is not None:
                decision = NOT_YET if pending_note else verdict(difference, panel.higher, MARGINS.get(task.primary))
                verdicts.add(decision)
            curves = _differences(panel, groups[variant], groups.get(references[variant], []))
            _draw_differences(ax, panel, curves, decision, difference, bool(task.primary))
        column[0].set_title(_label(panel, groups[BASELINE][0]), fontsize=SMALL)
        own_scale |= _share_scale(column[1:])
        for ax in column[:-1]:
            ax.tick_params(axis="x", length=0)
        column[-1].spines["bottom"].set_visible(True)
        column[-1].set_xlabel("epoch")
        whole_ticks(column[-1], 6)
    for ax, variant in zip(axes[:, 0], (BASELINE, *variants), strict=True):
        ax.set_ylabel(wrapped(labels[variant], 24), rotation=0, ha="right", va="center", fontsize=SMALL)
    if verdicts:
        add_handles(fig, verdict_areas(verdicts), 4, SMALL)
    hints = []
    if variants:
        hints.append("below the baseline: difference from it")
        if task.factor:
            shared = task.factor.same
            hints = [f"methods: difference from the Transformer with the same {shared}; its own: from the first row"]
    if verdicts and task.primary:
        hints.append("colours, and numbers with ±: the lowest validation loss, which decides")
    elif verdicts.difference(UNFILLED):
        hints.append("judged after the last epoch")
    if own_scale:
        hints.append("thick axis: its own scale")
    return fig, [note for note in ("; ".join(hints), pending_note) if note]


def _deciding_differences(results: Results, panel: Panel) -> dict[str, Difference]:
    """The differences in a panel's measure that decide: each variant's from the one that it is compared with.

    After the last epoch; or, where rules name the score that decides, of that alone, in the panel of its curve. In a
    design, methods are judged at each level, the Transformer's own rows are not.
    """
    task, groups, model, design = results.task, results.groups, results.model, design_of(results.task)
    plain = set(design.plain.values()) if design else set()
    references = {
        name: reference
        for name, reference in references_of(task, groups).items()
        if name not in plain and reference in groups
    }
    if not task.primary:
        scores = {name: {run.seed: float(curve_of(panel, run)[-1]) for run in runs} for name, runs in model.items()}
        references = {name: BASELINE for name in model if name != BASELINE} | references
    elif (task.primary, panel.key) == (LOWEST_LOSS, VALIDATION_LOSS.key):
        scores = scores_of(model, LOWEST_LOSS)
    else:
        return {}
    differences = comparison.differences(scores, list(references.items()))
    return {name: differences[name, reference] for name, reference in references.items() if name in groups}


def _draw_absolute(ax: Axes, panel: Panel, runs: list[RunResult]) -> None:
    """The mean over seeds, and dashed the loss of frequencies alone."""
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


def _differences(panel: Panel, runs: list[RunResult], references: list[RunResult]) -> np.ndarray:
    """Differences seed by seed, (seeds, epochs), of the seeds that both have; of perplexities in percent."""
    by_seed = {run.seed: curve_of(panel, run) for run in references}
    pairs = [common_epochs([curve_of(panel, run), by_seed[run.seed]]) for run in runs if run.seed in by_seed]
    if not pairs:
        return np.empty((0, 0))
    differences = common_epochs([curve - reference for curve, reference in pairs])
    return 100 * np.expm1(differences) if panel.perplexity else differences


def _draw_differences(
    ax: Axes, panel: Panel, curves: np.ndarray, decision: str | None, difference: Difference | None, by_rules: bool
) -> None:
    """Differences, (seeds, epochs), and the mean over seeds.

    The area is filled where ``decision`` is a verdict, and the line black where it is None: this measure decides
    nothing. By rules there is no area, since no epoch's mean decides; the number is the difference that does, if there
    is one.
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
    colour = VERDICT_LOOKS[decision]["color"] if decision else "0.15"
    if by_rules:
        late = [0.0, *curves[:, len(mean) // 2 :].flat]
        if max(late) > min(late):
            ax.set_ylim(min(late), max(late))
    elif decision not in UNFILLED:
        ax.fill_between(epochs, 0, mean, color=colour, alpha=0.35, lw=0)
    ax.plot(epochs, mean, color=colour, lw=1.3, marker="o", ms=2)
    if by_rules and difference and difference.count:
        number = signed(difference.mean, 3, difference.half).replace(" ±", "\n±")
    else:
        digits = 1 if panel.perplexity or panel.higher else 2
        number = signed(round(mean[-1], digits), digits)
    if panel.perplexity:
        number += " %"
    ax.annotate(number, (1.02, 0.5), xycoords="axes fraction", va="center", fontsize=SMALL)


def _share_scale(axes: Sequence[Axes]) -> bool:
    """Give rows the range of the widest; but one that is `FAR` times as wide as most keeps its own.

    In its range the others would be flat lines; its axis is thick. Returns whether there is such a row.
    """
    if not len(axes):
        return False
    limits = np.array([ax.get_ylim() for ax in axes])  # (rows, 2)
    widths = np.ptp(limits, axis=1)
    far = widths > FAR * np.median(widths)
    shared = limits[~far, 0].min(), limits[~far, 1].max()
    for ax, own, is_far in zip(axes, limits, far, strict=True):
        low, high = own if is_far else shared
        room = 0.1 * (high - low)
        ax.yaxis.set_major_locator(MaxNLocator(2))
        ax.set_ylim(low - room, high + room)
        if is_far:
            ax.spines["left"].set_linewidth(2.5)
    return bool(far.any())


# ---- by updates, at several levels of a factor, where an epoch is not the same at all of them


def _by_level(results: Results) -> tuple[Figure, list[str]]:
    """A column for each stored level, with a line for each model; a ring is the lowest validation loss of a seed.

    An axis has the range of its own values after the first of the updates (`START`), since levels are far apart.
    """
    groups, design, panels = results.groups, design_of(results.task), _panels(results.groups)
    looks = looks_of(results.experiment, groups)
    models = {
        name: {level: variant for level, variant in variants.items() if variant in groups}
        for name, variants in {PLAIN: design.plain, **design.methods}.items()
    }
    order = list(groups)
    colours = {}
    for name, by_level in models.items():
        if by_level:
            first = min(by_level.values(), key=order.index)
            colours[name] = looks[first]["color"]
    levels = [level for level in design.levels if any(level in by_level for by_level in models.values())]
    fig, axes = new_figure(8.4, 2.0 * len(panels) + 1.0, len(panels), len(levels), sharex="col")
    for column, level in zip(axes.T, levels, strict=True):
        for ax, panel in zip(column, panels, strict=True):
            for name, by_level in models.items():
                if level in by_level:
                    _draw_by_updates(ax, panel, groups[by_level[level]], colours[name])
            _show_late_values(ax, panel.perplexity)
            ax.tick_params(labelsize=SMALL)
            add_grid(ax, "y")
        column[0].set_title(f"{design.factor.at(level)} of the {design.factor.same}", fontsize=SMALL)
        column[-1].set_xlabel("updates (thousand)", fontsize=SMALL)
        column[0].set_xlim(left=0)
    for ax, panel in zip(axes[:, 0], panels, strict=True):
        ax.set_ylabel(_label(panel, results.runs[0], "\n"), fontsize=SMALL)
    ring = Line2D([], [], ls="", marker="o", mfc="white", mec="0.3", label="lowest validation loss of a seed")
    lines = [Line2D([], [], lw=1.6, label=name, color=colour) for name, colour in colours.items()]
    add_handles(fig, [*lines, ring], 4, SMALL)
    return fig, []


def _draw_by_updates(ax: Axes, panel: Panel, runs: list[RunResult], colour: str) -> None:
    """The runs of one model: a thick line for their mean, up to the end of the shortest, thin ones for seeds."""
    curves = [curve_of(panel, run) for run in runs]
    if panel.perplexity:
        curves = [np.exp(curve) for curve in curves]
    updates = [np.array([point.steps for point in run.curve]) / 1000 for run in runs]
    mean = common_epochs(curves).mean(axis=0)  # (epochs,)
    ax.plot(min(updates, key=len), mean, lw=1.6, color=colour)
    for x, y in zip(updates, curves, strict=True):
        if len(runs) > 1:
            ax.plot(x, y, lw=0.4, alpha=0.6, color=colour)
        if panel.key == VALIDATION_LOSS.key:
            best = int(y.argmin())
            ax.plot(x[best], y[best], "o", mfc="white", mec=colour, ms=4)


def _show_late_values(ax: Axes, logarithmic: bool) -> None:
    """Give an axis the range of its values after `START` of the updates."""
    end = max(line.get_xdata()[-1] for line in ax.lines)
    late = np.concatenate([line.get_ydata()[np.asarray(line.get_xdata()) >= START * end] for line in ax.lines])
    low, high = late.min(), late.max()
    room = 0.05 * (high - low)
    if logarithmic:
        ax.set_yscale("log")
        ax.set_ylim(low, high + room)
    else:
        ax.set_ylim(low - room, high + room)
