"""The explorer's four panels, each of one view or of two side by side."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.cluster import hierarchy

from headdiv.companion.report.explorer_view import MEASURES, View, clustered, components, masking, similarity
from headdiv.companion.report.formats import plural, shortened
from headdiv.companion.report.groups import KIND_LABELS
from headdiv.companion.report.plotting import BLUE, ORANGE, SMALL, STYLE, add_grid, whole_ticks
from headdiv.core.errors import DataError, HeaddivError
from headdiv.plots import DIVERGING, bare, write_numbers

WEIGHTS = "Blues"  # from white at 0
SIZE = (9.3, 5.6)  # inches of the four panels: beside the controls on a screen of 1,280 by 800
MOST_LABELS = 18  # of an axis of tokens
LONGEST_LABEL = 12  # characters
MOST_NUMBERS = 10  # rows of a matrix in which numbers can be read
MOST_TICKS = 16  # of a PCA layer's columns
MOST_MARKERS = 20  # on a line
LETTERS = 17  # of a line of output, an inch


def draw_views(views: Sequence[View], measure: str = "cosine") -> Figure:
    """Four panels: where the head looks, which heads are like it, what is lost without it, its module's PCA layer.

    Each has one or two views side by side; what has nothing to show says why. ``measure``: one of
    `headdiv.companion.report.explorer_view.MEASURES`.

    Raises:
        DataError: no such measure, or a text that the model cannot read.
    """
    for view in views:
        view.attention()  # refuses a text once, not panel by panel
        if measure not in MEASURES:
            similarity(view, measure)
    kinds = {
        "Where it looks": draw_attention,
        "Which heads say the same": functools.partial(draw_likeness, measure=measure),
        "What is lost without it": draw_masking,
        "PCA layer and principal components": draw_components,
    }
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, dpi=100, layout="constrained")
        for panel, (title, draw) in zip(figure.subfigures(2, 2).flat, kinds.items(), strict=True):
            panel.suptitle(title, fontsize=SMALL + 1, fontweight="bold")
            for part, view in zip(panel.subfigures(1, len(views), squeeze=False).flat, views, strict=True):
                if len(views) > 1:
                    part.suptitle(view.run.config.variant, fontsize=SMALL)
                try:
                    draw(part, view)
                except HeaddivError as error:
                    _write(part, str(error))
        names = " and ".join(dict.fromkeys(view.name for view in views))
        figure.suptitle(f"{names}: {_module(views[0])}, head {views[0].head}", fontsize=SMALL + 2)
    return figure


def _module(view: View) -> str:
    kind, layer = view.place.split()
    return f"{KIND_LABELS[kind]}, layer {layer}"


def _inches(part: SubFigure) -> float:
    return part.bbox.width / part.figure.dpi


def _is_narrow(part: SubFigure) -> bool:
    return _inches(part) < SIZE[0] / 3


def _write(part: SubFigure, text: str) -> None:
    ax = part.subplots()
    ax.set_axis_off()
    width = int(LETTERS * _inches(part))
    lines = "\n".join(textwrap.fill(line, width) for line in text.split("\n"))
    ax.text(0, 1, lines, va="top", fontsize=SMALL, transform=ax.transAxes, parse_math=False)


def draw_attention(part: SubFigure, view: View) -> None:
    """The head's attention map: a row for each token that looks, a column for each that is looked at.

    One scale from 0 to the largest weight of the module's heads, so that heads can be compared.
    """
    found = view.attention()
    ax = part.subplots()
    highest = float(found.weights.max())
    image = ax.imshow(
        found.weights[view.head - 1], cmap=WEIGHTS, vmin=0, vmax=highest, aspect="auto", interpolation="nearest"
    )  # (N, S)
    kind, sides = view.place.split()[0], view.run.task.sides
    queries, keys = sides[kind != "encoder"], sides[kind == "decoder"]
    for axis, tokens, name in (
        (ax.yaxis, found.queries, f"{queries}: token that looks"),
        (ax.xaxis, found.keys, f"{keys}: token that is looked at"),
    ):
        step = math.ceil(len(tokens) / MOST_LABELS)
        labels = [
            token if len(token) <= LONGEST_LABEL else f"{token[: LONGEST_LABEL - 1]}…" for token in tokens[::step]
        ]
        axis.set_ticks(range(0, len(tokens), step), labels, fontsize=SMALL - 1, parse_math=False)
        axis.set_label_text(name + (f" (one label for {step} tokens)" if step > 1 else ""), fontsize=SMALL - 1)
    ax.xaxis.set_tick_params(labelrotation=90)
    bare(ax)
    _add_bar(part, image, ax, "attention weight")


def _add_bar(part: SubFigure, image: AxesImage, ax: Axes, label: str) -> None:
    bar = part.colorbar(image, ax=ax)
    bar.set_label(label, fontsize=SMALL - 1)
    bar.ax.tick_params(labelsize=SMALL - 1)


def draw_likeness(part: SubFigure, view: View, measure: str = "cosine") -> None:
    """How alike the module's heads are on the text, in the order of their clustering, its tree beside them.

    The view's head stands out. Beside another run there is no room for tree and numbers.
    """
    alike, scale = similarity(view, measure), MEASURES[measure]
    H = len(alike)
    if H < 2:
        raise DataError(f"{_module(view)} has a single head; similarity is between two or more.")
    tree, narrow = hierarchy.dendrogram(clustered(alike), no_plot=True), _is_narrow(part)
    order = tree["leaves"]
    if narrow:
        ax = part.subplots()
    else:
        left, ax = part.subplots(1, 2, width_ratios=(1, 4), sharey=True)
        _draw_tree(left, tree)
    look = {"cmap": DIVERGING, "vmin": -1} if scale.low < 0 else {"cmap": WEIGHTS, "vmin": 0}
    image = ax.imshow(alike[np.ix_(order, order)], vmax=1, aspect="auto", interpolation="nearest", **look)
    if H <= MOST_NUMBERS and not narrow:
        write_numbers(ax, image)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(range(H), [head + 1 for head in order], fontsize=SMALL - 1)
    ax.tick_params(labelleft=True)
    bare(ax)
    at = order.index(view.head - 1)
    for label in (ax.get_xticklabels()[at], ax.get_yticklabels()[at]):
        label.set(color=ORANGE, fontweight="bold")
    ax.add_patch(Rectangle((-0.5, at - 0.5), H, 1, fill=False, ec=ORANGE, lw=1.5))
    ax.set(ylim=(H - 0.5, -0.5))
    ax.set_xlabel("head", fontsize=SMALL - 1)
    ax.set_ylabel("head", fontsize=SMALL - 1)
    _add_bar(part, image, ax, scale.label)


def _draw_tree(ax: Axes, tree: dict[str, Any]) -> None:
    # scipy's leaves lie at 5, 15, 25, …, a head each.
    links = [
        list(zip(depths, (np.array(heights) - 5) / 10, strict=True))
        for heights, depths in zip(tree["icoord"], tree["dcoord"], strict=True)
    ]
    ax.add_collection(LineCollection(links, colors="0.35", lw=1))
    deepest = max(max(depths) for depths in tree["dcoord"]) or 1.0
    ax.set(xlim=(1.05 * deepest, 0))
    ax.set_xlabel("1 − similarity", fontsize=SMALL - 1)
    ax.spines["left"].set_visible(False)
    ax.tick_params(labelleft=False, left=False, labelsize=SMALL - 1)
    ax.xaxis.set_major_locator(MaxNLocator(2))


def draw_masking(part: SubFigure, view: View) -> None:
    """The output with all heads and without this one, and how likely the first is to both (`masking`)."""
    table = masking(view)
    output, number = table.columns
    lines = [f"{name}:\n{shortened(row[output])}\n{number}: {row[number]:.3f}\n" for name, row in table.iterrows()]
    _write(part, "\n".join(lines))


def draw_components(part: SubFigure, view: View) -> None:
    """A PCA layer's weights against the principal components of its inputs over the validation split.

    Left the absolute cosines, right the share of variance that columns keep beside the most that is possible; beside
    another run the cosines alone.
    """
    found = components(view)
    if found is None:
        raise DataError(f"{view.name} has no PCA layer in {_module(view)}; only DEACON puts one into attention.")
    M, k = len(found.kept), len(found.best)
    narrow = _is_narrow(part)
    left, *right = np.atleast_1d(part.subplots(1, 1 if narrow else 2))
    image = left.imshow(found.cosines, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if M <= MOST_NUMBERS and not narrow:
        write_numbers(left, image)
    step = math.ceil(M / MOST_TICKS)
    for axis in (left.xaxis, left.yaxis):
        axis.set_ticks(range(0, M, step), range(1, M + 1, step), fontsize=SMALL - 1)
    bare(left)
    left.set_xlabel("principal component of the inputs", fontsize=SMALL - 1)
    left.set_ylabel("column of w", fontsize=SMALL - 1)
    _add_bar(part, image, left, "|cosine|")
    kept, best = (100 * values[M - 1] for values in (found.kept, found.best))
    of = f"{plural(M, 'column')} for {plural(k, 'input')}"
    left.set_title(f"{of} keep {kept:.1f} % of\nthe variance, {best:.1f} % is possible", fontsize=SMALL - 1)
    for ax in right:
        style = {"lw": 1.2, "ms": 4 if k <= MOST_MARKERS else 0}
        ax.plot(range(1, k + 1), found.best, color="0.45", marker="o", label="principal components", **style)
        ax.plot(range(1, M + 1), found.kept, color=BLUE, marker="s", label="columns of w", **style)
        ax.set(ylim=(0, 1.03), xlim=(0.5, k + 0.5))
        ax.set_xlabel("how many, from the first", fontsize=SMALL - 1)
        ax.set_ylabel("variance in their span", fontsize=SMALL - 1)
        ax.tick_params(labelsize=SMALL - 1)
        whole_ticks(ax, 8)
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        add_grid(ax)
        ax.legend(frameon=False, fontsize=SMALL - 1, loc="lower right")
