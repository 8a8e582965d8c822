"""The gap to the baseline by epoch: the lowest validation loss up to each epoch, minus the baseline's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.differences import PANELS
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import plural, signed
from headdiv.companion.report.groups import Groups, title
from headdiv.companion.report.plotting import (
    SMALL,
    VERDICT_LOOKS,
    add_grid,
    add_handles,
    add_title,
    new_figure,
    verdict_areas,
    whole_ticks,
)
from headdiv.companion.report.result_tables import results_of
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NOT_YET, verdict
from headdiv.core.errors import NotStoredError

COLUMNS = 3  # panels side by side
PANEL = (2.6, 1.9)  # inches


def lowest_so_far(run: RunResult, epochs: int) -> np.ndarray:
    """The lowest validation loss up to each epoch, (epochs,); a training that has ended keeps its lowest one."""
    lowest = np.minimum.accumulate([point.validation_nll for point in run.curve])
    return np.pad(lowest, (0, epochs - len(lowest)), mode="edge")


def gaps(groups: Groups) -> dict[str, list[Difference]]:
    """By variant, after each epoch of the longest run: `lowest_so_far` minus the baseline's, a mean over seeds.

    Each epoch has an additive model of variant and seed of its own, and Dunnett's intervals, simultaneous over the
    variants but not over the epochs.
    """
    epochs = max(run.epochs for runs in groups.values() for run in runs)
    curves = {name: {run.seed: lowest_so_far(run, epochs) for run in runs} for name, runs in groups.items()}
    by_epoch = []
    for epoch in range(epochs):
        losses = {
            name: {seed: float(curve[epoch]) for seed, curve in by_seed.items()} for name, by_seed in curves.items()
        }
        by_epoch.append(comparison.against(losses, BASELINE))
    return {name: [differences[name] for differences in by_epoch] for name in groups if name != BASELINE}


@figure_kind(
    "gap",
    caption=(
        "How far is each method from the Transformer as training goes on? The lowest validation loss up to each epoch "
        "minus the Transformer's, mean over seeds; a training that has ended keeps its lowest loss. Bands: Dunnett's "
        "95 % intervals, simultaneous over the methods at each epoch; dashed: the margin of equivalence. The scale is "
        "that of the second half of the epochs, and colours are verdicts on the last one."
    ),
    against_baseline=True,
)
def draw_gap(profile: str, figure: FigureEntry) -> Figure:
    """A panel for each variant: its `gaps` as a line with a band, and how many of its trainings ended by patience.

    Raises:
        NotStoredError: no variant besides the baseline is stored.
    """
    results = results_of(profile, figure.experiment)
    groups, labels = results.groups, results.labels
    variants = [variant for variant in groups if variant != BASELINE]
    if not variants:
        raise NotStoredError(f"the gap by epoch needs another variant than {BASELINE} among profile {profile}'s runs")
    all_gaps, loss, margin = gaps(results.model), PANELS[LOWEST_LOSS], MARGINS[LOWEST_LOSS]
    shown = {variant: all_gaps[variant] for variant in variants}
    columns = min(COLUMNS, len(variants))
    rows = math.ceil(len(variants) / columns)
    fig, axes = new_figure(PANEL[0] * columns + 0.8, PANEL[1] * rows + 1.2, rows, columns, sharex=True, sharey=True)
    verdicts = []
    for ax, (variant, differences) in zip(axes.flat, shown.items(), strict=False):
        last = differences[-1]
        decision = NOT_YET if results.pending_note else verdict(last, higher=False, margin=margin)
        verdicts.append(decision)
        colour, epochs = VERDICT_LOOKS[decision]["color"], range(1, len(differences) + 1)
        low = [difference.low for difference in differences]
        high = [difference.high for difference in differences]
        ax.fill_between(epochs, low, high, color=colour, alpha=0.25, lw=0)
        ax.plot(epochs, [difference.mean for difference in differences], color=colour, lw=1.4)
        ax.axhline(0, color="0.35", lw=1)
        for bound in (-margin, margin):
            ax.axhline(bound, color="0.35", lw=0.8, ls="--")
        text = f"{labels[variant]}\n{signed(last.mean, loss.digits, last.half)}\n{_early_stops(groups[variant])}"
        ax.set_title(text, fontsize=SMALL)
        ax.tick_params(labelsize=SMALL)
        add_grid(ax, "y")
        whole_ticks(ax, 6)
    axes[0, 0].set_ylim(*_late_limits(list(shown.values()), margin))
    for ax in axes.flat[len(variants) :]:
        ax.set_visible(False)
    for ax in axes.flat[max(len(variants) - columns, 0) : len(variants)]:  # nothing is below these
        ax.tick_params(labelbottom=True)
        ax.set_xlabel("epoch", fontsize=SMALL)
    fig.supylabel(f"{loss.label} so far ({loss.unit})\nminus the {labels[BASELINE]}'s", fontsize=SMALL)
    equivalence = Line2D([], [], color="0.35", lw=0.8, ls="--", label=f"equivalence: within ±{margin} nats")
    add_handles(fig, [*verdict_areas(verdicts), equivalence], 4, SMALL)
    heading = f"{title('Gap by epoch', groups)}; simultaneous 95 % intervals at each epoch"
    add_title(fig, "\n".join([heading, *results.remarks()]))
    return fig


def _early_stops(runs: Sequence[RunResult]) -> str:
    """How many ended before their last epoch, since the validation loss no longer fell."""
    early = sum(run.epochs < run.config.train["epochs"] for run in runs)
    return f"{early} of {plural(len(runs), 'training')} ended by patience"


def _late_limits(curves: Sequence[Sequence[Difference]], margin: float) -> tuple[float, float]:
    """The ends of an axis with the margin, and with means and intervals of the second half of the epochs."""
    late = [difference for curve in curves for difference in curve[len(curve) // 2 :]]
    values = np.array([(difference.mean, difference.low, difference.high) for difference in late])
    low, high = np.nanmin([-margin, *values.flat]), np.nanmax([margin, *values.flat])
    return low - 0.05 * (high - low), high + 0.05 * (high - low)
