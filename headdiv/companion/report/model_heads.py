"""The heads of one Hugging Face model over a text: a table, and heat maps by layer and head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.style
import pandas as pd
import torch
from matplotlib.figure import Figure

from headdiv.companion.data.readers.lines import read_lines
from headdiv.companion.report.groups import KIND_LABELS, by_module, kinds_of
from headdiv.companion.report.plotting import SMALL, STYLE, add_colour_bar, add_title, new_figure
from headdiv.core.errors import DataError
from headdiv.plots import MOST, SIGNED, draw_cells, number_unit
from headdiv.pretrained.attached import transformers
from headdiv.pretrained.measures import Arguments, attach, head_table
from headdiv.pretrained.saved import load
from headdiv.pretrained.texts import text_batches

MEASURES = {  # by column: heading with unit, and what it means
    "importance": ("importance (nats)", "how much, to first order, an example's loss changes when the head is masked"),
    "confidence": ("confidence (0 to 1)", "mean of the largest weight that the head gives a word"),
    "entropy": ("entropy (nats)", "of the attention weights; 0 where all of it is on one key"),
    "cosine": ("cosine (−1 to 1)", "of the outputs of two heads for a word, mean over the layer's other heads"),
    "l2": ("distance", "Euclidean distance of the outputs of two heads, mean over the layer's other heads"),
    "correlation": ("correlation (−1 to 1)", "Pearson's, of two heads' outputs, mean over the layer's other heads"),
    "cka": ("CKA (0 to 1)", "linear centred kernel alignment of two heads' outputs: 1 is the same information"),
    "js": ("JS distance (0 to 1)", "Jensen–Shannon distance of two heads' attention weights: 0 is the same weights"),
}


@dataclass(frozen=True)
class HeadReport:
    """What was measured of a model.

    Attributes:
        model: name or folder.
        text: path of the text.
        examples: lines read.
        words: by module, that the measures are taken over.
        parameters: of the model.
        effective_rank: by module.
        table: a row for each head, a column for each of `MEASURES` that there is.
    """

    model: str
    text: str
    examples: int
    words: dict[str, int]
    parameters: int
    effective_rank: dict[str, float]
    table: pd.DataFrame


def model_and_tokenizer(name: str) -> tuple[torch.nn.Module, object]:
    """By name, or from a folder that ``save_pretrained`` wrote, `headdiv.insert`'s included.

    Raises:
        DataError: there is no such model here or online.
    """
    try:
        return load(name), transformers().AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        found = str(error).splitlines()[0]
        raise DataError(f"{name}: expected a model with a tokenizer, in a folder or on the hub: {found}") from error


def measure_model(name: str, text: Path, target: Path | None, size: int, length: int, most: int) -> HeadReport:
    """Measures and importance of every head over the first lines of a text.

    Args:
        name: of a model, or its folder.
        text: one example a line, UTF-8; empty lines are left out unless there is a target.
        target: of an encoder-decoder, line for line; None: the text itself.
        size: examples of a batch.
        length: tokens after which a line is cut.
        most: lines that are read.

    Raises:
        DataError: no such model, or no text.
    """
    texts, targets = read_lines(text)[:most], None if target is None else read_lines(target)[:most]
    if targets is None:
        texts = [line for line in texts if line.strip()]
    if not texts:
        raise DataError(f"{text}: found no text; expected one example a line")
    model, tokenizer = model_and_tokenizer(name)
    heads = attach(model)

    def batches(labels: bool) -> Iterator[Arguments]:
        return text_batches(model, tokenizer, texts, targets, size, length, labels)

    found = heads.measures(batches(labels=False), tokenizer.all_special_ids)
    table = head_table(found)
    if "labels" in next(batches(labels=True)):
        importance = {each[:2]: each.change for each in heads.importance(batches(labels=True))}
        table.insert(0, "importance", pd.Series(importance))
    return HeadReport(
        name,
        str(text),
        len(texts),
        {spec.place: measured.queries for spec, measured in found},
        sum(parameter.numel() for parameter in model.parameters()),
        {spec.place: measured.effective_rank for spec, measured in found},
        table,
    )


def draw_map(report: HeadReport, measure: str) -> Figure:
    """A measure of every head: a panel for each kind of attention, layers by heads."""
    column, modules = report.table[measure], by_module(report.words)
    rows, kinds, layers = column.unstack(), kinds_of(modules), max(layer for _, layer in modules)
    heads = rows.shape[1]
    width, height = max(0.42 * heads + 0.6, 2.4) * len(kinds) + 1.2, 0.34 * layers + 1.3
    with matplotlib.style.context(STYLE):
        figure, axes = new_figure(width, height, 1, len(kinds), sharey=True)
        limits = float(column.min()), float(column.max())
        unit = number_unit(*limits)
        for ax, kind in zip(axes[0], kinds, strict=True):
            cells = rows.reindex(f"{kind} {layer}" for layer in range(1, layers + 1)).to_numpy()
            image = draw_cells(ax, cells, measure in SIGNED, limits)
            ax.set(yticks=range(layers), title=KIND_LABELS[kind], yticklabels=range(1, layers + 1))
            ax.tick_params(labelsize=SMALL)
        axes[0][0].set_ylabel("layer")
        add_colour_bar(figure, image, axes, MEASURES[measure][0]).formatter.set_useOffset(False)
        small = unit != 1 and heads <= MOST
        add_title(figure, MEASURES[measure][0].partition(" (")[0] + (f", in units of {unit:g}" if small else ""))
    return figure


def write_model_heads(report: HeadReport, folder: Path) -> Path:
    """Write ``heads.csv``, a row for each head, and beside it a drawing of each measure: the table's path."""
    folder.mkdir(parents=True, exist_ok=True)
    report.table.to_csv(folder / "heads.csv", float_format="%.6g")
    for name in report.table:
        if report.table[name].notna().any():
            draw_map(report, name).savefig(folder / f"{name}.svg", metadata={"Date": None})
    return folder / "heads.csv"
