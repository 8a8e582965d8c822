"""Figures of the head-to-head: differences from the baseline beside costs, and what the methods did to the heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from headdiv.analysis.statistics import interval
from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.report import plotting
from headdiv.companion.report.contrasts import differences_of
from headdiv.companion.report.formats import as_printed, signed
from headdiv.companion.report.groups import Groups, chosen, labels_of, title
from headdiv.companion.report.headtohead import Comparison, all_quiet, table_of
from headdiv.companion.report.measures import MEASURES, SCORE, mean_measure, measures_by_module
from headdiv.core.errors import DataError

FAR = 10  # BLEU; where a difference is larger the axis is logarithmic beyond ±1


def draw_forest(profile: str, figure: FigureEntry) -> Figure:
    """BLEU of every method minus the baseline's of the same seed, sorted, with intervals over seeds; beside it costs.

    The time of training is shown where nothing else kept the machine busy while the runs were trained.

    Raises:
        DataError: no run of the baseline is stored.
    """
    groups = chosen(profile, figure.experiment, figure.label)
    if BASELINE not in groups:
        raise DataError(f"{figure.label} needs {BASELINE} among the stored runs of profile {profile}")
    table = table_of(figure.experiment, groups, Comparison(differences_of(groups, SCORE)))
    table.loc[table["variant"] == BASELINE, f"{SCORE}_difference"] = 0.0  # its place among the others
    table = table.sort_values(f"{SCORE}_difference", ascending=False, kind="stable")
    quiet = all_quiet(groups)
    widths = [3.2, 1.6, *([1.6] if quiet else [])]
    size = sum(widths) + 4.2, 0.27 * len(table) + 1.5
    drawn, (axes,) = plotting.new_figure(*size, 1, len(widths), sharey=True, width_ratios=widths)
    y = np.arange(len(table))
    plotting.name_rows(axes[0], table["label"])
    _draw_differences(axes[0], table, y)
    axes[1].plot(table["parameters_of_base"], y, "o", color=plotting.GREY, ms=4.5)
    axes[1].update_datalim([(99, 0), (101, 0)])  # of nearly equal sizes ticks would have five digits
    axes[1].autoscale_view()
    axes[1].set_xlabel("parameters (% of baseline)", fontsize=plotting.SMALL)
    if quiet:
        _draw_times(axes[2], groups, table, y)
    for ax in axes[1:]:
        ax.axvline(1 if ax is axes[-1] and quiet else 100, color="0.6", lw=0.8, zorder=0)
        ax.tick_params(axis="y", length=0)
        plotting.add_grid(ax, "x")
    undecided = "undecided: the interval contains 0"
    looks = {"better": plotting.BLUE, "worse": plotting.ORANGE, undecided: plotting.GREY}
    handles = [Line2D([], [], color=colour, marker="o", ms=4.5, label=what) for what, colour in looks.items()]
    plotting.add_handles(drawn, handles, 3, plotting.SMALL)
    judged = table[f"{SCORE}_difference_high"].notna().any()
    over = "±: simultaneous 95 % intervals (Dunnett)" if judged else "one seed: no intervals"
    plotting.add_title(drawn, f"{title('Head to head', groups)}; {over}")
    return drawn


def _draw_differences(ax: Axes, table: pd.DataFrame, y: np.ndarray) -> None:
    """A point and a bar for each method, coloured by whether its interval leaves out 0; the numbers at the right.

    One that has no seed in common with the baseline has neither.
    """
    ax.axvline(0, color="0.35", lw=1, ls="--", zorder=0)
    for line, (_, row) in zip(y, table.iterrows(), strict=True):
        mean, low, high = (row[f"{SCORE}_difference{end}"] for end in ("", "_low", "_high"))
        if row["variant"] == BASELINE:
            ax.plot(0, line, "D", color="black", mfc="white", ms=6)
            text = f"BLEU {as_printed(row[SCORE], 1, row[f'{SCORE}_high'] - row[SCORE])}"
        else:
            bar = None if pd.isna(high) else high - mean
            colour = plotting.judged(low, high)
            ax.errorbar(mean, line, xerr=bar, fmt="o", color=colour, ms=4.5, lw=1.4, capsize=2.5)
            text = "no seed in common" if pd.isna(mean) else signed(mean, 2, bar)
        ax.annotate(text, (1.03, line), xycoords=("axes fraction", "data"), va="center", fontsize=plotting.SMALL)
    ax.set_xlabel("BLEU minus the baseline's of the same seed, test set", fontsize=plotting.SMALL)
    if table[f"{SCORE}_difference"].abs().max() > FAR:
        plotting.spread_around_zero(ax, "x")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))


def _draw_times(ax: Axes, groups: Groups, table: pd.DataFrame, y: np.ndarray) -> None:
    """Time of training as a multiple of the baseline's of the same seed."""
    of_base = {run.seed: run.cost.training_seconds for run in groups[BASELINE]}
    for line, variant in zip(y, table["variant"], strict=True):
        times = [run.cost.training_seconds / of_base[run.seed] for run in groups[variant] if run.seed in of_base]
        plotting.add_interval(ax, line, interval(times), plotting.GREY, marker="o")
    ax.set_xlabel("training time (× baseline)", fontsize=plotting.SMALL)


def draw_measures(profile: str, figure: FigureEntry) -> Figure:
    """Every head measure by method: each module, and their mean with its interval over seeds."""
    groups = plotting.runs_of_figure(profile, figure, "measures")
    labels, y = labels_of(figure.experiment, groups), np.arange(len(groups))
    drawn, axes = plotting.new_figure(11.5, 2 * (0.24 * len(groups) + 0.9) + 0.3, 2, 3, sharey=True)
    for ax, (name, (label, _)) in zip(axes.flat, MEASURES.items(), strict=True):
        for line, runs in zip(y, groups.values(), strict=True):
            modules = np.array([measures_by_module(run, name) for run in runs])  # (seeds, modules)
            ax.plot(modules.mean(axis=0), np.full(modules.shape[1], line + 0.3), "o", color="0.75", ms=3, mew=0)
            plotting.add_interval(ax, line, interval(modules.mean(axis=1).tolist()), plotting.BLUE)
        if BASELINE in groups:
            at = np.mean([mean_measure(run, name) for run in groups[BASELINE]])
            ax.axvline(at, color="0.35", lw=1, ls="--", zorder=0)
        plotting.name_rows(ax, labels.values(), xlabel=label)
        ax.xaxis.set_major_locator(MaxNLocator(4))
    plotting.add_title(drawn, title("Heads, method by method", groups))
    return drawn
