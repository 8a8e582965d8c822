"""How heads change while a model is trained: their measures after each epoch, and which were swapped when."""

from __future__ import annotations

import textwrap
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.experiments.run_result import Record, RunResult
from headdiv.companion.report.curves import common_epochs, runs_shown
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.groups import KIND_LABELS, Groups, by_variant, kinds_of, labels_of, runs_of_figure, title
from headdiv.companion.report.heads import measure_by_module
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.measures import MEASURES
from headdiv.companion.report.plotting import (
    BLUE,
    ORANGE,
    SMALL,
    add_grid,
    add_handles,
    add_title,
    new_figure,
    whole_ticks,
)
from headdiv.core.errors import NotStoredError

# ---- measures

BY_EPOCH = {name: MEASURES[name][0] for name in ("cka", "cosine", "effective_rank", "js", "entropy")} | {
    "column_cosine": "|cosine| of columns of w (DEACON)"
}
COLUMNS = 3  # of axes
LITTLE = 0.1  # a cosine that looks small


@figure_kind(
    "heads-by-epoch",
    caption=(
        "How alike the heads are after each epoch, on the validation split: means over the attention modules; thick "
        "lines are means over seeds, thin ones single seeds. Linear CKA and cosine compare the outputs of two heads, "
        "the Jensen–Shannon distance their attention; the effective rank is that of all heads' outputs side by side. "
        "For DEACON there is also the mean absolute cosine of two columns of w (Figure 6)."
    ),
    setting="epoch_heads",
)
def draw_heads(profile: str, figure: FigureEntry) -> Figure:
    """Measures of the heads by epoch: thick lines are means over seeds, thin ones the seeds.

    Each is a mean over the attention modules that have it; what no run has is left out.

    Raises:
        NotStoredError: no stored results, or the heads were not measured after the epochs.
    """
    groups = by_variant(profile, figure.experiment)
    for run in chain.from_iterable(groups.values()):
        if any(point.heads is None for point in run.curve):
            reason = "its heads were not measured after the epochs; expected train.epoch_heads: true"
            raise NotStoredError(f"{run.name}: {reason} in profile {profile}")
    labels, looks = labels_of(figure.experiment, groups), looks_of(figure.experiment, groups)
    panels = {name: _heads_by_epoch(groups, name) for name in BY_EPOCH}
    panels = {name: curves for name, curves in panels.items() if curves}
    rows = -(-len(panels) // COLUMNS)
    fig, axes = new_figure(8.4, 2.2 * rows + 1.0, rows, COLUMNS, sharex=True)
    for ax, (name, curves) in zip(axes.flat, panels.items(), strict=False):
        for variant, lines in curves.items():
            look = looks[variant] | {"marker": None}  # there are many epochs
            epochs = np.arange(1, lines.shape[1] + 1)
            if len(lines) > 1:
                ax.plot(epochs, lines.T, lw=0.4, alpha=0.6, **look)
            ax.plot(epochs, lines.mean(axis=0), lw=1.6, label=labels[variant], **look)
        low, high = ax.get_ylim()  # 0 is heads that have nothing in common; cosines are on both of its sides
        ax.set_ylim((min(low, -LITTLE), max(high, LITTLE)) if name == "cosine" else (0, high))
        ax.set_title(BY_EPOCH[name], fontsize=SMALL)
        ax.tick_params(labelsize=SMALL, labelbottom=True)
        ax.set_xlabel("epoch", fontsize=SMALL)
        whole_ticks(ax, 6)
        add_grid(ax, "y")
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    add_handles(fig, axes.flat[0].get_legend_handles_labels()[0], 4, SMALL)
    add_title(fig, f"Heads by epoch, mean over attention modules: {runs_shown(groups)}")
    return fig


def _heads_by_epoch(groups: Groups, name: str) -> dict[str, np.ndarray]:
    """A measure by variant, (seeds, epochs), its mean over the modules that have it; without variants that lack it."""
    curves = {}
    for variant, runs in groups.items():
        lines = []
        for run in runs:
            by_epoch = [[module[name] for module in point.heads.values() if name in module] for point in run.curve]
            lines.append([np.mean(values) for values in by_epoch if values])
        if min(map(len, lines)):
            curves[variant] = common_epochs(lines)
    return curves


# ---- swaps

STYLES: dict[bool, dict[str, Any]] = {  # by `SwapEvent.back`
    False: {"color": BLUE, "mfc": BLUE},
    True: {"color": ORANGE, "mfc": "white", "ls": ":"},
}


class SwapEvent(Record):
    """Two heads of one kind of attention that exchange their projections.

    Attributes:
        epoch: before which they are swapped, from 1.
        kind: of attention.
        one: layer and head, counted from 1.
        other: the same of the second head.
        back: whether they return to where they came from.
    """

    epoch: int
    kind: str
    one: tuple[int, int]
    other: tuple[int, int]
    back: bool


def swaps_of(run: RunResult) -> list[SwapEvent]:
    """Every swap of a run, in the order in which they were made."""
    records = ((point.epoch + 1, point.method or {}) for point in run.curve)
    if "methods" in run.config.method:  # of a combination each part has a record
        records = ((epoch, part) for epoch, parts in records for part in parts.values())
    return [
        SwapEvent(epoch=epoch, back=record.get("back"), **pair)
        for epoch, record in records
        for pair in record.get("swaps", [])
    ]


@figure_kind("swaps")
def draw_swaps(profile: str, figure: FigureEntry) -> Figure:
    """Which heads were swapped before which epoch: the first seed of every variant.

    A band for every layer of a variant, as high as it has heads; a line for every swap, those of an epoch side by side.
    """
    groups = runs_of_figure(profile, figure)
    labels = labels_of(figure.experiment, groups)
    swaps = {variant: swaps_of(runs[0]) for variant, runs in groups.items()}
    heads = {  # by variant and module; a variant may have sizes of its own
        variant: {module: len(values) for module, values in measure_by_module(runs[0], "confidence").items()}
        for variant, runs in groups.items()
    }
    modules = dict.fromkeys(chain.from_iterable(heads.values()))
    kinds, H = kinds_of(modules), max(count for counts in heads.values() for count in counts.values())
    last = max((swap.epoch for swap in chain.from_iterable(swaps.values())), default=2)

    def height(layer: int, head: int) -> int:
        """The height of a head: layers are stacked, and in each of them its heads."""
        return (layer - 1) * (H + 2) + head

    inches = max(1.05, 0.024 * height(max(layer for _, layer in modules), H))
    size = (max(2.4, 0.13 * last + 0.6) * len(kinds) + 0.8, (inches + 0.15) * len(groups) + 1.2)
    fig, axes = new_figure(*size, len(groups), len(kinds), sharex=True, sharey=True)
    for row, variant in zip(axes, groups, strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            for (module_kind, layer), count in heads[variant].items():
                if module_kind == kind:
                    ax.axhspan(height(layer, 1) - 0.8, height(layer, count) + 0.8, color="0.95", zorder=0)
            layers = [layer for module_kind, layer in modules if module_kind == kind]
            ax.set(yticks=[height(layer, 1) + (H - 1) / 2 for layer in layers], yticklabels=layers)
            ax.tick_params(axis="y", length=0)
            by_epoch: dict[int, list[SwapEvent]] = {}
            for swap in swaps[variant]:
                if swap.kind == kind:
                    by_epoch.setdefault(swap.epoch, []).append(swap)
            for epoch, epoch_swaps in by_epoch.items():
                for number, swap in enumerate(epoch_swaps):
                    x = epoch + 0.7 * ((number + 0.5) / len(epoch_swaps) - 0.5)
                    ends = [height(*swap.one), height(*swap.other)]
                    ax.plot([x, x], ends, marker="o", ms=2.6, mew=0.8, lw=0.8, **STYLES[swap.back])
        row[0].set_ylabel(f"{textwrap.fill(labels[variant], 16)}\nlayer", fontsize=SMALL)
    for ax, kind in zip(axes[0], kinds, strict=True):
        ax.set_title(KIND_LABELS[kind])
    for ax in axes[-1]:
        ax.set(xlabel="before epoch", xlim=(1.4, last + 0.6))
        whole_ticks(ax, 10)
    entries = ((False, "two heads are swapped"), (True, "and return"))
    add_handles(fig, [Line2D([], [], marker="o", ms=4, label=label, **STYLES[back]) for back, label in entries], 2)
    add_title(fig, title("Swaps of heads", groups, first=True))
    return fig
