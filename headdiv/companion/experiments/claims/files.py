"""All claims of a paper: the numbers of its tables (``papers/<paper>.yaml``), and what its text states.

The latter, and how both are computed, stands in ``papers/claims/<paper>.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headdiv.companion.experiments.claims.functions import itself
from headdiv.companion.experiments.claims.records import (
    Claim,
    ClaimKind,
    Computation,
    Counted,
    FromRuns,
    PaperClaims,
    Scale,
    how,
    step,
)
from headdiv.companion.experiments.papers import BASELINE, PaperTask, Table, Variant, load_paper
from headdiv.companion.experiments.papers.claims import deacon, dpp, homeostasis, mhr, moa
from headdiv.core.errors import ConfigError
from headdiv.core.settings import nearest

CLAIMS = {
    "deacon": deacon.CLAIMS,
    "dpp": dpp.CLAIMS,
    "homeostasis": homeostasis.CLAIMS,
    "mhr": mhr.CLAIMS,
    "moa": moa.CLAIMS,
}
COSTS = ("days", "h", "ms")  # units


def papers_with_claims() -> list[str]:
    """The papers whose claims are known, by name."""
    return list(CLAIMS)


def load_claims(paper: str) -> PaperClaims:
    """What a paper claims beside its tables' numbers. Raises ConfigError: no claims of such a paper are known."""
    if paper not in CLAIMS:
        raise ConfigError(f"claims of {paper!r} are not known{nearest(paper, list(CLAIMS))}")
    return CLAIMS[paper]


def claims_of(paper: str) -> list[Claim]:
    """All claims of a paper: its tables' numbers, then its sentences; errors as those of `load_claims`."""
    own, known = load_claims(paper), load_paper(paper)
    claims: list[Claim] = []
    for name, task in known.tasks.items():
        claims += [*_of_table(name, task, own), *_of_settings(name, task, own)]
    for name, table in known.tables.items():
        claims += _of_table(name, table, own)
    for section, sentences in own.sentences.items():
        claims += [replace(claim, place=f"{section}, {claim.place}") for claim in sentences]
    return claims


def sizes_of(task: PaperTask, row: Variant, scale: Scale | None = None) -> dict[str, Any]:
    """The sizes of a row's model in the paper; empty where they are not known."""
    own = task.sizes.model if task.sizes else scale.model if scale else {}
    return {**own, **row.model} if own else {}


def walk(value: Any, keys: list[str]) -> Any:
    """The value below these keys; None where one of them is missing."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def _of_table(name: str, table: Table, own: PaperClaims) -> Iterator[Claim]:
    """A table's numbers; one with a computation of its own, not that of its kind, is arithmetic."""
    tables, numbers = own.tables.get(name, {}), own.numbers.get(name, {})
    for row, values in table.numbers().items():
        for column, value in values.items():
            shown, better, effect = table.columns[column], None, None
            compute = numbers.get((row, column)) or numbers.get(column)
            kind: ClaimKind = "cost" if shown.unit in COSTS else "score"
            if not table.measured:
                kind = "setting"
            if column == "parameters":
                kind = "parameter count"
            elif compute:
                kind = "arithmetic"
            if kind == "score":
                better, effect = shown.better, _effect(table, row, column)
            place = f"{tables.get(column) or tables.get(row) or table.table}, {table.label(row)}, {shown.label}"
            computed = compute(row) if compute else _by_kind(name, table, row, column)
            yield Claim(place, value, table.step(column), shown.quantity, kind, computed, better, effect)


def _by_kind(name: str, table: Table, row: str, column: str) -> Computation | None:
    """How a number of a table is computed where the paper's claims do not say it."""
    if column == "parameters" and isinstance(table, PaperTask):
        return how(itself, Counted(name, row)) if table.sizes else None
    return how(itself, FromRuns(name, row, column)) if table.measured else None


def _effect(table: Table, row: str, column: str) -> float | None:
    """See `Claim.effect`."""
    values = {name: numbers[column] for name, numbers in table.numbers().items() if column in numbers}
    if BASELINE not in values:
        return None
    others = [row] if row != BASELINE else [name for name in values if name != BASELINE]
    return max((round(abs(values[other] - values[BASELINE]), 9) for other in others), default=None)


def _of_settings(name: str, task: PaperTask, own: PaperClaims) -> Iterator[Claim]:
    scale = own.scale.get(name)
    for label, setting in own.settings.get(name, {}).items():
        for variant, row in task.variants.items():
            if not row.reported or (setting.rows is not None and variant not in setting.rows):
                continue
            sections = {"method": row.method, "model": sizes_of(task, row, scale)}
            found = ((path, walk(sections, path.split("."))) for path in setting.of)
            path, value = next(((path, value) for path, value in found if value is not None), ("", None))
            if value is not None:
                table = setting.table or own.tables.get(name, {}).get(variant) or task.table
                computed = how(itself, FromRuns(name, variant, f"config.{path}"))
                place = f"{table}, {row.label}, {label}"
                yield Claim(place, value, step(value), setting.unit, "setting", computed)
