"""What the commands have in common: arguments, options, and how their results are printed."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

EXPERIMENT = click.argument("experiment", metavar="PAPER/TASK")
VARIANT = click.argument("variant")
SEED = click.option("--seed", type=int, default=1, show_default=True, help="Any; tables show the profile's own.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
PATH = click.Path(path_type=Path)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with escapes in place of control characters: those of names would move a terminal's cursor."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def say(text: str) -> None:
    """Print a line; not `click.echo`, which writes UTF-8 where the output is said to be ASCII."""
    print(printable(text))


def print_json(value: Any) -> None:
    """The result of a command for programs."""
    say(json.dumps(value, indent=1, ensure_ascii=False))


def print_table(rows: Sequence[Any], headers: str | Sequence[str] = ()) -> None:
    """The result of a command for people; "keys": the columns are named by the keys of the rows.

    Numbers have four decimals.
    """
    from tabulate import tabulate

    if headers == "keys":
        headers = list(dict.fromkeys(key for row in rows for key in row))
        rows = [[row.get(key) for key in headers] for row in rows]
    texts = [[_cell(value) for value in row] for row in [headers, *rows] if len(row)]
    numbers = [all(isinstance(row[i], (int, float, type(None))) for row in rows) for i in range(len(texts[0]))]
    align = ["right" if number else "left" for number in numbers]
    lines = tabulate(texts, tablefmt="plain", disable_numparse=True, colalign=align).splitlines()
    say("\n".join(line.rstrip() for line in lines))


def write_plainly() -> None:
    """Where the output's encoding lacks a letter, write a question mark instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)


def profile_option(default: str = "quick") -> Callable[[Command], Command]:
    """``--profile``, the same wherever it is taken."""
    return click.option(
        "--profile", default=default, show_default=True, help="Name of a file in config/, or the path of a YAML file."
    )


class Whole(click.Group):
    """Its list of commands says of each its whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Group`."""
        rows = [
            (name, self.commands[name].get_short_help_str(limit=1000))
            for name in self.list_commands(ctx)
            if not self.commands[name].hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
