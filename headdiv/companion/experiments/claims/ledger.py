"""The ledger of claims: the verdict on every number that the five papers report.

A claim whose function takes the paper's own numbers, counts of parameters or sizes of data sets is computed; one whose
function takes what runs measured is decided by stored runs, where these may decide it (`evidence.py`). `verdicts.py`
has the rules and says what each verdict means. No verdict is written down anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from headdiv.companion import paths
from headdiv.companion.analysis.statistics import Interval, coefficient_of_variation, interval
from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.claims.calls import Call, ClaimError, Given, show
from headdiv.companion.experiments.claims.evidence import Evidence, Results, is_quantity
from headdiv.companion.experiments.claims.files import claims_of, load_claims, papers_with_claims, sizes_of
from headdiv.companion.experiments.claims.records import (
    RELATION,
    Claim,
    Computation,
    Counted,
    Examples,
    FromRuns,
    Grade,
    Number,
    Printed,
    WholeColumn,
)
from headdiv.companion.experiments.claims.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_RUN,
    VERDICTS,
    computed,
    measured,
)
from headdiv.companion.experiments.papers import Table, load_paper
from headdiv.companion.experiments.parameters import count
from headdiv.companion.experiments.run_result import RunResult
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.settings import nearest


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict and the evidence for it.

    Attributes:
        value: the paper's number; True for a relation.
        ours: the same computed or measured here; None where it could not be.
        working: how, with its numbers, tolerance and scale; or why not.
        what: what was computed, in words, with which ``working`` begins.
        cause: of a contradiction, if it is known; one may contradict many claims.
        grade: how much depends on the contradiction, a key of `headdiv.companion.experiments.claims.records.GRADES`.
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
    grade: Grade | None = None
    cv: float | None = None
    what: str = ""
    profile: str | None = None
    runs: tuple[RunResult, ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON has it: all but the runs."""
        return {name: value for name, value in vars(self).items() if name not in ("what", "profile", "runs")}


