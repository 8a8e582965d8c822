"""The explorer's four panels, each of one view or of two side by side."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from headdiv.companion.report.explorer_view import MEASURES, View, components, masking, similarity
from headdiv.companion.report.formats import plural, shortened
from headdiv.companion.report.groups import KIND_LABELS
from headdiv.companion.report.plotting import ORANGE, SMALL, STYLE
from headdiv.core.errors import DataError, HeaddivError
from headdiv.plots import DIVERGING, bare, write_numbers

WEIGHTS = "Blues"  # from white at 0
SIZE = (9.3, 5.6)  # inches of the four panels: beside the controls on a screen of 1,280 by 800
TINY = SMALL - 1  # points
MOST_LABELS = 18  # of an axis
LONGEST_LABEL = 12  # characters
CELL = 0.3  # inches of a matrix's cell in which a number can be read
LETTERS = 17  # of a line of output, an inch


def draw_views(views: Sequence[View], measure: str = "cosine") -> Figure:
    """Four panels: where the head looks, which heads are like it, what is lost without it, its module's PCA layer.

    Each has one or two views side by side; one with nothing to show says why. ``measure``: one of `MEASURES`.

    Raises:
        DataError: a text that the model cannot read.
    """
    for view in views:
        view.attention  # noqa: B018 (refuses a text once, not panel by panel)
    panels = {
        "Where it looks": draw_attention,
        "Which heads say the same": functools.partial(draw_likeness, measure=measure),
        "What is lost without it": draw_masking,
        "PCA layer and principal components": draw_components,
    }
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, dpi=100, layout="constrained")
        for panel, (title, draw) in zip(figure.subfigures(2, 2).flat, panels.items(), strict=True):
            panel.suptitle(title, fontsize=SMALL + 1, fontweight="bold")
            for part, view in zip(panel.subfigures(1, len(views), squeeze=False).flat, views, strict=True):
                if len(views) > 1:
                    part.suptitle(view.run.config.variant, fontsize=SMALL)
                try:
                    draw(part, view)
                except HeaddivError as error:
                    _write_text(part, str(error))
        names = " and ".join(view.name for view in views)
        figure.suptitle(f"{names}: {_module(views[0])}, head {views[0].head}", fontsize=SMALL + 2)
    return figure


def draw_attention(part: SubFigure, view: View) -> None:
    """The head's attention map: a row for each token that looks, a column for each that is looked at.

    One scale from 0 to the largest weight of the module's heads, so that heads can be compared.
    """
    heads, ax = view.attention, part.subplots()
    weights = heads.weights[view.head - 1]  # (N, S)
    _draw_matrix(part, ax, weights, "attention weight", float(heads.weights.max()))
    kind, sides = view.place.split()[0], view.run.task.sides
    _name_tokens(ax.yaxis, heads.queries, f"{sides[kind != 'encoder']}: token that looks")
    _name_tokens(ax.xaxis, heads.keys, f"{sides[kind == 'decoder']}: token that is looked at")
    ax.xaxis.set_tick_params(labelrotation=90)


def draw_likeness(part: SubFigure, view: View, measure: str = "cosine") -> None:
    """How alike the module's heads are on the text; the view's head stands out."""
    similarities, scale = similarity(view, measure), MEASURES[measure]
    H = len(similarities)
    if H < 2:
        raise DataError(f"{_module(view)} has a single head; similarity is between two or more.")
    row, ax = view.head - 1, part.subplots()
    _draw_matrix(part, ax, similarities, scale.label, low=scale.low, numbers=True)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(range(H), range(1, H + 1), fontsize=TINY)
        axis.set_label_text("head", fontsize=TINY)
    for label in (ax.get_xticklabels()[row], ax.get_yticklabels()[row]):
        label.set(color=ORANGE, fontweight="bold")
    ax.add_patch(Rectangle((-0.5, row - 0.5), H, 1, fill=False, ec=ORANGE, lw=1.5))


def draw_masking(part: SubFigure, view: View) -> None:
    """The output with all heads and without this one, and how likely the first is to both (`masking`)."""
    table = masking(view)
    output, number = table.columns
    lines = [f"{name}:\n{shortened(row[output])}\n{number}: {row[number]:.3f}\n" for name, row in table.iterrows()]
    _write_text(part, "\n".join(lines))


def draw_components(part: SubFigure, view: View) -> None:
    """Absolute cosines of a PCA layer's columns with the principal components of its inputs over the validation split.

    The title has the share of variance that the columns keep, and the most that is possible.
    """
    layer = components(view)
    if layer is None:
        raise DataError(f"{view.name} has no PCA layer in {_module(view)}; only DEACON puts one into attention.")
    M, ax = len(layer.cosines), part.subplots()
    _draw_matrix(part, ax, layer.cosines, "|cosine|", numbers=True)
    step = math.ceil(M / MOST_LABELS)
    for axis, name in ((ax.xaxis, "principal component of the inputs"), (ax.yaxis, "column of w")):
        axis.set_ticks(range(0, M, step), range(1, M + 1, step), fontsize=TINY)
        axis.set_label_text(name, fontsize=TINY)
    columns = f"{plural(M, 'column')} for {plural(layer.inputs, 'input')}"
    shares = f"keep {100 * layer.kept:.1f} % of\nthe variance, {100 * layer.best:.1f} % is possible"
    ax.set_title(f"{columns} {shares}", fontsize=TINY)


def _draw_matrix(
    part: SubFigure, ax: Axes, cells: np.ndarray, label: str, high: float = 1.0, low: float = 0.0, numbers: bool = False
) -> None:
    """Cells (rows, columns) with their colour bar; with ``numbers`` where these can be read."""
    colours = DIVERGING if low < 0 else WEIGHTS
    image = ax.imshow(cells, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    if numbers and part.bbox.width / part.figure.dpi / (cells.shape[1] + 4) > CELL:
        write_numbers(ax, image)
    bare(ax)
    bar = part.colorbar(image, ax=ax)
    bar.set_label(label, fontsize=TINY)
    bar.ax.tick_params(labelsize=TINY)


def _name_tokens(axis: Axis, tokens: Sequence[str], name: str) -> None:
    step = math.ceil(len(tokens) / MOST_LABELS)
    labels = [token if len(token) <= LONGEST_LABEL else f"{token[: LONGEST_LABEL - 1]}…" for token in tokens[::step]]
    axis.set_ticks(range(0, len(tokens), step), labels, fontsize=TINY, parse_math=False)
    if step > 1:
        name += f" (one label for {step} tokens)"
    axis.set_label_text(name, fontsize=TINY)


def _module(view: View) -> str:
    kind, layer = view.place.split()
    return f"{KIND_LABELS[kind]}, layer {layer}"


def _write_text(part: SubFigure, text: str) -> None:
    ax = part.subplots()
    ax.set_axis_off()
    width = int(LETTERS * part.bbox.width / part.figure.dpi)
    lines = "\n".join(textwrap.fill(line, width) for line in text.split("\n"))
    ax.text(0, 1, lines, va="top", fontsize=SMALL, transform=ax.transAxes, parse_math=False)
