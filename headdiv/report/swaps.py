"""A drawing of which heads changed places, and when."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from headdiv.core.errors import DataError
from headdiv.experiments.papers import task_of
from headdiv.experiments.results import Metrics, stored
from headdiv.report.groups import KINDS, by_place, chosen, kinds_of, labels_of, title
from headdiv.report.heads import BLUE, ORANGE, SMALL

METHODS = ("rotation", "dynamic-rotation")  # those that move heads
LOOKS = {False: {"color": BLUE, "mfc": BLUE}, True: {"color": ORANGE, "mfc": "white", "ls": ":"}}  # by "back"


class SwapEvent(NamedTuple):
    """Two heads of one kind of attention that change places; layers and heads are counted from 1."""

    epoch: int  # before which they do, from 1
    kind: str
    one: tuple[int, int]  # layer, head
    other: tuple[int, int]
    back: bool  # to where they came from


def swaps_of(run: Metrics) -> list[SwapEvent]:
    """Every swap of a run, in the order in which they were made."""
    found = []
    for point in run["curve"]:
        told = point.get("method", {})
        for pair in told.get("swaps", []):
            one, other = tuple(pair["one"]), tuple(pair["other"])
            found.append(SwapEvent(point["epoch"] + 1, pair["kind"], one, other, told["back"]))
    return found


def draw_swaps(profile: str, experiment: str, figure: str) -> Figure:
    """Which heads changed places before which epoch: the first seed of every variant that moves heads.

    Raises:
        DataError: no such run is stored, or one of results without measures of the heads, which tell their number.
    """
    movers = {run["variant"] for run in stored(profile, experiment) if run["config"]["method"]["name"] in METHODS}
    if not movers:
        methods = " or ".join(METHODS)
        raise DataError(f"{figure} needs a run of {methods} among the stored runs of profile {profile}")
    order = [*task_of(experiment).variants, *sorted(movers)]
    groups = chosen(profile, experiment, figure, [variant for variant in order if variant in movers], "measures")
    runs = {variant: group[0] for variant, group in groups.items()}
    swaps = {variant: swaps_of(run) for variant, run in runs.items()}
    modules = by_place(next(iter(runs.values()))["heads"]["measures"])
    kinds, labels = kinds_of(modules), labels_of(experiment, runs)
    H = max(len(told["confidence"]) for told in modules.values())
    layers = max(layer for _, layer in modules)
    last = max([swap.epoch for made in swaps.values() for swap in made], default=2)
    height = max(1.05, 0.024 * _height(layers, H, H))  # inches
    size = (max(2.4, 0.13 * last + 0.6) * len(kinds) + 0.8, (height + 0.15) * len(runs) + 1.2)
    drawn = Figure(figsize=size, layout="constrained")
    axes = drawn.subplots(len(runs), len(kinds), sharex=True, sharey=True, squeeze=False)
    for row, (variant, made) in zip(axes, swaps.items(), strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            _lanes(ax, [layer for k, layer in modules if k == kind], H)
            _draw([swap for swap in made if swap.kind == kind], ax, H)
        row[0].set_ylabel(f"{textwrap.fill(labels[variant], 16)}\nlayer", fontsize=SMALL)
    for ax, kind in zip(axes[0], kinds, strict=True):
        ax.set_title(KINDS[kind])
    for ax in axes[-1]:
        ax.set(xlabel="before epoch", xlim=(1.4, last + 0.6))
        ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    handles = [
        Line2D([], [], marker="o", ms=4, label=label, **LOOKS[back])
        for back, label in ((False, "two heads change places"), (True, "and return"))
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    drawn.suptitle(title("Heads that change places", groups, first=True), fontsize=10)
    return drawn


def _height(layer: int, head: int, H: int) -> int:
    """Where a head is drawn: layer over layer, the heads of each one over the other."""
    return (layer - 1) * (H + 2) + head


def _lanes(ax: Axes, layers: list[int], H: int) -> None:
    """A band for every layer."""
    for layer in layers:
        ax.axhspan(_height(layer, 1, H) - 0.8, _height(layer, H, H) + 0.8, color="0.95", zorder=0)
    ax.set(yticks=[_height(layer, 1, H) + (H - 1) / 2 for layer in layers], yticklabels=layers)
    ax.tick_params(axis="y", length=0)


def _draw(swaps: list[SwapEvent], ax: Axes, H: int) -> None:
    """The pairs of an epoch stand side by side."""
    pairs: dict[int, list[SwapEvent]] = {}
    for swap in swaps:
        pairs.setdefault(swap.epoch, []).append(swap)
    for epoch, together in pairs.items():
        for number, swap in enumerate(together):
            x = epoch + 0.7 * ((number + 0.5) / len(together) - 0.5)
            look: dict[str, Any] = LOOKS[swap.back]
            ax.plot(
                [x, x], [_height(*swap.one, H), _height(*swap.other, H)], marker="o", ms=2.6, mew=0.8, lw=0.8, **look
            )
