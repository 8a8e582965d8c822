"""What the figures have in common: colours, sizes, axes, legends, colour bars and titles."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from headdiv.companion.analysis.statistics import Interval
from headdiv.companion.report.verdicts import AS_GOOD, BETTER, NOT_JUDGED, NOT_YET, UNDECIDED, WORSE

SMALL, MEDIUM, LARGE = 8, 9, 10  # points; MEDIUM is the style's
LETTERS = 13  # of a title, an inch
BLUE, ORANGE, GREEN = "#0173b2", "#de8f05", "#029e73"  # of seaborn's "colorblind"
GREY = "0.45"
VERDICT_LOOKS: dict[str, dict[str, Any]] = {  # hollow: no verdict
    BETTER: {"color": BLUE},
    WORSE: {"color": ORANGE},
    AS_GOOD: {"color": GREEN},
    UNDECIDED: {"color": GREY},
    NOT_JUDGED: {"color": GREY, "mfc": "white"},
    NOT_YET: {"color": GREY, "mfc": "white"},
}
DIFFERENCES = (-50, -20, -10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50)  # ticks of an axis around 0

STYLE = {  # of every figure, on paper and in files
    "svg.hashsalt": "headdiv",
    "svg.fonttype": "none",  # text stays text
    "font.size": MEDIUM,
    "axes.titlesize": MEDIUM,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """An empty figure and its axes.

    Args:
        width: in inches.
        height: in inches.
        rows: of axes.
        columns: of axes.
        options: of `Figure.subplots`.

    Returns:
        The figure, and an array of axes: (rows, columns).
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def add_title(figure: Figure, text: str) -> None:
    """The title above all axes, in as many lines as the figure's width needs; a number and its % stay together."""
    longest = int(LETTERS * figure.get_figwidth())
    lines = []
    for line in text.replace(" %", "\u00a0%").splitlines():
        count = max(1, -(-len(line) // longest))
        width = longest
        if count > 1:  # lines of about equal length: no last word alone
            width = min(longest, len(line) // count + 10)
        lines += textwrap.wrap(line, width, break_on_hyphens=False)
    figure.suptitle("\n".join(lines).replace("\u00a0", " "), fontsize=LARGE)


def add_handles(figure: Figure, handles: Sequence[Artist], columns: int, fontsize: float | None = None) -> None:
    """A legend of these entries below all axes."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=fontsize)


def add_colour_bar(figure: Figure, image: ScalarMappable, axes: np.ndarray, label: str, **options: Any) -> Colorbar:
    """A colour bar without a frame beside these axes, (rows, columns); ``options`` of `Figure.colorbar`."""
    bar = figure.colorbar(image, ax=axes, **{"shrink": 0.6 if len(axes) > 1 else 1.0, "pad": 0.01} | options)
    bar.set_label(label, fontsize=SMALL)
    bar.outline.set_visible(False)
    return bar


def add_grid(ax: Axes, axis: str = "both") -> None:
    """Light lines below the data."""
    ax.grid(axis=axis, color="0.92")
    ax.set_axisbelow(True)


def half_or_zero(interval: Interval) -> float:
    """Half an interval's width; 0 without one."""
    return 0.0 if math.isnan(interval.half) else interval.half


def add_interval(ax: Axes, y: float, interval: Interval, marker: str = "o", **look: Any) -> None:
    """A mean with its interval, if it has one, in a row of its own; ``look`` of `Axes.errorbar`."""
    ax.errorbar(
        interval.mean, y, xerr=half_or_zero(interval), fmt=marker, **{"ms": 4.5, "lw": 1.2, "capsize": 2} | look
    )


def verdict_handles(verdicts: Iterable[str], labels: Mapping[str, str] | None = None) -> list[Line2D]:
    """Legend entries of these verdicts, in the order of `VERDICTS`; ``labels``: what some are called."""
    shown = set(verdicts)
    names = {AS_GOOD: f"{AS_GOOD} (equivalence test, 5 %)", **(labels or {})}
    return [
        Line2D([], [], marker="o", ms=4.5, label=names.get(verdict, verdict), **look)
        for verdict, look in VERDICT_LOOKS.items()
        if verdict in shown
    ]


def verdict_areas(verdicts: Iterable[str]) -> list[Patch]:
    """Legend entries of areas in the verdicts' colours; those without a verdict are hollow."""
    shown = set(verdicts)
    return [
        Patch(color=look["color"], alpha=0.5, fill="mfc" not in look, label=verdict)
        for verdict, look in VERDICT_LOOKS.items()
        if verdict in shown
    ]


def spread_around_zero(ax: Axes, named: bool) -> None:
    """Make the y axis logarithmic beyond ±1, so that both small and large differences can be read.

    Its label says so, where it is ``named``.
    """
    ax.set_yscale("symlog", linthresh=1)
    ax.autoscale(axis="y")
    low, high = ax.get_ylim()
    ax.yaxis.set_ticks([tick for tick in DIFFERENCES if low <= tick <= high])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    if named:
        ax.set_ylabel(f"{ax.get_ylabel()}\n(logarithmic beyond ±1)")


def whole_ticks(ax: Axes, count: int) -> None:
    """Ticks at whole numbers only, about ``count`` of them; a single one where there is no other, as for one epoch."""
    ax.xaxis.set_major_locator(MaxNLocator(count, integer=True, min_n_ticks=1))


def number_layers(ax: Axes, layers: Sequence[int]) -> None:
    """The horizontal axis counts layers."""
    ax.set(xticks=layers, xlabel="layer", xlim=(layers[0] - 0.5, layers[-1] + 0.5))


def wrapped(label: str, width: int) -> str:
    """A label in lines of this many letters, none of which breaks at an equals sign."""
    return textwrap.fill(label.replace(" = ", "\u00a0=\u00a0"), width).replace("\u00a0", " ")


def name_rows(ax: Axes, labels: Iterable[str], top: float = -0.5, **options: Any) -> None:
    """One row for each label, the first at the top; ``options`` of `Axes.set`."""
    labels = list(labels)
    ax.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.5, top), **options)
    add_grid(ax, "x")


def side_by_side(count: int, width: float) -> np.ndarray:
    """Offsets of this many bars or points around a tick, ``width`` apart: (count,)."""
    return width * (np.arange(count) - (count - 1) / 2)
