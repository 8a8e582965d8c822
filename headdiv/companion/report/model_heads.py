"""`headdiv heads`: the heads of one Hugging Face model over a text, as a table and heat maps by module and head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from headdiv.analysis.heads import head_table
from headdiv.companion.data.readers.lines import read_lines
from headdiv.companion.report.plotting import STYLE
from headdiv.core.errors import DataError
from headdiv.plots import head_map
from headdiv.pretrained.attached import transformers
from headdiv.pretrained.measures import Arguments, attach
from headdiv.pretrained.saved import load
from headdiv.pretrained.texts import text_batches

LINES, BATCH, LENGTH = 1000, 16, 128  # lines that are read, examples of a batch, tokens after which a line is cut


def measure_model(name: str, text: Path, target: Path | None) -> pd.DataFrame:
    """Measures of every head over the first lines of a text, and importance where the model predicts something.

    Args:
        name: of a model, or the folder that ``save_pretrained`` wrote, `headdiv.insert`'s included.
        text: one example a line, UTF-8; empty lines are left out unless there is a target.
        target: of an encoder-decoder, line for line; None: the text itself.

    Returns:
        A row for each module and head, a column for each measure.

    Raises:
        DataError: no such model, or no text.
    """
    texts, targets = read_lines(text)[:LINES], None if target is None else read_lines(target)[:LINES]
    if targets is None:
        texts = [line for line in texts if line.strip()]
    if not texts:
        raise DataError(f"{text}: found no text; expected one example a line")
    try:
        model, tokenizer = load(name), transformers().AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{name}: expected a model with a tokenizer, in a folder or on the hub: {reason}") from error
    heads = attach(model)

    def batches(labels: bool) -> Iterator[Arguments]:
        return text_batches(model, tokenizer, texts, targets, BATCH, LENGTH, labels)

    table = head_table(heads.measures(batches(labels=False), tokenizer.all_special_ids))
    if "labels" in next(batches(labels=True)):
        importance = {head[:2]: head.change for head in heads.importance(batches(labels=True))}
        table.insert(0, "importance", pd.Series(importance))
    return table


def write_model_heads(table: pd.DataFrame, folder: Path) -> Path:
    """Write ``heads.csv``, a row for each head, and beside it a heat map of each measure: the table's path."""
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "heads.csv", float_format="%.6g")
    modules, heads = (table.index.get_level_values(level).nunique() for level in (0, 1))
    for name, column in table.items():
        if column.notna().any():
            with matplotlib.rc_context(STYLE):
                figure = Figure(figsize=(0.42 * heads + 2, 0.34 * modules + 1), layout="constrained")
                head_map(column, ax=figure.subplots())
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return folder / "heads.csv"
