"""Pictures of heads: each takes records or a table, draws into ``ax`` or a new figure, and returns the Axes.

headdiv.plots.head_map(heads.table(batches), "entropy")
headdiv.plots.similarity_map(records, "encoder 2")
headdiv.plots.attention_map(records[0], head=3, tokens=words)
headdiv.plots.head_bars(heads.leave_one_out(metric))
headdiv.plots.pruning_curve(heads.pruning_curve(metric, order))

Needs the extra `plots`: matplotlib, which is imported with the first picture, and pandas for tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from headdiv.analysis.heads import Pruned
from headdiv.analysis.masking import HeadChange
from headdiv.analysis.similarity import BY_PAIR, Observed, compare_heads
from headdiv.core.errors import ConfigError, DataError
from headdiv.nn.records import HeadRecord

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

DIVERGING = "RdBu_r"  # colours of what has a middle
SIGNED = ("cosine", "correlation")  # measures from −1 to 1
MOST = 16  # heads up to which the cells of a map have their numbers in them
SMALL = 7  # points, of a number in a cell
RANGES = {"confidence": (0, 1), "cosine": (-1, 1), "correlation": (-1, 1), "cka": (0, 1), "js": (0, 1)}

__all__ = [
    "attention_map",
    "draw_cells",
    "draw_pairs",
    "head_bars",
    "head_map",
    "number_unit",
    "pruning_curve",
    "similarity_map",
    "write_numbers",
]


def head_map(frame: pd.DataFrame | pd.Series, measure: str | None = None, ax: Axes | None = None) -> Axes:
    """A measure of every head: a row for each attention module, a column for each head.

    Args:
        frame: of `ModelHeads.table`, or another with module and head as its index; or one column of it.
        measure: which column; not needed where there is one.
        ax: to draw into.

    Raises:
        DataError: there is no such column.
    """
    if measure is None and frame.ndim > 1 and len(frame.columns) == 1:
        measure = frame.columns[0]
    if frame.ndim > 1 and measure not in frame:
        raise DataError(f"measure: found {measure!r}, expected one of {', '.join(frame.columns)}")
    column = frame if frame.ndim == 1 else frame[measure]
    rows = column.unstack().reindex(column.index.get_level_values(0).unique())
    measure = str(column.name)
    ax = _axes(ax, 0.42 * rows.shape[1] + 2, 0.34 * len(rows) + 1)
    image = draw_cells(ax, rows.to_numpy(float), signed=measure in SIGNED)
    ax.set(yticks=range(len(rows)), yticklabels=rows.index)
    ax.figure.colorbar(image, ax=ax, label=measure)
    return ax


def similarity_map(
    found: Iterable[HeadRecord] | Tensor, place: str | None = None, measure: str = "cka", ax: Axes | None = None
) -> Axes:
    """How alike every two heads of an attention module are.

    Args:
        found: records of forward passes, with weights; or the measure itself, (H, H).
        place: the module ("encoder 1"); not needed where there is one.
        measure: cosine, l2, correlation or cka of two heads' outputs, or js of their weights: see `HeadComparison`.
        ax: to draw into.

    Raises:
        DataError: there is no such module or measure, or records have no weights.
    """
    if measure not in BY_PAIR:
        raise DataError(f"measure: found {measure!r}, expected one of {', '.join(BY_PAIR)}")
    if not isinstance(found, Tensor | np.ndarray):
        records = [record for record in found if place in (None, record.spec.name)]
        if len(there := {record.spec.name for record in records}) != 1:
            raise DataError(f"place: found {place!r}, which is not one module ({', '.join(sorted(there)) or 'none'})")
        for record in records:
            _must_have_weights(record)
        ((_, measured),) = compare_heads(Observed([record], {}) for record in records)
        found = getattr(measured, measure)
    cells = np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, dtype=float)
    H = len(cells)
    ax = _axes(ax, 0.42 * H + 2, 0.42 * H + 1)
    image = draw_pairs(ax, cells, *RANGES.get(measure, (0, float(cells.max()))))
    ax.figure.colorbar(image, ax=ax, label=measure)
    return ax


def attention_map(
    record: HeadRecord | pd.DataFrame,
    head: int = 1,
    sentence: int = 0,
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The weights that a head gives to keys (columns), for every query (rows), of one sentence.

    Args:
        record: with weights; or the weights as a table, rows and columns named by the tokens.
        head: from 1.
        sentence: of the batch, from 0.
        tokens: of the sentence, as text, without padding; two lists where queries and keys are of two sentences.
        ax: to draw into.

    Raises:
        DataError: there are no weights, no such head or sentence, another number of tokens, or no text.
    """
    if isinstance(record, HeadRecord):
        weights, queries, keys = _weights(record, head, sentence)
        names = (range(1, queries + 1), range(1, keys + 1)) if tokens is None else _two_lists(tokens)
        if (found := tuple(map(len, names))) != (queries, keys):
            raise DataError(f"tokens: found {found[0]} and {found[1]}, expected {queries} queries and {keys} keys")
    else:
        weights, names = record.to_numpy(float), (record.index, record.columns)
    ax = _axes(ax, 0.3 * weights.shape[1] + 2, 0.3 * weights.shape[0] + 1)
    image = ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    for axis, each in ((ax.yaxis, names[0]), (ax.xaxis, names[1])):
        axis.set_ticks(range(len(each)), labels=[str(one) for one in each])
    ax.tick_params(axis="x", rotation=90)
    bare(ax)
    ax.set(xlabel="key", ylabel="query")
    ax.figure.colorbar(image, ax=ax, label="attention weight")
    return ax


