"""What the commands have in common: arguments, options, and how their results are printed."""

from __future__ import annotations

import json
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


def print_json(value: Any) -> None:
    """The result of a command for programs."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False))


def print_table(rows: Sequence[Any], headers: str | Sequence[str] = ()) -> None:
    """The result of a command for people; "keys": the columns are named by the keys of the rows."""
    from tabulate import tabulate

    click.echo(tabulate(rows, headers, "plain", floatfmt=".4f", intfmt=",", missingval="–"))


def profile_option(default: str = "quick") -> Callable[[Command], Command]:
    """``--profile``, the same wherever it is taken."""
    return click.option(
        "--profile", default=default, show_default=True, help="Name of a file in config/, or the path of a YAML file."
    )


class Whole(click.Group):
    """Its list of commands says of each its whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Group`."""
        rows = [(name, self.commands[name].get_short_help_str(limit=1000)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
