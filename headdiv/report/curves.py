"""Learning curves of an experiment, one line a variant."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from headdiv.experiments.catalogue import FigureEntry
from headdiv.experiments.results import RunResult
from headdiv.report.groups import by_variant, labels_of, over_seeds
from headdiv.report.plotting import MARKERS, SMALL, add_legend, add_title, new_figure
from headdiv.report.scale import training_size
from headdiv.tasks import TASKS
from headdiv.tasks.base import Panel


def draw_curves(profile: str, figure: FigureEntry) -> Figure:
    """Training loss and the task's measures of the validation split, by epoch; means over seeds."""
    experiment = figure.experiment
    groups = by_variant(profile, experiment)
    labels = labels_of(experiment, groups)
    run = next(iter(groups.values()))[0]
    panels = TASKS[run.kind].curves
    drawn, (axes,) = new_figure(3.5 * len(panels), 3.7, 1, len(panels))
    for ax, panel in zip(axes, panels, strict=True):
        looks = zip(groups.items(), sns.color_palette("colorblind", len(groups)), cycle(MARKERS), strict=False)
        for (variant, runs), colour, mark in looks:
            epochs = [point.epoch for point in runs[0].curve]
            ax.plot(epochs, _means(panel, runs), color=colour, marker=mark, ms=3.5, lw=1.2, label=labels[variant])
        _finish(ax, panel, run)
    add_legend(drawn, axes, fontsize=SMALL)
    add_title(drawn, f"{experiment}: {run.data_name}, {training_size(run)}, {over_seeds(groups)}")
    return drawn


def _means(panel: Panel, runs: list[RunResult]) -> np.ndarray:
    values = np.array([[getattr(point, panel.key) for point in run.curve] for run in runs])
    return (np.exp(values) if panel.perplexity else values).mean(axis=0)


def _finish(ax: Axes, panel: Panel, run: RunResult) -> None:
    """The line of the simplest model, the axes' names and ticks."""
    if panel.unigram:
        level = run.scores["unigram_nll"].value
        ax.axhline(np.exp(level) if panel.perplexity else level, color="0.35", lw=1, ls="--", label="frequencies alone")
    unit = run.scores["training_loss"].unit if panel.unit is None else panel.unit
    ax.set(xlabel="epoch", ylabel=f"{panel.label} ({unit})")
    ax.xaxis.get_major_locator().set_params(integer=True)
    if panel.perplexity:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        if high < 10 * low:  # round numbers of a linear axis, for powers of ten are too far apart
            ax.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
            ax.yaxis.set_minor_locator(NullLocator())
        else:
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
