"""The figure of which heads were swapped, and when."""

from __future__ import annotations

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.experiments.run_result import Record, RunResult
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.groups import KIND_LABELS, by_variant, chosen, kinds_of, labels_of, title
from headdiv.companion.report.heads import measure_by_module
from headdiv.companion.report.plotting import BLUE, ORANGE, SMALL, add_handles, add_title, new_figure, whole_ticks
from headdiv.core.errors import NotStoredError
from headdiv.methods.registry import METHODS, method_classes
from headdiv.methods.rotation import SwappingMethod

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
        records = ((epoch, part) for epoch, of_parts in records for part in of_parts.values())
    return [
        SwapEvent(epoch=epoch, back=record.get("back"), **pair)
        for epoch, record in records
        for pair in record.get("swaps", [])
    ]


def _swaps(run: RunResult) -> bool:
    return any(issubclass(cls, SwappingMethod) for cls in method_classes(run.config.method))


@figure_kind("swaps")
def draw_swaps(profile: str, figure: FigureEntry) -> Figure:
    """Which heads were swapped before which epoch: the first seed of every variant that moves heads."""
    experiment = figure.experiment
    variants = [variant for variant, runs in by_variant(profile, experiment).items() if _swaps(runs[0])]
    if not variants:
        methods = " or ".join(name for name, cls in METHODS.items() if issubclass(cls, SwappingMethod))
        raise NotStoredError(f"{figure.label} needs a run of {methods} among the stored runs of profile {profile}")
    groups = chosen(profile, experiment, figure.label, variants, "measures")
    labels = labels_of(experiment, groups)
    swaps = {variant: swaps_of(runs[0]) for variant, runs in groups.items()}
    modules = {variant: measure_by_module(runs[0], "confidence") for variant, runs in groups.items()}
    every = {at: heads for of in modules.values() for at, heads in of.items()}  # a variant may have sizes of its own
    kinds, H = kinds_of(every), max(len(heads) for of in modules.values() for heads in of.values())
    layers = max(layer for _, layer in every)
    last = max([swap.epoch for made in swaps.values() for swap in made], default=2)
    height = max(1.05, 0.024 * _height(layers, H, H))  # inches
    size = (max(2.4, 0.13 * last + 0.6) * len(kinds) + 0.8, (height + 0.15) * len(groups) + 1.2)
    drawn, axes = new_figure(*size, len(groups), len(kinds), sharex=True, sharey=True)
    for row, (variant, made) in zip(axes, swaps.items(), strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            own = {layer: len(heads) for (k, layer), heads in modules[variant].items() if k == kind}
            _draw_layers(ax, own, [layer for k, layer in every if k == kind], H)
            _draw_swaps(ax, [swap for swap in made if swap.kind == kind], H)
        row[0].set_ylabel(f"{textwrap.fill(labels[variant], 16)}\nlayer", fontsize=SMALL)
    for ax, kind in zip(axes[0], kinds, strict=True):
        ax.set_title(KIND_LABELS[kind])
    for ax in axes[-1]:
        ax.set(xlabel="before epoch", xlim=(1.4, last + 0.6))
        whole_ticks(ax, 10)
    entries = ((False, "two heads are swapped"), (True, "and return"))
    add_handles(drawn, [Line2D([], [], marker="o", ms=4, label=label, **STYLES[back]) for back, label in entries], 2)
    add_title(drawn, title("Swaps of heads", groups, first=True))
    return drawn


def _height(layer: int, head: int, H: int) -> int:
    """Vertical position of a head: layer over layer, the heads of each one over the other."""
    return (layer - 1) * (H + 2) + head


def _draw_layers(ax: Axes, own: dict[int, int], every: list[int], H: int) -> None:
    """A band for every layer of a variant, as high as it has heads; the axis is that of all variants' layers."""
    for layer, heads in own.items():
        ax.axhspan(_height(layer, 1, H) - 0.8, _height(layer, heads, H) + 0.8, color="0.95", zorder=0)
    ax.set(yticks=[_height(layer, 1, H) + (H - 1) / 2 for layer in every], yticklabels=every)
    ax.tick_params(axis="y", length=0)


def _draw_swaps(ax: Axes, swaps: list[SwapEvent], H: int) -> None:
    """A line for every swap; those of one epoch stand side by side."""
    by_epoch: dict[int, list[SwapEvent]] = {}
    for swap in swaps:
        by_epoch.setdefault(swap.epoch, []).append(swap)
    for epoch, together in by_epoch.items():
        for number, swap in enumerate(together):
            x = epoch + 0.7 * ((number + 0.5) / len(together) - 0.5)
            heights = [_height(*swap.one, H), _height(*swap.other, H)]
            ax.plot([x, x], heights, marker="o", ms=2.6, mew=0.8, lw=0.8, **STYLES[swap.back])
