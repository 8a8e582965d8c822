"""The ledger of claims: what becomes of every number that the five papers report.

A claim whose working needs the paper's own numbers, counts of parameters or sizes of data sets is recomputed: it
*follows*, or is *contradicted*. One whose working needs ``ours.…`` is measured: it is *reproduced* or *not reproduced*
where stored runs may decide it (`evidence.py`), else *not run here*, like a number that nothing here can
work out. A comparison of measured numbers is decided only where it comes out by more than chance moves them. No verdict
is written down anywhere.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from functools import cache, cached_property
from itertools import product
from typing import Any

from headdiv.core.errors import ConfigError
from headdiv.core.files import canonical_json
from headdiv.core.settings import check, mistake, nearest
from headdiv.data.registry import DataSet, load_registry
from headdiv.experiments.claims.arithmetic import Known, Printed, Working, WorkingError, show
from headdiv.experiments.claims.evidence import Deciding, Results, Row, is_quantity
from headdiv.experiments.claims.files import (
    RELATION,
    Claim,
    Model,
    claims_of,
    claims_source,
    identifier,
    load_claims,
    papers_with_claims,
    sizes_of,
    step_of,
    unit_of,
)
from headdiv.experiments.papers import Variant, load_paper
from headdiv.experiments.running import build_model
from headdiv.methods import check_method
from headdiv.nn.transformer import count_parameters
from headdiv.tasks import TASKS
from headdiv.tasks.config import RunConfig

FOLLOWS, CONTRADICTED = "follows", "contradicted"
REPRODUCED, NOT_REPRODUCED, NOT_RUN = "reproduced", "not reproduced", "not run here"
VERDICTS = (FOLLOWS, CONTRADICTED, REPRODUCED, NOT_REPRODUCED, NOT_RUN)
OURS, PARAMS, DATA, ALL = "ours", "params", "data", "all"

# How far a measured number may lie from the paper's and still reproduce it, by unit: absolute, or as a share of the
# paper's. About what another seed and another library move a score by; times on another day of the same machine.
TOLERANCE: dict[str, tuple[float, float]] = {
    "BLEU": (1.0, 0.0),
    "%": (1.0, 0.0),
    "IMI": (0.02, 0.0),
    "epoch": (0.3, 0.0),
    "length": (0.05, 0.0),
    "nats/token": (0.0, 0.05),
    "nats/answer": (0.0, 0.05),
    "perplexity": (0.0, 0.05),
    "times": (0.0, 0.1),
    "days": (0.0, 0.2),
    "h": (0.0, 0.2),
    "ms": (0.0, 0.2),
}


def ledger(paper: str | None = None, verdict: str | None = None) -> list[dict[str, Any]]:
    """Every claim with its verdict.

    Args:
        paper: of this paper alone; of all that have claims where left out.
        verdict: with this verdict alone.

    Returns:
        By claim: paper, place, value (True: a relation), unit, kind, verdict, ours (None where nothing was worked
        out), working (with numbers filled in, tolerance and scale).

    Raises:
        ConfigError: no such paper or verdict, or a working names what is not there.
        DataError: stored metrics of another format.
    """
    if verdict is not None and verdict not in VERDICTS:
        raise ConfigError(f"verdict {verdict!r} is not known{nearest(verdict, list(VERDICTS))}")
    names = [paper] if paper else papers_with_claims()
    told = [row for name in names for row in _Judge(name).ledger()]
    return [row for row in told if verdict in (None, row["verdict"])]


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """By paper, how many claims have each verdict; zeros included."""
    told = Counter((row["paper"], row["verdict"]) for row in rows)
    return {paper: {verdict: told[paper, verdict] for verdict in VERDICTS} for paper, _ in told}


def summary_text(rows: Iterable[dict[str, Any]]) -> str:
    """`summary` as a table with sums. Settings are counted apart: a run that had one has not reproduced a result."""
    rows = list(rows)
    lines = [["", *VERDICTS, "all"]]
    for paper, counts in summary(rows).items():
        lines.append([paper, *map(str, counts.values()), str(sum(counts.values()))])
    for name, some in (("all", rows), ("settings among them", [row for row in rows if row["kind"] == "setting"])):
        told = Counter(row["verdict"] for row in some)
        lines.append([name, *(str(told[verdict]) for verdict in VERDICTS), str(len(some))])
    first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(
        "  ".join([name.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for name, *cells in lines
    )


def as_text(rows: Iterable[dict[str, Any]]) -> str:
    """The ledger for reading: a line a claim, and below it the working where something was worked out."""
    lines = []
    for row in rows:
        said = f"{row['verdict']:<14}  {row['paper']:<11}  {row['place']}"
        if row["unit"] != RELATION:
            said += f": {_readable(row['value'])} {row['unit']}".rstrip()
            said += "" if row["ours"] is None else f"; here {_readable(row['ours'])}"
        lines.append(said)
        if row["ours"] is not None:
            lines.append(f"{'':<16}{row['working']}")
    return "\n".join(lines)


class _Judge:
    """Gives a paper's claims their verdicts; a class because all of them share counts and stored runs."""

    def __init__(self, paper: str) -> None:
        self.paper, self.told, self.known = paper, load_claims(paper), load_paper(paper)
        self.results = Results(paper)

    def ledger(self) -> list[dict[str, Any]]:
        rows = []
        for claim in claims_of(self.paper):
            try:
                verdict, ours, working = self._judge(claim)
            except WorkingError as error:
                raise mistake(claim.at, f"{claim.place}: {error}", claims_source(self.paper)) from None
            rows.append(
                {
                    "paper": self.paper,
                    "place": claim.place,
                    "value": _plain(claim.value),
                    "unit": claim.unit,
                    "kind": claim.kind,
                    "verdict": verdict,
                    "ours": None if ours is None else _plain(ours),
                    "working": working,
                }
            )
        return rows

    def _judge(self, claim: Claim) -> tuple[str, float | bool | None, str]:
        if claim.working is None:
            return NOT_RUN, None, _with_note("nothing here can work this out", claim)
        measured = self._asked_of_runs(claim.working)
        if not measured:
            known = self._known(claim.working, None)
            ours = claim.working.value(known)
            holds, said = _holds(claim, ours, claim.working.spread(known))
            working = "; ".join([_equation(claim.working, known, ours) + said, *self._also(claim, None)])
            return FOLLOWS if holds else CONTRADICTED, ours, _with_note(working, claim)
        deciding = self._deciding(claim, measured)
        if deciding is None:
            return NOT_RUN, None, _with_note(self._lacking({task for (task, _), _ in measured}), claim)
        known = self._known(claim.working, deciding)
        ours = claim.working.value(known)
        if claim.unit == RELATION and self._may_turn(claim.working, known, deciding):
            near = f"{_equation(claim.working, known, ours)}, by less than chance may move these numbers"
            return NOT_RUN, ours, _with_note(f"more seeds would have to decide: {near}; {deciding.scale}", claim)
        holds, said = _reproduces(claim, ours)
        working = "; ".join(
            [_equation(claim.working, known, ours) + said, *self._also(claim, deciding), deciding.scale]
        )
        return REPRODUCED if holds else NOT_REPRODUCED, ours, _with_note(working, claim)

    def _deciding(self, claim: Claim, asked: list[tuple[Row, str]]) -> Deciding | None:
        """The runs that decide a claim; None where there are none, or these lack one of the numbers."""
        cost = claim.kind == "cost"
        absolute = cost and claim.unit not in (RELATION, "times")
        deciding = self.results.deciding([row for row, _ in asked], cost, absolute)
        if deciding is None or None in [deciding.quantity(row, name) for row, name in asked]:
            return None
        return deciding

    def _may_turn(self, working: Working, known: Known, deciding: Deciding) -> bool:
        """Whether a relation is another if measured numbers move by half of `TOLERANCE`, over the root of the seeds.

        Two numbers that are compared may then come nearer by as much as one is allowed to be off. Quantities without a
        tolerance, and ratios of them, stay where they are.
        """
        rooms = {}
        for name in working.names:
            first, task, *rest = name.split(".", 3)
            column = self.known.tasks[task].columns.get(rest[-1]) if first == OURS else None
            if column and unit_of(column) in TOLERANCE:
                seeds = len(deciding.runs[task, self._variant(task, rest[0])])
                rooms[name] = _tolerance(unit_of(column), known[name].value) / 2 / math.sqrt(seeds)
        found = set()
        for signs in product((-1, 1), repeat=len(rooms)):
            steps = zip(rooms.items(), signs, strict=True)
            found.add(working.value(known | {name: Printed(known[name].value + s * room) for (name, room), s in steps}))
        return len(found) > 1

    def _lacking(self, tasks: set[str]) -> str:
        there = self.results.there_is(tasks)
        return "nothing stored is near enough to the paper's data, sizes, method, length or machine" + (
            f"; there is: {there}" if there else ", or at all"
        )

    def _also(self, claim: Claim, deciding: Deciding | None) -> list[str]:
        told = []
        for what, working in claim.also.items():
            known = self._known(working, deciding)
            told.append(f"{what}: {_equation(working, known, working.value(known))}")
        return told

    # ---- names

    def _asked_of_runs(self, working: Working) -> list[tuple[Row, str]]:
        """What a working needs of runs: of which row what."""
        told = []
        for name in working.names:
            first, *parts = name.split(".", 3)
            if first == OURS and len(parts) == 3:
                task, row = parts[0], self._variant(parts[0], parts[1])
                if not is_quantity(self.known.tasks[task], task, row, parts[2]):
                    raise WorkingError(f"{name!r}: no run tells this")
                told.append(((task, row), parts[2]))
        return told

    def _known(self, working: Working, deciding: Deciding | None) -> dict[str, Printed | tuple[Printed, ...]]:
        return {name: self._number(name, deciding) for name in working.names}

    def _number(self, name: str, deciding: Deciding | None) -> Printed | tuple[Printed, ...]:
        match name.split("."):
            case [first, task, row, *rest] if first == OURS and rest and deciding:
                found = deciding.quantity((task, self._variant(task, row)), ".".join(rest))
                if found is not None:
                    return Printed(found)
            case [first, model, row] if first == PARAMS:
                return Printed(self._count(model, row))
            case [first, data, split] if first == DATA:
                return Printed(self._examples(name, data, split))
            case [table, row, column] if table in self._reported:
                rows = self._reported[table]
                if row == ALL:
                    return tuple(numbers[column] for numbers in rows.values() if column in numbers)
                if column in rows.get(row, {}):
                    return rows[row][column]
        raise WorkingError(f"{name!r} is not known; expected <task>.<variant>.<column>, params.<task>.<variant>, "
                           "data.<set>.<split> or ours.<task>.<variant>.<quantity>")  # fmt: skip

    @cached_property
    def _reported(self) -> dict[str, dict[str, dict[str, Printed]]]:
        """The paper's own numbers: by task or table, by row, by column."""
        told = {
            name: {
                identifier(variant): {
                    column: Printed(value, step_of(task.columns[column], column, task))
                    for column, value in row.reported.items()
                }
                for variant, row in task.variants.items()
            }
            for name, task in self.known.tasks.items()
        }
        for name, table in self.known.tables.items():
            told[name] = {
                row: {
                    column: Printed(value, step_of(table.columns[column], column)) for column, value in numbers.items()
                }
                for row, numbers in table.rows.items()
            }
        return told

    def _variant(self, task: str, row: str) -> str:
        """The variant's own name."""
        known = self.known.tasks
        found = [name for name in known[task].variants if identifier(name) == row] if task in known else []
        if not found:
            raise WorkingError(f"{self.paper} has no row {task}.{row}")
        return found[0]

    def _examples(self, name: str, data: str, split: str) -> int:
        if data not in self._sets or split not in self._sets[data].splits:
            known = [f"{DATA}.{one}.{part}" for one, entry in self._sets.items() for part in entry.splits]
            raise WorkingError(f"{name!r} is not known{nearest(name, known)}")
        return self._sets[data].splits[split].count

    @cached_property
    def _sets(self) -> dict[str, DataSet]:
        return load_registry()

    def _count(self, model: str, row: str) -> int:
        """Parameters of a row at the sizes of a task, or of one of the file's models."""
        own = self.told.models.get(model)
        name = own.task if own else model
        variant, task = self._variant(name, row), self.known.tasks[name]
        if own is None and task.sizes is None:
            raise WorkingError(f"{PARAMS}.{model}: the sizes of {name} are not known; give them under 'models'")
        told = own or Model(task=name, vocabulary=task.sizes.vocabulary if task.sizes else [])
        sizes, data = {}, {}
        if told.kind is None:  # of the task's own kind: its sizes, as far as they are not replaced
            sizes = sizes_of(task, task.variants[variant], self.told.scale.get(name))
            data = task.sizes.data if task.sizes else {}
        sizes = sizes | told.model | task.variants[variant].model
        kind = told.kind or task.kind or name
        return count(kind, task.variants[variant], sizes, told.vocabulary, data | told.data)


