"""Pictures of heads: each takes records or a table, draws into ``ax`` or a new figure, and returns the Axes.

headdiv.plots.head_map(heads.to_frame(batches), "entropy")
headdiv.plots.similarity_map(records, "encoder 2")
headdiv.plots.attention_map(records[0], head=3, tokens=words)

Needs the extra `plots`: matplotlib, which is imported with the first picture, and pandas for tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headdiv.analysis.similarity import BY_PAIR, Observed, compare_heads
from headdiv.core.errors import ConfigError, DataError
from headdiv.nn.records import HeadRecord

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.image import AxesImage

DIVERGING, SEQUENTIAL = "RdBu_r", "Blues"  # colours of what has a middle, which is white, and of what starts at white
SIGNED = ("cosine", "correlation", "importance")  # measures with a middle at 0
NUMBERED = 16  # heads up to which the cells of a map have their numbers in them
SMALL = 7  # points, of a number in a cell

__all__ = [
    "attention_map",
    "draw_map",
    "draw_maps",
    "draw_pairs",
    "head_map",
    "similarity_map",
    "write_numbers",
]


def head_map(frame: pd.DataFrame | pd.Series, measure: str | None = None, ax: Axes | None = None) -> Axes:
    """A measure of every head: a row for each attention module, a column for each head.

    Of a measure with negative values, white is 0; of any other, the colours go from its lowest value to its highest.

    Args:
        frame: of `ModelHeads.to_frame`, or another with module and head as its index; or one column of it.
        measure: which column; not needed where there is one.
        ax: to draw into.

    Raises:
        DataError: there is no such column, or several and no ``measure``.
    """
    if frame.ndim > 1:
        if measure is None and len(frame.columns) == 1:
            measure = frame.columns[0]
        if measure not in frame.columns:
            raise DataError(f"measure: found {measure!r}, expected one of {', '.join(map(str, frame.columns))}")
    column = frame if frame.ndim == 1 else frame[measure]
    rows = column.unstack().reindex(column.index.get_level_values(0).unique())
    modules, heads = rows.shape
    low, high = (0.0, 1.0) if column.isna().all() else (float(column.min()), float(column.max()))
    largest = max(abs(low), abs(high)) or 1.0
    signed = low < 0 or column.name in SIGNED
    ax = _axes(ax, 0.42 * heads + 2, 0.34 * modules + 1)
    limits = (-largest, largest) if signed else (low, high)
    image = draw_map(ax, rows.to_numpy(float), limits, DIVERGING if signed else "viridis")
    if heads <= NUMBERED:
        unit = 1.0 if largest >= 0.1 else 10.0 ** math.floor(math.log10(largest))
        write_numbers(ax, image, unit, 2 if unit == 1 else 1)
        if unit != 1:
            ax.set_title(f"numbers in units of {unit:g}", fontsize=SMALL + 1)
    ax.set(xticks=range(1, heads + 1), yticks=range(1, modules + 1), yticklabels=rows.index, xlabel="head")
    ax.figure.colorbar(image, ax=ax, label=column.name)
    return ax


def similarity_map(
    records: Iterable[HeadRecord], name: str | None = None, measure: str = "cka", ax: Axes | None = None
) -> Axes:
    """How alike every two heads of an attention module are.

    Args:
        records: of forward passes, with weights.
        name: the module ("encoder 1"); not needed where there is one.
        measure: cosine, l2, correlation or cka of two heads' outputs, or js of their weights: see `HeadComparison`.
        ax: to draw into.

    Raises:
        DataError: there is no such module or measure, or records have no weights.
    """
    if measure not in BY_PAIR:
        raise DataError(f"measure: found {measure!r}, expected one of {', '.join(BY_PAIR)}")
    records = list(records)
    chosen = [record for record in records if name in (None, record.spec.name)]
    if len({record.spec.name for record in chosen}) != 1:
        names = ", ".join(dict.fromkeys(record.spec.name for record in records)) or "none"
        raise DataError(f"name: found {name!r}, expected one of the modules with records: {names}")
    for record in chosen:
        _must_have_weights(record)
    ((_, comparison),) = compare_heads((Observed([record], {}) for record in chosen), enough=math.inf)
    cells = getattr(comparison, measure).numpy()  # (H, H)
    ax = _axes(ax, 0.42 * len(cells) + 2, 0.42 * len(cells) + 1)
    low, high = (-1 if measure in SIGNED else 0), (float(cells.max()) if measure == "l2" else 1)
    ax.figure.colorbar(draw_pairs(ax, cells, low, high), ax=ax, label=measure)
    return ax


def attention_map(
    record: HeadRecord,
    head: int = 1,
    sentence: int = 0,
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The weights that a head gives to keys (columns), for every query (rows), of one sentence.

    Args:
        record: with weights.
        head: from 1.
        sentence: of the batch, from 0.
        tokens: of the sentence, as text, without padding; a tuple of two where queries and keys are of two sentences.
        ax: to draw into.

    Raises:
        DataError: there are no weights, no such head or sentence, or another number of tokens.
    """
    weights = _weights(record, head, sentence)
    if tokens is None:
        queries, keys = (range(1, length + 1) for length in weights.shape)
    else:
        queries, keys = tokens if isinstance(tokens, tuple) else (tokens, tokens)
    if (len(queries), len(keys)) != weights.shape:
        N, S = weights.shape
        raise DataError(f"tokens: found {len(queries)} and {len(keys)}, expected {N} queries and {S} keys")
    ax = _axes(ax, 0.3 * weights.shape[1] + 2, 0.3 * weights.shape[0] + 1)
    image = draw_map(ax, weights, (0, 1), SEQUENTIAL)
    for axis, names in ((ax.yaxis, queries), (ax.xaxis, keys)):
        axis.set_ticks(range(1, len(names) + 1), labels=list(map(str, names)))
    ax.tick_params(axis="x", rotation=90)
    ax.set(xlabel="key", ylabel="query", aspect="equal")
    ax.figure.colorbar(image, ax=ax, label="attention weight")
    return ax


