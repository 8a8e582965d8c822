"""A table as files (CSV, Markdown, LaTeX), and on a terminal of any width."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from headdiv.companion.options import fitted
from headdiv.companion.report.table_data import TableData, alignment, one_line
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import ConfigError
from headdiv.core.files import write_text

NARROWEST = 40  # characters of a line of prose
WIDEST = 100
LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "−": "$-$", "±": r"$\pm$", "–": "--", "δ": r"$\delta$", "γ": r"$\gamma$", "λ": r"$\lambda$", "→": r"$\to$",
}  # fmt: skip


def write_table(profile: str, table: str, *paths: Path) -> None:
    """Write a table to files: ``.csv`` for programs, to ten digits; ``.md``; ``.tex`` with the rules of booktabs.

    Raises:
        ConfigError: no such profile or table, or another ending.
        DataError: no stored results.
    """
    for path in paths:
        if path.suffix not in WRITERS:
            raise ConfigError(f"{path}: a table is written as one of {', '.join(WRITERS)}")
    data = table_data(profile, table)
    for path in paths:
        write_text(path, WRITERS[path.suffix](data))


def as_latex(data: TableData) -> str:
    """A ``table`` environment for each of a table's parts; the document needs ``\\usepackage{booktabs}``."""
    parts = []
    for caption, frame in data.captioned():
        columns = "".join(side[0] for side in alignment(frame))
        frame = frame.rename(columns=_latex).map(_latex)
        caption = caption or f"{data.number}: {data.title}"
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{_latex(caption)}}}",
                    frame.to_latex(index=False, escape=False, column_format=columns).rstrip(),
                    r"\end{table}",
                ]
            )
        )
    comments = [f"% {one_line(text)}" for text in (data.scale.replace("**", ""), *data.said, *data.notes)]
    return "\n".join([*comments, "", "\n\n".join(parts), ""])


def _latex(text: object) -> str:
    """Text as LaTeX, in one line."""
    return "".join(LATEX.get(letter, letter) for letter in one_line(text))


def as_text(data: TableData, width: int) -> str:
    """A table for a terminal of ``width`` characters: the columns that do not fit beside the first go on below it."""
    prose = max(NARROWEST, min(width, WIDEST))
    lines = [*textwrap.wrap(f"{data.number}: {data.title}", prose), *textwrap.wrap(data.scale.replace("**", ""), prose)]
    lines += [""] * bool(data.said) + _listed(data.said, prose)
    for caption, frame in data.captioned():
        lines += ["", *textwrap.wrap(caption, prose), *_frame_lines(frame, width)]
    lines += ["", *_listed([*(f"{name}: {how}" for name, how in data.signatures.items()), *data.notes], prose)]
    return "\n".join(lines)


def _listed(notes: Sequence[str], width: int) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(f"- {note}", width, subsequent_indent="  ")]


def _frame_lines(frame: pd.DataFrame, width: int) -> list[str]:
    from tabulate import tabulate

    heads = ["\n".join(textwrap.wrap(str(name), 16)) for name in frame.columns]
    rows = [[one_line(cell) for cell in row] for row in frame.to_numpy().tolist()]
    longest = [max(head.split("\n"), key=len) + "  " for head in heads]  # tabulate's padding of heads
    lines, aligned = list[str](), alignment(frame)
    for columns in fitted([longest, *rows], width):
        align = [aligned[i] for i in columns]
        chosen = [[row[i] for i in columns] for row in rows]
        text = tabulate(chosen, [heads[i] for i in columns], "simple", disable_numparse=True, colalign=align)
        lines += [*([""] if lines else []), *(line.rstrip() for line in text.splitlines())]
    return lines


WRITERS: dict[str, Callable[[TableData], str]] = {
    ".csv": TableData.csv,
    ".md": TableData.markdown,
    ".tex": as_latex,
}