def head_bars(changes: Iterable[HeadChange], most: int = 20, label: str | None = None, ax: Axes | None = None) -> Axes:
    """What heads matter: a bar for each, the longest at the top; NaN comes last.

    Args:
        changes: of `ModelHeads.importance` or `leave_one_out`.
        most: bars.
        label: of the horizontal axis.
        ax: to draw into.
    """
    shown = sorted(changes, key=lambda each: (math.isnan(each.change), -each.change))[:most]
    ax = _axes(ax, 5, 0.24 * len(shown) + 1)
    ax.barh([f"{each.place}, head {each.head}" for each in shown], [each.change for each in shown], color="#0173b2")
    ax.invert_yaxis()
    ax.axvline(0, color="0.2", lw=0.8)
    ax.set_xlabel(label or "change when the head is masked")
    return ax


def pruning_curve(
    points: Sequence[Pruned] | Mapping[str, Sequence[Pruned]], label: str = "metric", ax: Axes | None = None
) -> Axes:
    """A metric against the number of heads that are kept.

    Args:
        points: of `ModelHeads.pruning_curve`; or several curves by name.
        label: of the metric.
        ax: to draw into.
    """
    ax = _axes(ax, 5, 3.4)
    for name, curve in (points if isinstance(points, Mapping) else {None: points}).items():
        ax.plot([point.kept for point in curve], [point.value for point in curve], marker="o", ms=4, label=name)
    ax.set(xlabel="heads kept", ylabel=label)
    if not ax.xaxis_inverted():
        ax.invert_xaxis()
    if isinstance(points, Mapping):
        ax.legend(frameon=False)
    return ax


# ---- into given axes


def draw_cells(ax: Axes, cells: np.ndarray, signed: bool = False) -> AxesImage:
    """(rows, H) numbers of heads as colours, and as numbers where they are not too many; NaN where there is no head.

    Args:
        ax: to draw into.
        cells: the numbers.
        signed: whether they have a middle at 0.
    """
    numbers = cells[np.isfinite(cells)]  # a module's only head is like no other
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)
    unit = number_unit(low, high)
    if signed:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    heads = cells.shape[1]
    image = ax.imshow(cells, cmap=DIVERGING if signed else "viridis", vmin=low, vmax=high, aspect="auto")
    if heads <= MOST:
        write_numbers(ax, image, unit, 2 if unit == 1 else 1)
    ax.set(xticks=range(heads), xticklabels=range(1, heads + 1), xlabel="head")
    bare(ax)
    return image


def number_unit(low: float, high: float) -> float:
    """What numbers in cells are divided by: 1, or a power of ten where the largest is below 0.1."""
    largest = max(abs(low), abs(high)) or 1.0
    return 1 if largest >= 0.1 else 10.0 ** math.floor(math.log10(largest))


def draw_pairs(ax: Axes, cells: np.ndarray, low: float = 0, high: float = 1) -> AxesImage:
    """(H, H) similarities of heads, which are counted from 1."""
    H = len(cells)
    look = {"cmap": DIVERGING if low < 0 else "Blues", "vmin": low, "vmax": high}
    image = ax.imshow(cells, extent=(0.5, H + 0.5, H + 0.5, 0.5), **look)
    ax.set(xticks=range(1, H + 1), yticks=range(1, H + 1), xlabel="head", ylabel="head")
    return image


def write_numbers(ax: Axes, image: AxesImage, unit: float = 1.0, digits: int = 2) -> None:
    """Every number of an image in its cell, divided by ``unit``, in black or white, whichever can be read there."""
    values = image.get_array()
    red, green, blue, _ = np.moveaxis(image.cmap(image.norm(values)), -1, 0)
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
    for (row, column), value in np.ma.ndenumerate(values):  # all but NaN
        look = {"fontsize": SMALL, "color": "white" if dark[row, column] else "0.15"}
        ax.text(column, row, f"{value / unit:.{digits}f}".replace("-", "−"), ha="center", va="center", **look)


def bare(ax: Axes) -> None:
    """Ticks without lines, and no frame."""
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


def _weights(record: HeadRecord, head: int, sentence: int) -> tuple[np.ndarray, int, int]:
    """Of one head and sentence, (N, S), and these numbers."""
    _must_have_weights(record)
    found = record.padded()
    B, H = found.weights.shape[:2]
    if not (1 <= head <= H and 0 <= sentence < B):
        raise DataError(
            f"{record.spec.name}: found head {head} of sentence {sentence}, expected 1 to {H} of 0 to {B - 1}"
        )
    N, S = int(found.queries[sentence].sum()), int(found.keys[sentence].sum())
    return found.weights[sentence, head - 1, :N, :S].detach().float().cpu().numpy(), N, S


def _two_lists(tokens: Any) -> tuple[list[str], list[str]]:
    """Of the queries and of the keys, from one list of both or two."""
    given = tokens.tolist() if isinstance(tokens, Tensor | np.ndarray) else list(tokens)
    two = len(given) == 2 and all(isinstance(each, Iterable) and not isinstance(each, str) for each in given)
    lists = [list(each) for each in given] if two else [given]
    for one in itertools.chain(*lists):
        if not isinstance(one, str):
            raise DataError(
                f"tokens: found {one!r:.80}, expected text, as tokenizer.convert_ids_to_tokens gives it: a list of the "
                "sentence's tokens, or two lists, of queries and keys"
            )
    return lists[0], lists[-1]


def _must_have_weights(record: HeadRecord) -> None:
    if record.weights is None:
        raise DataError(f"{record.spec.name}: recorded without attention weights; expected weights=True")
