"""The ledger of claims: the verdict on every number that the five papers report.

A claim whose working needs the paper's own numbers, counts of parameters or sizes of data sets is recomputed: it
*follows*, or is *contradicted*. One whose working needs ``ours.…`` is measured: it is *reproduced* or *not reproduced*
where stored runs may decide it (`evidence.py`), else *not run here*, like a number that nothing here can
work out. A comparison of measured numbers is decided only where it comes out by more than chance moves them. No verdict
is written down anywhere.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from tabulate import tabulate

from headdiv.core.errors import ConfigError
from headdiv.core.settings import mistake, nearest
from headdiv.data.registry import DataSet, load_registry
from headdiv.experiments.claims.arithmetic import Known, Printed, Working, WorkingError, show
from headdiv.experiments.claims.evidence import Evidence, Results, Row, is_quantity
from headdiv.experiments.claims.files import (
    RELATION,
    Claim,
    claims_of,
    claims_source,
    identifier,
    load_claims,
    papers_with_claims,
    sizes_of,
)
from headdiv.experiments.papers import load_paper
from headdiv.experiments.parameters import count
from headdiv.experiments.results import RunResult

FOLLOWS, CONTRADICTED = "follows", "contradicted"
REPRODUCED, NOT_REPRODUCED, NOT_RUN = "reproduced", "not reproduced", "not run here"
VERDICTS = (FOLLOWS, CONTRADICTED, REPRODUCED, NOT_REPRODUCED, NOT_RUN)
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
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


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict and the evidence for it.

    Attributes:
        value: the paper's number; True for a relation.
        ours: the same worked out here; None where nothing could be.
        working: how, with numbers filled in, tolerance and scale; or why not.
        profile: of the runs that it was measured by; None where it was not measured.
        runs: those runs.
    """

    paper: str
    place: str
    value: float | bool
    unit: str
    kind: str
    verdict: str
    ours: float | bool | None
    working: str
    profile: str | None = None
    runs: tuple[RunResult, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON has it: all but the runs."""
        return {name: value for name, value in vars(self).items() if name not in ("profile", "runs")}


def ledger(paper: str | None = None, verdict: str | None = None) -> list[Judgement]:
    """Every claim with its verdict.

    Args:
        paper: of this paper alone; of all that have claims where left out.
        verdict: with this verdict alone.

    Raises:
        ConfigError: no such paper or verdict, or a working names what is not there.
        DataError: stored metrics of another format.
    """
    if verdict is not None and verdict not in VERDICTS:
        raise ConfigError(f"verdict {verdict!r} is not known{nearest(verdict, list(VERDICTS))}")
    names = [paper] if paper else papers_with_claims()
    judgements = [judgement for name in names for judgement in _Judge(name).ledger()]
    return [judgement for judgement in judgements if verdict in (None, judgement.verdict)]


def summary(rows: Iterable[Judgement]) -> dict[str, dict[str, int]]:
    """By paper, how many claims have each verdict; zeros included."""
    counts = Counter((row.paper, row.verdict) for row in rows)
    return {paper: {verdict: counts[paper, verdict] for verdict in VERDICTS} for paper, _ in counts}


def verdict_counts(rows: Iterable[Judgement]) -> dict[str, int]:
    """How many claims have each verdict, over all papers; zeros included."""
    counts = Counter(row.verdict for row in rows)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def summary_text(rows: Iterable[Judgement]) -> str:
    """`summary` as a table with sums. Settings are counted apart: a run that had one has not reproduced a result."""
    rows = list(rows)
    settings = [row for row in rows if row.kind == "setting"]
    sums = {"all": verdict_counts(rows), "settings among them": verdict_counts(settings)}
    lines = [[name, *counts.values(), sum(counts.values())] for name, counts in (summary(rows) | sums).items()]
    return tabulate([["", *VERDICTS, "all"], *lines], tablefmt="plain", stralign="right", colalign=("left",))


def as_text(rows: Iterable[Judgement]) -> str:
    """The ledger for reading: a line a claim, and below it the working where something was worked out."""
    lines = []
    for row in rows:
        line = f"{row.verdict:<14}  {row.paper:<11}  {row.place}"
        if row.unit != RELATION:
            line += f": {readable(row.value)} {row.unit}".rstrip()
            line += "" if row.ours is None else f"; here {readable(row.ours)}"
        lines.append(line)
        if row.ours is not None:
            lines.append(f"{'':<16}{row.working}")
    return "\n".join(lines)


def readable(value: float) -> str:
    """A number with thousands set apart."""
    return f"{value:,}" if isinstance(value, int) else show(value)


class _Judge:
    """Gives a paper's claims their verdicts; a class because all of them share counts and stored runs."""

    def __init__(self, paper: str) -> None:
        self.paper, self.claims, self.known = paper, load_claims(paper), load_paper(paper)
        self.results = Results(paper)

    def ledger(self) -> list[Judgement]:
        judgements = []
        for claim in claims_of(self.paper):
            try:
                judgements.append(self._judge(claim))
            except WorkingError as error:
                raise mistake(claim.at, f"{claim.place}: {error}", claims_source(self.paper)) from None
        return judgements

    def _judge(self, claim: Claim) -> Judgement:
        if claim.working is None:
            return _judged(claim, NOT_RUN, None, ["nothing here can work this out"])
        measured = self._measured(claim.working)
        evidence = self._evidence(claim, measured) if measured else None
        if measured and evidence is None:
            there = self.results.describe({task for (task, _), _ in measured})
            lacking = "nothing stored is near enough to the paper's data, sizes, method, length or machine"
            return _judged(claim, NOT_RUN, None, [lacking + (f"; there is: {there}" if there else ", or at all")])
        known = self._numbers(claim.working, evidence)
        ours, equation = _equation(claim.working, known)
        also = [f"{what}: {_equation(one, self._numbers(one, evidence))[1]}" for what, one in claim.also.items()]
        if evidence is None:
            holds, remark = _follows(claim, ours, claim.working.spread(known))
            return _judged(claim, FOLLOWS if holds else CONTRADICTED, ours, [equation + remark, *also])
        if claim.unit == RELATION and self._may_turn(claim.working, known, evidence):
            near = f"more seeds would have to decide: {equation}, by less than chance may move these numbers"
            return _judged(claim, NOT_RUN, ours, [near], evidence)
        holds, remark = _reproduces(claim, ours)
        return _judged(claim, REPRODUCED if holds else NOT_REPRODUCED, ours, [equation + remark, *also], evidence)

    def _evidence(self, claim: Claim, measured: list[tuple[Row, str]]) -> Evidence | None:
        """The runs that decide a claim; None where there are none, or these lack one of the numbers."""
        cost = claim.kind == "cost"
        absolute = cost and claim.unit not in (RELATION, "times")
        evidence = self.results.evidence([row for row, _ in measured], one_machine=cost, papers_machine=absolute)
        if evidence is None or None in [evidence.quantity(row, name) for row, name in measured]:
            return None
        return evidence

    def _may_turn(self, working: Working, known: Known, evidence: Evidence) -> bool:
        """Whether a relation is another if measured numbers move by half of `TOLERANCE`, over the root of the seeds.

        Two numbers that are compared may then come nearer by as much as one is allowed to be off. Quantities without a
        tolerance, and ratios of them, stay where they are.
        """
        rooms = {}
        for name in working.names:
            first, task, *rest = name.split(".", 3)
            column = self.known.tasks[task].columns.get(rest[-1]) if first == OURS else None
            if column and column.quantity in TOLERANCE:
                seeds = len(evidence.by_row[task, self._variant(task, rest[0])])
                rooms[name] = _tolerance(column.quantity, known[name].value) / 2 / math.sqrt(seeds)
        found = set()
        for signs in product((-1, 1), repeat=len(rooms)):
            steps = zip(rooms.items(), signs, strict=True)
            found.add(working.value(known | {name: Printed(known[name].value + s * room) for (name, room), s in steps}))
        return len(found) > 1

    # ---- names

    def _measured(self, working: Working) -> list[tuple[Row, str]]:
        """The quantities of runs that a working needs, each with its row."""
        found = []
        for name in working.names:
            first, *keys = name.split(".", 3)
            if first == OURS and len(keys) == 3:
                task, row = keys[0], self._variant(keys[0], keys[1])
                if not is_quantity(self.known.tasks[task], task, row, keys[2]):
                    raise WorkingError(f"{name!r}: no run measures this")
                found.append(((task, row), keys[2]))
        return found

    def _numbers(self, working: Working, evidence: Evidence | None) -> dict[str, Printed | tuple[Printed, ...]]:
        return {name: self._number(name, evidence) for name in working.names}

    def _number(self, name: str, evidence: Evidence | None) -> Printed | tuple[Printed, ...]:
        match name.split("."):
            case [first, task, row, *rest] if first == OURS and rest and evidence:
                found = evidence.quantity((task, self._variant(task, row)), ".".join(rest))
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
        return {
            name: {
                identifier(row): {column: Printed(value, table.step(column)) for column, value in numbers.items()}
                for row, numbers in table.numbers().items()
            }
            for name, table in (self.known.tasks | self.known.tables).items()
        }

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
        own = self.claims.models.get(model)
        name = own.task if own else model
        variant, task = self._variant(name, row), self.known.tasks[name]
        if own is None and task.sizes is None:
            raise WorkingError(f"{PARAMS}.{model}: the sizes of {name} are not known; give them under 'models'")
        variant, sizes, data = task.variants[variant], {}, {}
        if own is None or own.kind is None:  # of the task's own kind: its sizes, as far as they are not replaced
            sizes = sizes_of(task, variant, self.claims.scale.get(name))
            data = task.sizes.data if task.sizes else {}
        if own:
            sizes, data = {**sizes, **own.model, **variant.model}, {**data, **own.data}
        vocabulary = own.vocabulary if own else task.sizes.vocabulary
        return count((own and own.kind) or task.kind or name, variant.method, sizes, vocabulary, data)


def _judged(
    claim: Claim, verdict: str, ours: float | bool | None, working: list[str], evidence: Evidence | None = None
) -> Judgement:
    text = "; ".join([*working, evidence.scale] if evidence else working)
    return Judgement(
        paper=claim.paper,
        place=claim.place,
        value=_plain(claim.value),
        unit=claim.unit,
        kind=claim.kind,
        verdict=verdict,
        ours=None if ours is None else _plain(ours),
        working=f"{text} ({claim.note})" if claim.note else text,
        profile=evidence.profile if evidence else None,
        runs=evidence.runs if evidence else (),
    )


def _follows(claim: Claim, ours: float | bool, spread: float) -> tuple[bool, str]:
    """Whether what was recomputed bears the claim out, and a remark on it."""
    if claim.value is True or isinstance(ours, bool):
        return _relation(claim, ours), ""
    if claim.sign not in ("=", "about"):
        return _compares(claim, ours)
    # "About 4 %" may have been rounded up or down, or cut off: one unit of the last digit instead of a half.
    off, room = abs(ours - claim.value), claim.step * (1.0 if claim.sign == "about" else 0.5) + _slack(claim)
    if room < off <= room + spread:
        return True, ", which is the claim within the rounding of the numbers it is made of"
    return off <= room, ""


def _reproduces(claim: Claim, ours: float | bool) -> tuple[bool, str]:
    """Whether what was measured bears the claim out, and within what tolerance."""
    if claim.value is True or isinstance(ours, bool):
        return _relation(claim, ours), ""
    off = abs(ours - claim.value)
    if claim.kind == "setting":
        return off <= _slack(claim), ""
    if claim.sign not in ("=", "about"):
        return _compares(claim, ours)
    if claim.unit not in TOLERANCE:
        raise WorkingError(f"the unit {claim.unit!r} has no tolerance{nearest(claim.unit, list(TOLERANCE))}")
    room = _tolerance(claim.unit, claim.value)
    return off <= room, f" (tolerance {show(room)})"


def _slack(claim: Claim) -> float:
    """What floating point may be off by."""
    return 1e-9 * max(1.0, abs(claim.value))


def _tolerance(unit: str, value: float) -> float:
    """How far a measured number may lie from this one, by `TOLERANCE`."""
    absolute, share = TOLERANCE[unit]
    return absolute + share * abs(value)


def _relation(claim: Claim, ours: float | bool) -> bool:
    if claim.value is not True or not isinstance(ours, bool):
        raise WorkingError("a relation has the value true and a working that compares, and nothing else has")
    return ours


def _compares(claim: Claim, ours: float) -> tuple[bool, str]:
    holds = COMPARISONS[claim.sign](ours, claim.value)
    return holds, f", {'' if holds else 'not '}{claim.sign} {show(claim.value)}"


def _equation(working: Working, known: Known) -> tuple[float | bool, str]:
    """The result of a working, and how it comes out, with numbers filled in."""
    value, filled = working.value(known), working.filled(known)
    equals = "is" if isinstance(value, bool) else "="
    return value, filled if filled == show(value) else f"{filled} {equals} {show(value)}"


def _plain(value: float | bool) -> float | int | bool:
    """Whole numbers as such."""
    return value if isinstance(value, bool) or value != int(value) else int(value)
