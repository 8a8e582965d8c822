"""A table as people read it, whatever it is about, in Markdown; and as programs do, in CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from headdiv.companion.analysis.statistics import Interval

OF_TUNING = "_tuning"  # end of the name of the table about an experiment's tuning
OF_PRUNING = "_pruning"  # and of that about how many heads its runs can lose
DIGITS = 10  # significant ones, in a CSV file
PLUS_MINUS = "The ± after a score is half the width of Student's 95 % interval of the mean over seeds."
SIMULTANEOUS = (
    "The ± after a difference from the baseline is half the width of Dunnett's simultaneous 95 % interval, from one "
    "additive model of variant and seed for all rows with a pooled residual."
)
BESIDE = "ours beside the paper's"  # a caption
OURS = "scores"  # its place where the data are not the paper's


@dataclass(frozen=True)
class TableData:
    """A table with what it takes to read it; all cells of ``tables`` are text."""

    number: str  # in the paper: "Table 3"
    title: str
    scale: str  # what the numbers are of, in a sentence; **bold** is the only mark in it
    numbers: pd.DataFrame  # the same for programs
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)  # by caption; rows of variants are indexed by them
    signatures: dict[str, str] = field(default_factory=dict)  # how a score is measured, by its label
    remarks: list[str] = field(default_factory=list)  # what must be known before the numbers are read
    notes: list[str] = field(default_factory=list)  # how they came about

    def csv(self) -> str:
        """The numbers, to as many digits as are the same on every processor."""
        return self.numbers.map(lambda x: float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x).to_csv(index=False)

    def markdown(self) -> str:
        """The whole table; texts of results become neither HTML nor links."""
        parts = [f"# {self.number}: {_text(self.title)}", *self._parts(), self._measured()]
        return "\n\n".join(parts).rstrip("\n") + "\n"

    def folded(self) -> str:
        """Without its heading; how the numbers are measured is folded, if the viewer of the Markdown can fold."""
        parts = self._parts()
        if measured := self._measured():
            parts.append(f"<details><summary>How these numbers are measured</summary>\n\n{measured}\n\n</details>")
        return "\n\n".join(parts) + "\n"

    def _parts(self) -> list[str]:
        parts = [_text(self.scale), _bullet_list(self.remarks)]
        for caption, table in self.tables.items():
            if len(self.tables) > 1:
                parts.append(f"**{_text(caption[0].upper() + caption[1:])}**")
            cells = table.rename(columns=_cell).map(_cell)
            parts.append(cells.to_markdown(index=False, disable_numparse=True, colalign=alignment(table)))
        return [part for part in parts if part]

    def _measured(self) -> str:
        return _bullet_list([*(f"{label}: {signature}" for label, signature in self.signatures.items()), *self.notes])


def interval_columns(name: str, intervals: Iterable[Interval]) -> dict[str, list[float]]:
    """Columns of `TableData.numbers`: means by this name, the ends of intervals as ``<name>_low`` and ``_high``."""
    rows = list(intervals)
    return {
        name: [interval.mean for interval in rows],
        f"{name}_low": [interval.low for interval in rows],
        f"{name}_high": [interval.high for interval in rows],
    }


def alignment(table: pd.DataFrame) -> list[str]:
    """How columns are aligned: "left" rows' names and columns with words and no numbers, "right" all others."""
    columns = (table.iloc[:, index] for index in range(1, table.shape[1]))
    return ["left", *("left" if _has_only_words(column) else "right" for column in columns)]


def _has_only_words(column: pd.Series) -> bool:
    cells = [str(cell) for cell in column]
    return any(cell[:1].isalpha() for cell in cells) and not any(re.match(r"[+−-]?\d", cell) for cell in cells)


def _text(text: object) -> str:
    """Text as Markdown in one line, without control characters, which becomes neither HTML nor a link."""
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(str(text).split()))
    return line.replace("<", "\\<").replace("](", "]\\(").replace("]:", "]\\:").replace("![", "!\\[")


def _bullet_list(lines: list[str]) -> str:
    return "\n".join(f"- {_text(line)}" for line in lines)


def _cell(text: object) -> str:
    return _text(text).replace("|", "\\|")
