"""Learning curves of an experiment, one line a variant."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from headdiv.experiments.results import RunResult
from headdiv.report.groups import by_variant, labels_of, over_seeds
from headdiv.report.plotting import MARKERS
from headdiv.report.scale import training_size
from headdiv.tasks import TASKS
from headdiv.tasks.base import Panel


def draw_curves(profile: str, experiment: str) -> Figure:
    """Training loss and the task's measures of the validation split, by epoch; means over seeds.

    Raises:
        DataError: no stored results.
    """
    groups = by_variant(profile, experiment)
    labels = labels_of(experiment, groups)
    run = next(iter(groups.values()))[0]
    panels = TASKS[run.kind].curves
    figure = Figure(figsize=(3.5 * len(panels), 3.7), layout="constrained")
    axes = figure.subplots(1, len(panels))
    looks = zip(sns.color_palette("colorblind", len(groups)), cycle(MARKERS), strict=False)
    looks = dict(zip(groups, looks, strict=True))
    entries = {}  # of the legend
    for ax, panel in zip(axes, panels, strict=True):
        for variant, (colour, mark) in looks.items():
            epochs = [point.epoch for point in groups[variant][0].curve]
            means = _means(panel, groups[variant])
            ax.plot(epochs, means, color=colour, marker=mark, ms=3.5, lw=1.2, label=labels[variant])
        _finish(ax, panel, run)
        entries |= {handle.get_label(): handle for handle in ax.get_legend_handles_labels()[0]}
    figure.legend(handles=entries.values(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    over = over_seeds(groups)
    figure.suptitle(f"{experiment}: {run.data_name}, {training_size(run)}, {over}", fontsize=10)
    return figure


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