# ---- matrices into given axes, for all maps of this module and of the companion


def draw_map(
    ax: Axes, cells: np.ndarray, limits: tuple[float, float] | Normalize, colours: str = DIVERGING
) -> AxesImage:
    """(rows, columns) numbers as colours, the first row at the top, both counted from 1; NaN and masked have none.

    ``limits``: of the colours; with `DIVERGING` their middle is white.
    """
    rows, columns = cells.shape
    scale = {"vmin": limits[0], "vmax": limits[1]} if isinstance(limits, tuple) else {"norm": limits}
    image = ax.imshow(cells, cmap=colours, aspect="auto", extent=(0.5, columns + 0.5, rows + 0.5, 0.5), **scale)
    bare(ax)
    return image


def draw_pairs(ax: Axes, cells: np.ndarray, low: float = 0, high: float = 1) -> AxesImage:
    """(H, H) similarities of heads."""
    image = draw_map(ax, cells, (low, high), DIVERGING if low < 0 else SEQUENTIAL)
    numbers = range(1, len(cells) + 1)
    ax.set(xticks=numbers, yticks=numbers, xlabel="head", ylabel="head", aspect="equal")
    return image


def draw_maps(
    axes: np.ndarray, rows: Sequence[Mapping[str, np.ndarray | None]], limit: float, x: str, y: Sequence[str]
) -> AxesImage:
    """A grid of maps that share their colours, from -limit to limit: a row of panels by title; None is a gap.

    Args:
        axes: (rows, columns); those beyond a row's panels stay empty.
        rows: panels by their titles.
        limit: of the colours.
        x: label of every panel's horizontal axis.
        y: label of each row.

    Returns:
        One of the images, for a colour bar.
    """
    for row_axes, panels, label in zip(axes, rows, y, strict=True):
        for ax in row_axes[len(panels) :]:
            ax.set_axis_off()
        for ax, (title, cells) in zip(row_axes, panels.items(), strict=False):
            if cells is None:
                ax.set_axis_off()
                continue
            image = draw_map(ax, cells, (-limit, limit))
            ax.set_title(title, fontsize=SMALL + 1)
            ax.set_xlabel(x, fontsize=SMALL + 1)
            ax.tick_params(labelsize=SMALL)
        row_axes[0].set_ylabel(label, fontsize=SMALL + 1)
    return image


def write_numbers(ax: Axes, image: AxesImage, unit: float = 1.0, digits: int = 2) -> None:
    """Every number of an image in its cell, divided by ``unit``, in black or white, whichever can be read there."""
    values = image.get_array()
    left, _, _, top = image.get_extent()
    red, green, blue, _ = np.moveaxis(image.cmap(image.norm(values)), -1, 0)
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
    for (row, column), value in np.ma.ndenumerate(values):  # all but NaN
        style = {"fontsize": SMALL, "color": "white" if dark[row, column] else "0.15"}
        text = f"{value / unit:.{digits}f}".replace("-", "−")
        ax.text(left + 0.5 + column, top + 0.5 + row, text, ha="center", va="center", **style)


def bare(ax: Axes) -> None:
    """Remove the ticks' lines and the frame."""
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ConfigError("matplotlib is not installed, which pictures need: pip install 'headdiv[plots]'") from None
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def _weights(record: HeadRecord, head: int, sentence: int) -> np.ndarray:
    """Of one head and sentence: (N, S)."""
    _must_have_weights(record)
    padded = record.padded()
    B, H = padded.weights.shape[:2]
    if not (1 <= head <= H and 0 <= sentence < B):
        raise DataError(
            f"{record.spec.name}: found head {head} of sentence {sentence}, expected 1 to {H} of 0 to {B - 1}"
        )
    N, S = int(padded.queries[sentence].sum()), int(padded.keys[sentence].sum())
    return padded.weights[sentence, head - 1, :N, :S].detach().float().cpu().numpy()


def _must_have_weights(record: HeadRecord) -> None:
    if record.weights is None:
        raise DataError(f"{record.spec.name}: recorded without attention weights; expected weights=True")
