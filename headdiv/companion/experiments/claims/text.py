"""The ledger of claims as text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from tabulate import tabulate

from headdiv.companion.experiments.claims.ledger import RELATION, Judgement, show, summary
from headdiv.companion.experiments.claims.records import GRADES
from headdiv.companion.experiments.claims.verdicts import CONTRADICTED, FOLLOWS, NOT_RUN, VERDICTS

COUNTED = (FOLLOWS, NOT_RUN)  # verdicts whose claims are only counted where all are asked for
WIDEST = 110  # characters


def summary_text(rows: Sequence[Judgement]) -> str:
    """How many claims have each verdict, a column for each paper, and what each verdict means."""
    return "\n".join(
        [_counted(rows, "plain"), "", *(_wrapped(f"{key}: {what}", "", "  ") for key, what in VERDICTS.items())]
    )


def summary_markdown(rows: Sequence[Judgement]) -> str:
    """How many claims have each verdict, by paper, and the contradictions on which a result depends, as Markdown."""
    grave = Counter((row.paper, row.cause) for row in rows if row.grade == "result")
    causes = [f"- {paper}, in {'one claim' if count == 1 else f'{count} claims'}: {cause}"
              for (paper, cause), count in grave.items()]  # fmt: skip
    title = "Contradictions on which a result or a conclusion of the paper depends:"
    return "\n".join([_counted(rows, "github"), "", title, "", *causes])


def _counted(rows: Sequence[Judgement], tablefmt: str) -> str:
    counts = summary(rows)
    lines = [[verdict, *(paper[verdict] for paper in counts.values())] for verdict in VERDICTS]
    lines.append(["all", *(sum(paper.values()) for paper in counts.values())])
    table = [[*line, sum(line[1:])] for line in lines]
    return tabulate(
        table, ["verdict", *counts, "all"], tablefmt=tablefmt, colalign=["left"] + ["right"] * (len(counts) + 1)
    )


def as_text(rows: Sequence[Judgement], verbose: bool = False) -> str:
    """The ledger by paper, verdict and cause, in lines of the terminal's width.

    ``verbose``: with how each was computed, and with the claims of every verdict; else those that need no look are only
    counted, unless all rows have one verdict.
    """
    several, lines = len({row.verdict for row in rows}) > 1, []
    for paper, of_paper in groupby(rows, lambda row: row.paper):
        by_verdict = sorted(of_paper, key=lambda row: list(VERDICTS).index(row.verdict))
        for verdict, group in groupby(by_verdict, lambda row: row.verdict):
            claims = list(group)
            lines.append(f"{paper}: {verdict} ({len(claims)})")
            if verbose or not several or verdict not in COUNTED:
                lines += _claims(claims, verbose)
        lines.append("")
    if several and not verbose:
        lines.append("-v shows every claim and how it was computed, --verdict those with one verdict.")
    return "\n".join(lines).rstrip()


def _claims(claims: list[Judgement], verbose: bool) -> list[str]:
    lines, graded = [], list(GRADES)
    if claims[0].verdict == CONTRADICTED:  # what matters most first; sorting keeps the order of the paper
        first = {row.cause: number for number, row in reversed(list(enumerate(claims)))}
        claims = sorted(claims, key=lambda row: (graded.index(row.grade) if row.grade else -1, first[row.cause]))
    for cause, group in groupby(claims, lambda row: row.cause):
        rows = list(group)
        if cause:
            lines.append(_wrapped(f"[{rows[0].grade}] {cause}", "  ", "    "))
        for row in rows:
            text = row.place
            if row.unit != RELATION:
                text += f": {show(row.value)} {row.unit}".rstrip()
                text += "" if row.ours is None else f"; here {show(row.ours)}"
            lines.append(_wrapped(text, "    - ", "      "))
            if verbose:
                lines.append(_wrapped(row.working, "        ", "        "))
    return lines


def _wrapped(text: str, first: str, other: str) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, WIDEST)
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=other, break_long_words=False)
