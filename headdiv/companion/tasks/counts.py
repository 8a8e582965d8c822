"""Files beside a trained model that belong to its outputs: their tokens, and what BLEU needs of each sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from headdiv.core.errors import DataError
from headdiv.core.files import write_text

COLUMNS = [*(f"{what}{n}" for what in ("matching_", "all_") for n in (1, 2, 3, 4)), "length", "reference_length"]


def counts_path(outputs: Path) -> Path:
    """The file of the counts that belong to a file of outputs."""
    return outputs.with_name(f"counts-{outputs.stem.partition('-')[2]}.csv")


def tokens_path(outputs: Path) -> Path:
    """The file of the tokens that a file of outputs was joined of."""
    return outputs.with_name(f"tokens-{outputs.stem.partition('-')[2]}.json")


def write_counts(path: Path, counts: np.ndarray) -> None:
    """Write `headdiv.companion.tasks.bleu.sentence_counts`, (S, 10), a line a sentence."""
    write_text(path, pd.DataFrame(counts, columns=COLUMNS).to_csv(index=False))


def read_counts(path: Path) -> np.ndarray:
    """The same, (S, 10).

    Raises:
        DataError: the file is not of this form, or has no sentence.
    """
    try:
        table = pd.read_csv(path, dtype=int)
    except ValueError as error:
        raise DataError(f"{path}: not a table of whole numbers ({error})") from None
    if list(table.columns) != COLUMNS:
        raise DataError(f"{path}: found the columns {', '.join(table.columns)}; expected {', '.join(COLUMNS)}")
    if table.empty:
        raise DataError(f"{path}: found no sentence, expected a line for each")
    return table.to_numpy()