def ledger(paper: str | None = None, verdict: str | None = None) -> list[Judgement]:
    """Every claim with its verdict; of all papers that have claims and of all verdicts where none is named.

    A stored run that cannot be read decides nothing: a warning names its file.

    Raises:
        ConfigError: no such paper or verdict, or a claim names what is not there.
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


def words(key: str) -> str:
    """A key as words: ``test_2016_flickr`` -> "test 2016 flickr"."""
    return key.replace("_", " ")


class _Judge:
    """Gives a paper's claims their verdicts; a class because all of them share counts and stored runs."""

    def __init__(self, paper: str) -> None:
        self.paper, self.claims, self.known = paper, load_claims(paper), load_paper(paper)
        self.tables = self.known.tasks | self.known.tables
        self.results = Results(paper)

    def ledger(self) -> list[Judgement]:
        judgements = []
        for claim in claims_of(self.paper):
            try:
                judgements.append(self._judge(claim))
            except ClaimError as error:
                raise ConfigError(f"claims of {self.paper}: {claim.place}: {error}") from None
        return judgements

    def _judge(self, claim: Claim) -> Judgement:
        if claim.how is None:
            return self._judged(claim, NOT_RUN, None, ["nothing here can compute this"])
        wanted = self._measured(claim.how)
        evidence = self._evidence(claim, wanted) if wanted else None
        if wanted and evidence is None:
            there = self.results.describe({number.task for number in wanted})
            lacking = "nothing stored is near enough to the paper's data, sizes, method, length or machine"
            return self._judged(claim, NOT_RUN, None, [lacking + (f"; there is: {there}" if there else ", or at all")])
        call = self._call(claim.how, evidence)
        ours, text = call.value(), call.text()
        also = [f"{what}: {show(self._call(one, evidence).value())}" for what, one in claim.how.also.items()]
        if evidence is None:
            verdict, remark = computed(claim, ours, call.spread())
            return self._judged(claim, verdict, ours, [text + remark, *also], call.what)
        values = [self._call(claim.how, evidence, seed).value() for seed in range(evidence.seeds)]
        relation = claim.unit == RELATION
        intervals = self._margins(claim.how, call, evidence) if relation else [interval(values)]
        verdict, remark = measured(claim, values, intervals, evidence.whole)
        cv = None
        if claim.kind == "score" and not relation and len(values) > 1:
            cv = coefficient_of_variation([claim.value, *values])
            also.append(f"CV* of the paper's and ours {cv:.2g} %")
        quantities = {number.quantity for number in wanted}
        if notes := [note for name, note in self.claims.notes.items() if name in quantities]:
            verdict, also = NOT_COMPARABLE, [*also, *notes]
        return self._judged(claim, verdict, ours, [text + remark, *also], call.what, evidence, cv)

    def _margins(self, how: Computation, call: Call, evidence: Evidence) -> list[Interval]:
        """The margin by which each comparison of a relation holds, with its interval by a model of the whole table."""
        found, numbers = [], _flat(self._expanded(how))
        for margin, slopes in zip(call.margins(), call.slopes(), strict=True):
            weights, quantities = {}, set()
            for number, slope in zip(numbers, slopes, strict=True):
                if isinstance(number, FromRuns) and slope:
                    row = number.task, number.row
                    weights[row] = weights.get(row, 0.0) + slope
                    quantities.add(number.quantity)
            if len(quantities) != 1 or abs(sum(weights.values())) > 1e-5:
                raise ClaimError("expected rows that are compared with each other in one quantity")
            found.append(replace(evidence.difference(weights, *quantities), mean=margin))
        return found

    def _evidence(self, claim: Claim, wanted: list[FromRuns]) -> Evidence | None:
        """The runs that decide a claim; None where there are none, or these lack one of the numbers."""
        cost = claim.kind == "cost"
        absolute = cost and claim.unit not in (RELATION, "times")
        rows = [(number.task, number.row) for number in wanted]
        evidence = self.results.evidence(rows, one_machine=cost, papers_machine=absolute)
        if evidence is None or None in [evidence.quantity((one.task, one.row), one.quantity) for one in wanted]:
            return None
        return evidence

    # ---- numbers

    def _expanded(self, how: Computation) -> tuple[Number | tuple[Number, ...], ...]:
        """The arguments of a function, with every column as a list of its numbers."""

        def listed(one: Number | WholeColumn) -> tuple[Number, ...]:
            if not isinstance(one, WholeColumn):
                return (one,)
            rows = self._table(one.table).numbers()
            return tuple(Printed(one.table, row, one.column) for row, values in rows.items() if one.column in values)

        return tuple(
            tuple(number for one in given for number in listed(one))
            if isinstance(given, tuple)
            else listed(given)
            if isinstance(given, WholeColumn)
            else given
            for given in how.numbers
        )

    def _measured(self, how: Computation) -> list[FromRuns]:
        """The numbers that runs measure."""
        found = [number for number in _flat(self._expanded(how)) if isinstance(number, FromRuns)]
        for number in found:
            task = self.known.tasks.get(number.task)
            if task is None or number.row not in task.variants:
                raise ClaimError(f"{self.paper} has no row {number.row!r} in {number.task!r}")
            if not is_quantity(task, number.task, number.row, number.quantity):
                raise ClaimError(f"no run measures {number.quantity!r} in {number.task!r}")
        return found

    def _call(self, how: Computation, evidence: Evidence | None, seed: int | None = None) -> Call:
        """A function with its numbers; those that runs measured of one seed (its position), or means over all."""

        def given(number: Number) -> Given:
            return self._given(number, evidence, seed)

        arguments = (tuple(map(given, one)) if isinstance(one, tuple) else given(one) for one in self._expanded(how))
        return Call(how.function, tuple(arguments))

    def _given(self, number: Number, evidence: Evidence | None, seed: int | None) -> Given:
        match number:
            case FromRuns(task, row, quantity):
                column = self.known.tasks[task].columns.get(quantity)
                key = "Setting" if quantity.startswith("config.") else words(quantity).capitalize()
                value = evidence.quantity((task, row), quantity, seed) if evidence else None
                if value is None:
                    raise ClaimError(f"no stored run has {quantity!r}")
                return Given(
                    value, 0.0, f"{column.label if column else key} of our runs", self.known.tasks[task].label(row)
                )
            case Counted(model, row):
                return self._count(model, row)
            case Examples(data, split):
                sets = load_registry()
                if data not in sets or split not in sets[data].splits:
                    raise ClaimError(f"{data}.{split} is no split of a known data set")
                of = f"{sets[data].title.partition(',')[0]}, {words(split)}"
                return Given(sets[data].splits[split].count, 0.0, "Examples", of)
            case Printed(table, row, column):
                known = self._table(table)
                value = known.numbers().get(row, {}).get(column)
                if value is None:
                    raise ClaimError(f"{table!r} has no number in row {row!r}, column {column!r}")
                return Given(value, known.step(column), known.columns[column].label, known.label(row))
        return Given(number)

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise ClaimError(f"{self.paper} has no table {name!r}{nearest(name, list(self.tables))}")
        return self.tables[name]

    def _count(self, model: str, row: str) -> Given:
        """Parameters of a row at the sizes of a task, or of one of `PaperClaims.models`."""
        own = self.claims.models.get(model)
        task = self.known.tasks.get(name := own.task if own else model)
        vocabulary = own.vocabulary if own else task.sizes.vocabulary if task and task.sizes else None
        if task is None or row not in task.variants or vocabulary is None:
            raise ClaimError(f"parameters of {row!r} in {model!r} cannot be counted; its sizes are not known")
        variant, kind, sizes, data = task.variants[row], task.kind or name, {}, {}
        if own and own.kind:  # another kind of model, all of whose sizes are given
            kind = own.kind
        else:
            sizes = sizes_of(task, variant, self.claims.scale.get(name))
            data = task.sizes.data if task.sizes else {}
        if own:
            sizes = {**sizes, **own.model, **variant.model}
        value = count(kind, variant.method, sizes, vocabulary, data)
        return Given(value, 0.0, f"Parameters counted ({own.label})" if own else "Parameters counted", task.label(row))

    def _judged(
        self,
        claim: Claim,
        verdict: str,
        ours: float | bool | None,
        working: list[str],
        what: str = "",
        evidence: Evidence | None = None,
        cv: float | None = None,
    ) -> Judgement:
        cause = claim.how.cause if claim.how and verdict == CONTRADICTED else None
        note = f" ({claim.how.note})" if claim.how and claim.how.note else ""
        return Judgement(
            paper=self.paper,
            place=claim.place,
            value=_plain(claim.value),
            unit=claim.unit,
            kind=claim.kind,
            verdict=verdict,
            ours=None if ours is None else _plain(ours),
            working="; ".join([*working, evidence.scale] if evidence else working) + note,
            cause=cause.text if cause else None,
            grade=cause.grade if cause else None,
            cv=cv,
            what=what,
            profile=evidence.profile if evidence else None,
            runs=evidence.runs if evidence else (),
        )


def _flat(arguments: Iterable[Number | tuple[Number, ...]]) -> list[Number]:
    return [one for given in arguments for one in (given if isinstance(given, tuple) else (given,))]


def _plain(value: float | bool) -> float | int | bool:
    """Whole numbers as such."""
    return value if isinstance(value, bool) or value != int(value) else int(value)
