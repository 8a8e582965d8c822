"""The ledger of claims as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tabulate import tabulate

from headdiv.companion.experiments.claims.ledger import (
    CONTRADICTED,
    FOLLOWS,
    NOT_RUN,
    RELATION,
    VERDICTS,
    Judgement,
    show,
    summary,
)
from headdiv.companion.experiments.claims.records import GRADES


def summary_text(rows: Sequence[Judgement]) -> str:
    """How many claims have each verdict, a column for each paper, and what each verdict means."""
    counts = summary(rows)
    lines = [[verdict, *(paper[verdict] for paper in counts.values())] for verdict in VERDICTS]
    lines.append(["all", *(sum(paper.values()) for paper in counts.values())])
    table = [[*line, sum(line[1:])] for line in lines]
    alignment = ["left"] + ["right"] * (len(counts) + 1)
    meanings = [f"{verdict}: {meaning}" for verdict, meaning in VERDICTS.items()]
    return "\n".join([tabulate(table, ["verdict", *counts, "all"], "plain", colalign=alignment), "", *meanings])


def as_text(rows: Sequence[Judgement], verbose: bool = False) -> str:
    """The ledger by paper, verdict and cause, the gravest first.

    ``verbose``: with how each was computed; else what follows and what was not run, which need no look, is only
    counted.
    """
    verdicts, grades, causes = list(VERDICTS), [None, *GRADES], {}
    for row in rows:
        causes.setdefault(row.cause, len(causes))
    lines = []
    for paper, of_paper in groupby(rows, lambda row: row.paper):
        by_verdict = sorted(of_paper, key=lambda row: verdicts.index(row.verdict))
        for verdict, group in groupby(by_verdict, lambda row: row.verdict):
            claims = list(group)
            lines.append(f"{paper}: {verdict} ({len(claims)})")
            if verdict == CONTRADICTED:
                claims.sort(key=lambda row: (grades.index(row.grade), causes[row.cause]))
            if verbose or verdict not in (FOLLOWS, NOT_RUN):
                lines += _claims(claims, verbose)
        lines.append("")
    if not verbose:
        lines.append("-v shows every claim and how it was computed.")
    return "\n".join(lines).rstrip()


def _claims(claims: Sequence[Judgement], verbose: bool) -> list[str]:
    lines = []
    for cause, group in groupby(claims, lambda row: row.cause):
        for number, row in enumerate(group):
            if cause and number == 0:
                lines.append(f"  [{row.grade}] {cause}")
            text = row.place
            if row.unit != RELATION:
                text += f": {show(row.value)} {row.unit}; here {show(row.ours)}"
            lines.append(f"    - {text}")
            if verbose:
                lines.append(f"        {row.working}")
    return lines
