"""A table as people read it, whatever it is about: for Markdown, notebooks and the report; and as programs do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

PLUS_MINUS = "± of a score is half the width of Student's 95 % interval of the mean over seeds."


SIMULTANEOUS = (
    "± of a difference to the baseline is half the width of Dunnett's simultaneous 95 % interval: one additive model "
    "of variant and seed for all rows, its residual pooled."
)
MINUS_BASELINE = "Minus the baseline"  # heads the rows of a table of differences


@dataclass(frozen=True)
class TableData:
    """A table with what it takes to read it; all cells of ``tables`` are text."""

    number: str  # in the paper: "Table 3"
    title: str
    scale: str  # what the numbers are of, in a sentence; **bold** is the only mark in it
    numbers: pd.DataFrame  # the same for programs, unrounded: what a CSV file gets
    tables: list[pd.DataFrame] = field(default_factory=list)  # rows of variants are indexed by them
    captions: list[str] = field(default_factory=list)  # of the tables; none: beside the paper's, then ours alone
    signatures: dict[str, str] = field(default_factory=dict)  # by score
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """All of it; what results say of themselves is text: no HTML, no links."""
        parts = [
            f"# {self.number}: {_text(self.title)}",
            _text(self.scale),
            *(_markdown(table) for table in self.tables),
        ]
        lines = [f"- {_text(name)}: {_text(how)}" for name, how in self.signatures.items()]
        lines += [f"- {_text(note)}" for note in self.notes]
        return "\n\n".join([*parts, "\n".join(lines)]).rstrip("\n") + "\n"


def one_line(text: object) -> str:
    """Text without line ends and control characters."""
    words = " ".join(str(text).split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in words)


def _text(text: object) -> str:
    """Text as Markdown, which becomes neither HTML nor a link."""
    return one_line(text).replace("<", "\\<").replace("](", "]\\(").replace("]:", "]\\:").replace("![", "!\\[")


def _markdown(table: pd.DataFrame) -> str:
    align = ["left"] + ["right"] * (table.shape[1] - 1)
    cells = table.rename(columns=_cell).map(_cell)
    return cells.to_markdown(index=False, disable_numparse=True, colalign=align)


def _cell(text: object) -> str:
    return _text(text).replace("|", "\\|")
