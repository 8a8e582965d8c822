"""What an experiment's runs are like after each epoch: learning curves, and measures of the heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import BASELINE, PaperTask, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.families import PLAIN, beside, design_of, scores_of
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import signed
from headdiv.companion.report.groups import (
    Groups,
    by_variant,
    chosen,
    judged_with,
    labels_of,
    not_judged_yet,
    over_seeds,
    task_shown,
)
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.measures import MEASURES
from headdiv.companion.report.plotting import (
    GREY,
    SMALL,
    VERDICT_LOOKS,
    add_grid,
    add_handles,
    add_legend,
    add_title,
    new_figure,
    whole_ticks,
    wrapped,
)
from headdiv.companion.report.scale import data_title, training_size
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NOT_JUDGED, NOT_YET, verdict
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import VALIDATION_LOSS, Panel
from headdiv.core.errors import NotStoredError

UNFILLED = (NOT_JUDGED, NOT_YET)
FAR = 4  # times the median row's range: a row with a scale of its own
WIDE, HIGH, LOW = 2.5, 1.5, 0.45  # inches: a measure; the row of absolute values; a row of differences


@figure_kind("curves")
def draw_curves(profile: str, figure: FigureEntry) -> Figure:
    """Training loss and the task's measures of the validation split, by epoch.

    The first row has the baseline's, means over seeds; every other row a variant's difference from the baseline of the
    same seed, or from the Transformer at the same level of a factor: the mean over seeds as an area, each seed as a
    thin line, and the last epoch's mean as a number. All differences of a measure have one scale, but those far beyond
    most. Without a baseline all rows have absolute values. A row's colour is the verdict of its simultaneous interval
    after the last epoch, once it may be judged. Where rules name the score that decides, it alone has colours, and its
    own difference is the number; there are no areas then, and the scale is that of the second half of the epochs. Runs
    that ended early are drawn as far as all of a row go.
    """
    groups = by_variant(profile, figure.experiment)
    labels, run = labels_of(figure.experiment, groups), next(iter(groups.values()))[0]
    panels, base = TASKS[run.kind].curves, groups.get(BASELINE, [])
    rows = {variant: runs for variant, runs in groups.items() if variant != BASELINE}
    heights = [HIGH] * bool(base) + [LOW if base else HIGH] * len(rows)
    drawn, axes = new_figure(WIDE * len(panels) + 1.6, sum(heights) + 0.9, len(heights), len(panels), sharex=True,
                             height_ratios=heights)  # fmt: skip
    apart, verdicts, task = False, [], task_shown(figure.experiment, groups)
    others, waiting = beside(task, groups), not_judged_yet(profile, figure.experiment, groups)
    design = design_of(task)
    plain = {*design.plain.values()} if design else set()
    compared = {one: other for one, other in others.items() if one not in plain and other in groups}
    model = judged_with(profile, figure.experiment)
    for column, panel in zip(axes.T, panels, strict=True):
        found = _judged(task, panel, model, compared) if base else {}
        margin = MARGINS[task.primary] if task.primary else None
        said = {one: NOT_YET if waiting else verdict(of, panel.higher, margin) for one, of in found.items()}
        verdicts += said.values()
        for ax, (variant, runs) in zip(column[bool(base) :], rows.items(), strict=True):
            if base:
                lines = _differences(panel, runs, groups.get(others[variant], []))
                _draw_differences(ax, panel, lines, said.get(variant), found.get(variant), bool(task.primary))
            else:
                _draw_absolute(ax, panel, runs)
        apart = _share_scale(column[bool(base) :]) or apart
        if base:
            _draw_absolute(column[0], panel, base)
        for ax in column[1:] if not base else ():
            ax.set_title("")
        for ax in column[:-1]:
            ax.tick_params(axis="x", length=0)
        column[-1].spines["bottom"].set_visible(True)
        column[-1].set_xlabel("epoch")
        whole_ticks(column[-1], 6)
    for ax, variant in zip(axes[:, 0], [BASELINE] * bool(base) + list(rows), strict=True):
        ax.set_ylabel(wrapped(labels[variant], 24), rotation=0, ha="right", va="center", fontsize=SMALL)
    every = [one for of in groups.values() for one in of]
    what = f"{data_title(run.data_name)}, {training_size(*every)}, {over_seeds(groups)}"
    by_rules = "colours, and numbers with ±: the lowest validation loss, which decides"
    judged = by_rules if task.primary else "judged after the last epoch"
    below = "below the baseline: difference from it"
    if design:
        same = design.factor.same
        below = f"methods: difference from the Transformer with the same {same}; its own: from the first row"
    key = (
        f"\n{below}" * bool(base and rows)
        + f"; {judged}" * bool(verdicts)
        + "; thick axis: its own scale" * apart
        + f"\n{waiting}" * bool(waiting)
    )
    if verdicts:
        areas = [
            Patch(color=look["color"], alpha=0.5, fill=one not in UNFILLED, label=one)
            for one, look in VERDICT_LOOKS.items()
            if one in verdicts
        ]
        add_handles(drawn, areas, 4, SMALL)
    add_title(drawn, f"{task.subject}: {what}{key}")
    return drawn


def _judged(task: PaperTask, panel: Panel, model: Groups, compared: Mapping[str, str]) -> dict[str, Difference]:
    """Each variant's difference to the one that it is compared with, which decides, in the measure of a panel.

    After the last epoch; or, where rules name the score that decides, of that alone, in the panel of its curve.
    """
    if not task.primary:
        scores = {variant: {run.seed: float(curve_of(panel, run)[-1]) for run in of} for variant, of in model.items()}
        compared = {variant: BASELINE for variant in model if variant != BASELINE} | compared
    elif (task.primary, panel.key) == (LOWEST_LOSS, VALIDATION_LOSS.key):
        scores = scores_of(model, LOWEST_LOSS)
    else:
        return {}
    found = comparison.differences(scores, list(compared.items()))
    return {one: found[one, other] for one, other in compared.items()}


def curve_of(panel: Panel, run: RunResult) -> np.ndarray:
    """What a panel shows of a run after each epoch, (epochs,); of perplexities their logarithms."""
    return np.array([getattr(point, panel.key) for point in run.curve])


def common_epochs(curves: Sequence[Sequence[float]]) -> np.ndarray:
    """Curves as rows, (runs, epochs), cut to the shortest: with ``train.patience`` runs end at different epochs."""
    shortest = min(map(len, curves))
    return np.array([curve[:shortest] for curve in curves])


def _draw_absolute(ax: Axes, panel: Panel, runs: list[RunResult]) -> None:
    """The mean over seeds, and the level of the simplest model."""
    values = common_epochs([curve_of(panel, run) for run in runs])
    mean = (np.exp(values) if panel.perplexity else values).mean(axis=0)
    ax.plot(np.arange(1, len(mean) + 1), mean, color=GREY, marker="o", ms=2.5, lw=1.2)
    if panel.unigram:
        level = runs[0].scores["unigram_nll"].value
        ax.axhline(np.exp(level) if panel.perplexity else level, color="0.6", lw=1, ls="--")
    unit = runs[0].scores["training_loss"].unit if panel.unit is None else panel.unit
    ax.set_title(f"{panel.label} ({unit})", fontsize=SMALL)
    ax.tick_params(labelsize=SMALL)
    if panel.perplexity:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        if high < 10 * low:  # round numbers of a linear axis, for powers of ten are too far apart
            ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            ax.yaxis.set_minor_locator(NullLocator())
        else:
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _differences(panel: Panel, runs: list[RunResult], base: list[RunResult]) -> np.ndarray:
    """Differences seed by seed, (seeds, epochs); of perplexities in percent."""
    of_seed = {run.seed: curve_of(panel, run) for run in base}
    pairs = [(curve_of(panel, run), of_seed[run.seed]) for run in runs if run.seed in of_seed]
    if not pairs:
        return np.empty((0, 0))
    differences = common_epochs([np.subtract(*common_epochs(pair)) for pair in pairs])  # (seeds, epochs)
    return 100 * np.expm1(differences) if panel.perplexity else differences


def _draw_differences(
    ax: Axes, panel: Panel, differences: np.ndarray, said: str | None, found: Difference | None, by_rules: bool
) -> None:
    """Differences, (seeds, epochs), and the mean over seeds.

    The area is filled where ``said`` is a verdict, and grey where it is None: nothing is decided by this measure. By
    rules there is no area, since no epoch's mean decides; the number is the difference that does, if ``found``.
    """
    ax.axhline(0, color="0.6", lw=0.8)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(labelsize=SMALL - 1)
    if not len(differences):
        ax.text(0.5, 0.5, "no seed in common", transform=ax.transAxes, ha="center", va="center", fontsize=SMALL)
        return
    epochs, mean = np.arange(1, differences.shape[1] + 1), differences.mean(axis=0)
    if len(differences) > 1:
        ax.plot(epochs, differences.T, color="0.45", lw=0.5)
    colour = VERDICT_LOOKS[said]["color"] if said else GREY
    if by_rules:
        late = [0.0, *differences[:, len(mean) // 2 :].flat]
        if max(late) > min(late):
            ax.set_ylim(min(late), max(late))
    elif said not in UNFILLED:
        ax.fill_between(epochs, 0, mean, color=colour, alpha=0.35, lw=0)
    ax.plot(epochs, mean, color=colour, lw=1.3, marker="o", ms=2)
    if by_rules and found and found.count:
        last = signed(found.mean, 3, found.half).replace(" ±", "\n±")
    else:
        digits = 1 if panel.perplexity or panel.higher else 2
        last = signed(round(mean[-1], digits), digits)
    ax.annotate(last + " %" * panel.perplexity, (1.02, 0.5), xycoords="axes fraction", va="center", fontsize=SMALL)


def _share_scale(axes: np.ndarray) -> bool:
    """These rows have the range of the widest; but one that is `FAR` times as wide as most has its own.

    In its range the others would be flat lines; its axis is thick. Returns whether there is such a row.
    """
    ends = np.array([ax.get_ylim() for ax in axes]).reshape(-1, 2)
    widths = np.ptp(ends, axis=1)
    far = widths > FAR * np.median(widths) if len(axes) else np.zeros(0, bool)
    for ax, own, alone in zip(axes, ends, far, strict=True):
        low, high = own if alone else (ends[~far, 0].min(), ends[~far, 1].max())
        linear = ax.get_yscale() == "linear"
        room = 0.1 * (high - low) if linear else 0.0  # a logarithmic axis has no room below 0
        ax.set_ylim(low - room, high + room)
        if linear:
            ax.yaxis.set_major_locator(MaxNLocator(2))
        if alone:
            ax.spines["left"].set_linewidth(2.5)
    return bool(far.any())


# ---- at several levels of a factor, where an epoch is not the same at all of them

START = 0.15  # of the updates of a level's longest run: what is before is not in the range of an axis


@figure_kind("level-curves")
def draw_level_curves(profile: str, figure: FigureEntry) -> Figure:
    """Training loss and the task's measures of the validation split, by updates: a column for each stored level.

    Thick: the mean over seeds, as far as all of them go; thin: a seed. A ring is the lowest validation loss of a seed.
    An axis has the range of its own values after the first of the updates (`START`), since levels are far apart.

    Raises:
        DataError: no stored results.
    """
    groups = chosen(profile, figure.experiment, figure.label)
    design = design_of(task_of(figure.experiment))
    models = {PLAIN: design.plain, **design.methods}
    stored = {name: {level: one for level, one in of.items() if one in groups} for name, of in models.items()}
    stored = {name: of for name, of in stored.items() if of}
    looks = looks_of(figure.experiment, groups)
    levels = [level for level in design.levels if any(level in of for of in stored.values())]
    colours = {name: looks[next(one for one in groups if one in of.values())]["color"] for name, of in stored.items()}
    every = [run for of in groups.values() for run in of]
    panels = TASKS[every[0].kind].curves
    drawn, axes = new_figure(8.4, 2.0 * len(panels) + 1.0, len(panels), len(levels), sharex="col")
    for column, level in zip(axes.T, levels, strict=True):
        found = {name: groups[of[level]] for name, of in stored.items() if level in of}
        for ax, panel in zip(column, panels, strict=True):
            for name, runs in found.items():
                _draw_runs(ax, panel, runs, colours[name])
            _keep_late(ax, panel.perplexity)
            ax.tick_params(labelsize=SMALL)
            add_grid(ax, "y")
        column[0].set_title(f"{design.factor.at(level)} of the {design.factor.same}", fontsize=SMALL)
        column[-1].set_xlabel("updates (thousand)", fontsize=SMALL)
        column[0].set_xlim(left=0)
    for ax, panel in zip(axes[:, 0], panels, strict=True):
        unit = every[0].scores["training_loss"].unit if panel.unit is None else panel.unit
        ax.set_ylabel(f"{panel.label}\n({unit})", fontsize=SMALL)
    ring = Line2D([], [], ls="", marker="o", mfc="white", mec="0.3", label="lowest validation loss of a seed")
    lines = [Line2D([], [], lw=1.6, label=name, color=colour) for name, colour in colours.items()]
    add_handles(drawn, [*lines, ring], 4, SMALL)
    what = f"{data_title(every[0].data_name)}, {training_size(*every)}, {over_seeds(groups)}"
    add_title(drawn, f"{task_shown(figure.experiment, groups).subject}: {what}")
    return drawn


def _draw_runs(ax: Axes, panel: Panel, runs: list[RunResult], colour: str) -> None:
    """The runs of one model at one level."""
    curves = [np.exp(one) if panel.perplexity else one for one in (curve_of(panel, run) for run in runs)]
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
    if logarithmic:
        ax.set_yscale("log")
    low, high = late.min(), late.max()
    room = 0.05 * (high - low)
    ax.set_ylim(low - room * (not logarithmic), high + room)


# ---- heads

BY_EPOCH = {name: MEASURES[name][0] for name in ("cka", "cosine", "effective_rank", "js", "entropy")} | {
    "column_cosine": "|cosine| of columns of w (DEACON)"
}
COLUMNS = 3  # of axes
LITTLE = 0.1  # a cosine that looks small


def _measured_by_epoch(runs: Runs, experiment: str) -> bool:
    return any(config.train.epoch_heads for config in runs.planned(experiment))


@figure_kind(
    "heads-by-epoch",
    caption=(
        "How alike the heads are after each epoch, on the validation split: means over the attention modules; thick "
        "lines are means over seeds, thin ones single seeds. Linear CKA and cosine compare the outputs of two heads, "
        "the Jensen–Shannon distance their attention; the effective rank is that of all heads' outputs side by side. "
        "For DEACON there is also the mean absolute cosine of two columns of w (Figure 6)."
    ),
    planned=_measured_by_epoch,
)
def draw_heads(profile: str, figure: FigureEntry) -> Figure:
    """Measures of the heads by epoch: thick lines are means over seeds, thin ones the seeds.

    Each is a mean over the attention modules that have it; what no run has is left out.

    Raises:
        NotStoredError: no stored results, or the heads were not measured after the epochs.
    """
    groups = by_variant(profile, figure.experiment)
    labels, run = labels_of(figure.experiment, groups), next(iter(groups.values()))[0]
    looks, values = looks_of(figure.experiment, groups), _heads_by_epoch(profile, groups)
    looks = {variant: look | {"marker": None} for variant, look in looks.items()}  # there are many epochs
    rows = -(-len(values) // COLUMNS)
    drawn, axes = new_figure(8.4, 2.2 * rows + 1.0, rows, COLUMNS, sharex=True)
    for ax, (name, of_variants) in zip(axes.flat, values.items(), strict=False):
        for variant, lines in of_variants.items():
            epochs = np.arange(1, lines.shape[1] + 1)
            if len(lines) > 1:
                ax.plot(epochs, lines.T, lw=0.4, alpha=0.6, **looks[variant])
            ax.plot(epochs, lines.mean(axis=0), lw=1.6, label=labels[variant], **looks[variant])
        low, high = ax.get_ylim()  # 0 is heads that have nothing in common; cosines are on both of its sides
        ax.set_ylim((min(low, -LITTLE), max(high, LITTLE)) if name == "cosine" else (0, high))
        ax.set_title(BY_EPOCH[name], fontsize=SMALL)
        ax.tick_params(labelsize=SMALL, labelbottom=True)
        ax.set_xlabel("epoch", fontsize=SMALL)
        whole_ticks(ax, 6)
        add_grid(ax, "y")
    for ax in axes.flat[len(values) :]:
        ax.set_axis_off()
    add_legend(drawn, [axes.flat[0]], columns=4, fontsize=SMALL)
    every = [one for of in groups.values() for one in of]
    what = f"{data_title(run.data_name)}, {training_size(*every)}, {over_seeds(groups)}"
    add_title(drawn, f"Heads by epoch, mean over attention modules: {what}")
    return drawn


def _heads_by_epoch(profile: str, groups: Groups) -> dict[str, dict[str, np.ndarray]]:
    """Each measure of each variant, (seeds, epochs), a mean over modules; without what no run, or no variant, has."""
    values: dict[str, dict[str, np.ndarray]] = {name: {} for name in BY_EPOCH}
    for variant, runs in groups.items():
        for run in runs:
            if any(point.heads is None for point in run.curve):
                raise NotStoredError(
                    f"{run.name}: its heads were not measured after the epochs; expected train.epoch_heads: true in "
                    f"profile {profile}"
                )
        for name, of_variants in values.items():
            lines = common_epochs([_by_epoch(run, name) for run in runs])
            if lines.size:
                of_variants[variant] = lines
    return {name: of_variants for name, of_variants in values.items() if of_variants}


def _by_epoch(run: RunResult, name: str) -> np.ndarray:
    """A measure after each epoch, its mean over the modules that have it: (epochs,), or (0,) where none has it."""
    found = [[module[name] for module in (point.heads or {}).values() if name in module] for point in run.curve]
    return np.array([np.mean(of_modules) for of_modules in found if of_modules])