def count(kind: str, row: Variant, sizes: dict[str, Any], vocabulary: list[int], data: dict[str, Any]) -> int:
    """Parameters of a row's model, built on the meta device: nothing is allocated and no data is read.

    Args:
        kind: of task.
        row: its method.
        sizes: of the model.
        vocabulary: sizes, as `Task.vocabulary` gives them.
        data: what of the data the model's size depends on.

    Raises:
        ConfigError: the kind of task has no such size.
    """
    return _count(canonical_json([kind, row.method, sizes, vocabulary, data]))


@cache
def _count(told: str) -> int:
    kind, method, sizes, vocabulary, data = json.loads(told)
    task = TASKS[kind]
    needed = {"epoch_tokens": 1} if "epoch_tokens" in task.Data.model_fields else {}
    model = check(task.Model, sizes)
    config = RunConfig(
        paper="",
        task="",
        kind=kind,
        variant="",
        data=check(task.Data, {"name": "toy", **needed, **data}),
        model=model,
        method=check_method(method, model),
        seed=0,
    )
    return count_parameters(build_model(config, tuple(vocabulary), device="meta")[0])


def _holds(claim: Claim, ours: float | bool, spread: float) -> tuple[bool, str]:
    """Whether what was recomputed bears the claim out, and what is to be said of it."""
    if claim.value is True or isinstance(ours, bool):
        return _relation(claim, ours), ""
    if claim.sign in ("=", "about"):
        off, slack = abs(ours - claim.value), 1e-9 * max(1.0, abs(claim.value))
        # "About 4 %" may have been rounded up or down, or cut off: one unit of the last digit instead of a half.
        room = claim.step * (1.0 if claim.sign == "about" else 0.5) + slack
        if room < off <= room + spread:
            return True, ", which is the claim within the rounding of the numbers it is made of"
        return off <= room, ""
    return _compares(claim, ours)


