"""How work in progress is shown: a bar on a terminal or in a notebook, plain lines in a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm.auto import tqdm

PLAIN = "HEADDIV_PROGRESS"  # set to "plain" where output goes to a log although it looks like a notebook


def interactive() -> bool:
    """Whether the output is a terminal, or a notebook that is not being executed in a pipeline."""
    if os.environ.get(PLAIN) == "plain" or os.environ.get("RANK", "0") != "0":
        return False
    return "ipykernel" in sys.modules or sys.stderr.isatty()


_hidden = ContextVar("hidden", default=False)


@contextmanager
def hidden() -> Iterator[None]:
    """Show no bars within: a widget's output would keep their remains."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


@contextmanager
def bar(total: int, what: str, done: int = 0) -> Iterator[Callable[[str], None]]:
    """Yield a function that advances the bar by one and sets the text after it."""
    disabled = _hidden.get() or not interactive()
    with tqdm(total=total, desc=what, initial=done, leave=False, disable=disabled) as progress_bar:

        def advance(text: str) -> None:
            progress_bar.set_postfix_str(text, refresh=False)
            progress_bar.update()

        yield advance


def message(line: str) -> None:
    """A line for the log, the terminal or the notebook; it does not break a bar."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()
