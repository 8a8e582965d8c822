"""The ledger of claims: the verdict on every number that the five papers report.

A claim whose working needs the paper's own numbers, counts of parameters or sizes of data sets is computed; one whose
working needs ``ours.…`` is measured where stored runs may decide it (`evidence.py`). `verdicts.py` has the rules and
says what each verdict means. No verdict is written down anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headdiv.analysis.statistics import Interval, coefficient_of_variation, interval
from headdiv.companion import paths
from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.claims.arithmetic import Known, Printed, Working, WorkingError, show
from headdiv.companion.experiments.claims.evidence import Evidence, Results, Row, is_quantity
from headdiv.companion.experiments.claims.files import (
    RELATION,
    Claim,
    claims_of,
    claims_source,
    identifier,
    load_claims,
    papers_with_claims,
    sizes_of,
)
from headdiv.companion.experiments.claims.verdicts import (
    CONTRADICTED,
    DIFFERS,
    NOT_RUN,
    REFUTED,
    VERDICTS,
    computed,
    measured,
)
from headdiv.companion.experiments.papers import load_paper
from headdiv.companion.experiments.parameters import count
from headdiv.companion.experiments.run_result import RunResult
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.settings import config_error, nearest

OURS, PARAMS, DATA, ALL = "ours", "params", "data", "all"


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict and the evidence for it.

    Attributes:
        value: the paper's number; True for a relation.
        ours: the same worked out here; None where nothing could be.
        working: how, with numbers filled in, tolerance and scale; or why not.
        cause: of a contradiction, if it is known; one may contradict many claims.
        grade: how much depends on the contradiction, a key of `headdiv.companion.experiments.claims.files.GRADES`.
        cv: CV* (`coefficient_of_variation`) of the paper's number and each seed's, in percent; None of one seed.
        profile: of the ``runs`` that it was measured by; None where it was not measured.
    """

    paper: str
    place: str
    value: float | bool
    unit: str
    kind: str
    verdict: str
    ours: float | bool | None
    working: str
    cause: str | None = None
    grade: str | None = None
    cv: float | None = None
    profile: str | None = None
    runs: tuple[RunResult, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON has it: all but the runs."""
        return {name: value for name, value in vars(self).items() if name not in ("profile", "runs")}


def ledger(paper: str | None = None, verdict: str | None = None) -> list[Judgement]:
    """Every claim with its verdict; of all papers that have claims and of all verdicts where none is named.

    A stored run that cannot be read decides nothing: a warning names its file.

    Raises:
        ConfigError: no such paper or verdict, or a working names what is not there.
        DataError: this is no project.
    """
    if not any((paths.home() / name).is_dir() for name in ("results", "config")):
        raise DataError(
            f"{paths.home()}: no project (neither results/ nor config/), so that no claim can be held against "
            "stored runs; change to a project's folder, or name it in HEADDIV_HOME"
        )
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
                raise config_error(claim.at, f"{claim.place}: {error}", claims_source(self.paper)) from None
        return judgements

    def _judge(self, claim: Claim) -> Judgement:
        if claim.working is None:
            return _judged(claim, NOT_RUN, None, ["nothing here can work this out"])
        wanted = self._measured(claim.working)
        evidence = self._evidence(claim, wanted) if wanted else None
        if wanted and evidence is None:
            there = self.results.describe({task for (task, _), _ in wanted.values()})
            lacking = "nothing stored is near enough to the paper's data, sizes, method, length or machine"
            return _judged(claim, NOT_RUN, None, [lacking + (f"; there is: {there}" if there else ", or at all")])
        known = self._numbers(claim.working, evidence)
        ours, equation = _equation(claim.working, known)
        also = [f"{what}: {_equation(one, self._numbers(one, evidence))[1]}" for what, one in claim.also.items()]
        if evidence is None:
            verdict, remark = computed(claim, ours, claim.working.spread(known))
            return _judged(claim, verdict, ours, [equation + remark, *also])
        by_seed = [self._numbers(claim.working, evidence, seed) for seed in range(evidence.seeds)]
        values = [claim.working.value(numbers) for numbers in by_seed]
        relation = claim.unit == RELATION
        intervals = self._margins(claim.working, known, wanted, evidence) if relation else [interval(values)]
        verdict, remark = measured(claim, values, intervals, evidence.whole)
        cv = None
        if claim.kind == "score" and not relation and len(values) > 1:
            cv = coefficient_of_variation([claim.value, *values])
            also.append(f"CV* of the paper's and ours {cv:.2g} %")
        if verdict in (REFUTED, DIFFERS):
            names = {name for _, name in wanted.values()}
            also += [note for name, note in self.claims.notes.items() if name in names]
        return _judged(claim, verdict, ours, [equation + remark, *also], evidence, cv)

    def _margins(
        self, working: Working, known: Known, measured: dict[str, tuple[Row, str]], evidence: Evidence
    ) -> list[Interval]:
        """The margin by which each comparison of a relation holds, with its interval by a model of the whole table."""
        found = []
        for margin, slopes in zip(working.margins(known), working.slopes(known, measured), strict=True):
            quantities = {measured[name][1] for name in slopes}
            if len(quantities) != 1 or abs(sum(slopes.values())) > 1e-5:
                raise WorkingError(f"{working.text!r}: expected rows that are compared with each other in one quantity")
            weights = {measured[name][0]: slope for name, slope in slopes.items()}
            found.append(replace(evidence.difference(weights, *quantities), mean=margin))
        return found

    def _evidence(self, claim: Claim, measured: dict[str, tuple[Row, str]]) -> Evidence | None:
        """The runs that decide a claim; None where there are none, or these lack one of the numbers."""
        cost = claim.kind == "cost"
        absolute = cost and claim.unit not in (RELATION, "times")
        rows = [row for row, _ in measured.values()]
        evidence = self.results.evidence(rows, one_machine=cost, papers_machine=absolute)
        if evidence is None or None in [evidence.quantity(row, name) for row, name in measured.values()]:
            return None
        return evidence

    # ---- names

    def _measured(self, working: Working) -> dict[str, tuple[Row, str]]:
        """The quantities of runs that a working needs, each with its row, by their names in it."""
        found = {}
        for name in working.names:
            first, *keys = name.split(".", 3)
            if first == OURS and len(keys) == 3:
                task, row = keys[0], self._variant(keys[0], keys[1])
                if not is_quantity(self.known.tasks[task], task, row, keys[2]):
                    raise WorkingError(f"{name!r}: no run measures this")
                found[name] = (task, row), keys[2]
        return found

    def _numbers(
        self, working: Working, evidence: Evidence | None, seed: int | None = None
    ) -> dict[str, Printed | tuple[Printed, ...]]:
        """The numbers of a working; those that runs measured of one seed (its position), or means over all."""
        return {name: self._number(name, evidence, seed) for name in working.names}

    def _number(self, name: str, evidence: Evidence | None, seed: int | None) -> Printed | tuple[Printed, ...]:
        match name.split("."):
            case [first, task, row, *rest] if first == OURS and rest and evidence:
                found = evidence.quantity((task, self._variant(task, row)), ".".join(rest), seed)
                if found is not None:
                    return Printed(found)
            case [first, model, row] if first == PARAMS:
                return Printed(self._count(model, row))
            case [first, _, _] if first == DATA:
                if name not in self._examples:
                    raise WorkingError(f"{name!r} is not known{nearest(name, list(self._examples))}")
                return Printed(self._examples[name])
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

    @cached_property
    def _examples(self) -> dict[str, int]:
        """By ``data.<set>.<split>``."""
        sets = load_registry().items()
        return {f"{DATA}.{name}.{part}": split.count for name, entry in sets for part, split in entry.splits.items()}

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
    claim: Claim,
    verdict: str,
    ours: float | bool | None,
    working: list[str],
    evidence: Evidence | None = None,
    cv: float | None = None,
) -> Judgement:
    cause = claim.cause if verdict == CONTRADICTED else None
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
        cause=cause.text if cause else None,
        grade=cause.grade if cause else None,
        cv=cv,
        profile=evidence.profile if evidence else None,
        runs=evidence.runs if evidence else (),
    )


def _equation(working: Working, known: Known) -> tuple[float | bool, str]:
    """The result of a working, and how it comes out, with numbers filled in."""
    value, filled = working.value(known), working.filled(known)
    equals = "is" if isinstance(value, bool) else "="
    return value, filled if filled == show(value) else f"{filled} {equals} {show(value)}"


def _plain(value: float | bool) -> float | int | bool:
    """Whole numbers as such."""
    return value if isinstance(value, bool) or value != int(value) else int(value)