def _reproduces(claim: Claim, ours: float | bool) -> tuple[bool, str]:
    """Whether what was measured bears the claim out, and within what tolerance."""
    if claim.value is True or isinstance(ours, bool):
        return _relation(claim, ours), ""
    if claim.kind == "setting":
        return abs(ours - claim.value) <= 1e-9 * max(1.0, abs(claim.value)), ""
    if claim.sign not in ("=", "about"):
        return _compares(claim, ours)
    if claim.unit not in TOLERANCE:
        raise WorkingError(f"the unit {claim.unit!r} has no tolerance{nearest(claim.unit, list(TOLERANCE))}")
    room = _tolerance(claim.unit, claim.value)
    return abs(ours - claim.value) <= room, f" (tolerance {show(room)})"


def _tolerance(unit: str, value: float) -> float:
    """How far a measured number may lie from this one, by `TOLERANCE`."""
    absolute, share = TOLERANCE[unit]
    return absolute + share * abs(value)


def _relation(claim: Claim, ours: float | bool) -> bool:
    if claim.value is not True or not isinstance(ours, bool):
        raise WorkingError("a relation has the value true and a working that compares, and nothing else has")
    return ours


def _compares(claim: Claim, ours: float) -> tuple[bool, str]:
    holds = {
        "<": ours < claim.value,
        "<=": ours <= claim.value,
        ">": ours > claim.value,
        ">=": ours >= claim.value,
    }[claim.sign]
    return holds, f", {'' if holds else 'not '}{claim.sign} {show(claim.value)}"


def _equation(working: Working, known: Any, value: float | bool) -> str:
    filled = working.filled(known)
    return filled if filled == show(value) else f"{filled} {'is' if isinstance(value, bool) else '='} {show(value)}"


def _readable(value: float) -> str:
    """With thousands set apart."""
    return f"{value:,}" if isinstance(value, int) else show(value)


def _with_note(working: str, claim: Claim) -> str:
    return f"{working} ({claim.note})" if claim.note else working


def _plain(value: float | bool) -> float | int | bool:
    """Whole numbers as such."""
    return value if isinstance(value, bool) or value != int(value) else int(value)
