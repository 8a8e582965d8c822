"""Learning curves of methods at several levels of a factor, where an epoch is not the same at all of them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.curves import common_epochs, curve_of
from headdiv.companion.report.factors import PLAIN, design_of_figure
from headdiv.companion.report.groups import chosen, over_seeds
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import SMALL, add_grid, add_handles, add_title, new_figure
from headdiv.companion.report.scale import data_title, training_size
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import VALIDATION_LOSS, Panel

START = 0.15  # of the updates of a level's longest run: what is before is not in the range of an axis


def draw_level_curves(profile: str, figure: FigureEntry) -> Figure:
    """Training loss and the task's measures of the validation split, by updates: a column for each stored level.

    Thick: the mean over seeds, as far as all of them go; thin: a seed. A ring is the lowest validation loss of a seed.
    An axis has the range of its own values after the first of the updates (`START`), since levels are far apart.

    Raises:
        DataError: no stored results, or the experiment's rows are no methods by level.
    """
    groups = chosen(profile, figure.experiment, figure.label)
    design = design_of_figure(figure)
    models = {PLAIN.removeprefix("the "): design.plain, **design.methods}
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
        column[0].set_title(f"{design.factor.tick(level)} of the {design.factor.same}", fontsize=SMALL)
        column[-1].set_xlabel("updates (thousand)", fontsize=SMALL)
        column[0].set_xlim(left=0)
    for ax, panel in zip(axes[:, 0], panels, strict=True):
        unit = every[0].scores["training_loss"].unit if panel.unit is None else panel.unit
        ax.set_ylabel(f"{panel.label}\n({unit})", fontsize=SMALL)
    ring = Line2D([], [], ls="", marker="o", mfc="white", mec="0.3", label="lowest validation loss of a seed")
    lines = [Line2D([], [], lw=1.6, label=name, color=colour) for name, colour in colours.items()]
    add_handles(drawn, [*lines, ring], 4, SMALL)
    what = f"{data_title(every[0].data_name)}, {training_size(*every)}, {over_seeds(groups)}"
    add_title(drawn, f"{task_of(figure.experiment).subject}: {what}")
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
