"""The ledger of claims: what the papers' own numbers contradict, parameter counts, and what stored runs measured.

No verdict is written down anywhere: counts and expressions are computed, and stored runs decide where they may
(`evidence.py`). A table's scores stand in the table beside ours, and are no claims here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from headdiv.companion import paths
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.claims.evidence import Results
from headdiv.companion.experiments.claims.records import (
    CLAIMS,
    Computed,
    Contradiction,
    Counts,
    Grade,
    Holds,
    Relation,
    load_claims,
)
from headdiv.companion.experiments.papers import BASELINE, PaperTask, load_paper, paper_names
from headdiv.companion.experiments.parameters import count
from headdiv.core.errors import DataError

FOLLOWS, CONTRADICTED = "follows", "contradicted"
CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
NOT_RUN, NOT_COMPARABLE = "not run here", "not comparable"
VERDICTS = {
    FOLLOWS: "computed again from the architecture, it comes out",
    CONTRADICTED: "computed again, it does not come out; the cause is named, and how much depends on it",
    CONFIRMED: "measured at the paper's own scale: all of the 95 % interval is as the paper says",
    REFUTED: "measured at the paper's own scale: none of the 95 % interval is as the paper says",
    UNDECIDED: "measured at the paper's own scale, and left open by the interval over seeds (one seed has none)",
    NOT_COMPARABLE: "measured, but otherwise than in the paper, so that it decides nothing",
    NOT_RUN: "nothing stored is near enough to the paper's data, sizes, method and length",
}
RELATION = "relation"  # the unit of what is true or false

# What a variant's score minus another's may be for a relation to hold: from, to. Equal scores are neither higher nor
# lower.
ACCEPTED: dict[Holds, tuple[float, float]] = {
    "higher": (1e-12, math.inf),
    "lower": (-math.inf, -1e-12),
    "not higher": (-math.inf, 0.0),
    "within half a point": (-0.5, 0.5),
}


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict and the evidence for it.

    Attributes:
        place: where it stands in the paper, and what it is.
        value: the paper's number; True for a relation.
        ours: the same computed or measured here; None where it could not be.
        working: how, with its numbers, tolerance and scale; or why not.
        cause: of a contradiction; one may contradict many claims.
        grade: how much depends on the contradiction, a key of `headdiv.companion.experiments.claims.records.GRADES`.
    """

    paper: str
    place: str
    value: float | bool
    unit: str
    verdict: str
    ours: float | bool | None
    working: str
    cause: str | None = None
    grade: Grade | None = None


def ledger(paper: str | None = None) -> list[Judgement]:
    """Every claim with its verdict; of all papers that have claims where none is named.

    A stored run that cannot be read decides nothing: a warning names its file.

    Raises:
        ConfigError: no such paper.
        DataError: this is no project.
    """
    if not any((paths.home() / name).is_dir() for name in ("results", "config")):
        raise DataError(
            f"{paths.home()}: no project (neither results/ nor config/), so that no claim can be held against "
            "stored runs; change to a project's folder, or name it in HEADDIV_HOME"
        )
    return [row for name in ([paper] if paper else paper_names(CLAIMS)) for row in _Judge(name).ledger()]


def summary(rows: Iterable[Judgement]) -> dict[str, dict[str, int]]:
    """By paper, how many claims have each verdict; zeros included."""
    counts = Counter((row.paper, row.verdict) for row in rows)
    return {paper: {verdict: counts[paper, verdict] for verdict in VERDICTS} for paper, _ in counts}


class _Judge:
    """Gives a paper's claims their verdicts; a class because all of them share its files and stored runs."""

    def __init__(self, paper: str) -> None:
        self.paper, self.claims, self.tasks = paper, load_claims(paper), load_paper(paper).tasks
        self.results = Results(paper)

    def ledger(self) -> Iterator[Judgement]:
        """All claims of the paper: tables' numbers, then what its text says."""
        for name, task in self.tasks.items():
            if task.sizes or name in self.claims.counts:
                yield from self._counts(name, task)
        for contradiction in self.claims.contradictions:
            for claim in contradiction.claims:
                yield self._computed(contradiction, claim)
        for name, relations in self.claims.relations.items():
            for relation in relations:
                yield self._relation(name, relation)

    # ---- what is computed

    def _counts(self, name: str, task: PaperTask) -> Iterator[Judgement]:
        """The parameter counts that a task's table prints."""
        printed_to = task.sizes.printed_to if task.sizes else 1
        for variant, row in task.variants.items():
            if (printed := row.reported.get("parameters")) is not None:
                ours, why = _parameters(self.paper, name, variant), self.claims.counts.get(name)
                follows = abs(ours - printed) <= printed_to / 2
                place, working = f"{task.table}, {task.label(variant)}, parameters", f"parameters counted: {ours:,}"
                yield self._recomputed(place, int(printed), "parameters", ours, follows, working, why)

    def _computed(self, contradiction: Contradiction, claim: Computed) -> Judgement:
        ours = self._evaluated(claim.computed)
        if claim.printed:
            number, _, unit = claim.printed.partition(" ")
            value: float | bool = float(number) if "." in number else int(number)
            last_digit = 10.0 ** -len(number.partition(".")[2])
            follows = abs(ours - value) <= last_digit / 2 + 1e-9 * abs(value)
        else:
            value, unit, follows = True, RELATION, bool(ours)
        shown = [f"{claim.computed}: {show(ours)}"]
        shown += [f"{what}: {show(self._evaluated(expression))}" for what, expression in claim.also.items()]
        place = f"{claim.place}, {claim.says}"
        return self._recomputed(place, value, unit, ours, follows, "; ".join(shown), contradiction)

    def _recomputed(
        self,
        place: str,
        value: float | bool,
        unit: str,
        ours: float | bool,
        follows: bool,
        working: str,
        why: Counts | Contradiction | None,
    ) -> Judgement:
        if follows or why is None:
            return Judgement(self.paper, place, value, unit, FOLLOWS if follows else CONTRADICTED, ours, working)
        return Judgement(self.paper, place, value, unit, CONTRADICTED, ours, working, why.cause, why.grade)

    def _evaluated(self, expression: str) -> float | bool:
        """What an expression of a claim gives, see `Computed`: it stands in a file of this package."""
        names = {"__builtins__": {}, "count": partial(_parameters, self.paper), "examples": _examples}
        return eval(expression, names)

    # ---- what runs measured

    def _relation(self, name: str, relation: Relation) -> Judgement:
        score = relation.score
        other_task, _, other_variant = relation.against.rpartition("/")
        variant, other = (name, relation.variant), (other_task or name, other_variant)
        label, other_label = (self.tasks[task].label(row) for task, row in (variant, other))
        columns = self.tasks[name].columns
        what = columns[score].label if score in columns else score.replace("_", " ")
        than = "of" if relation.holds == "within half a point" else "than"
        place = f"{relation.place}, {what} of {label} is {relation.holds} {than} that of {other_label}"
        if (measured := self.results.compare(variant, other, score)) is None:
            lacking = "nothing stored has the paper's data, sizes, method and length"
            return Judgement(self.paper, place, True, RELATION, NOT_RUN, None, lacking)
        difference, (low, high) = measured.difference, ACCEPTED[relation.holds]
        verdict = decide(difference, low, high)
        working = " against ".join(map(show, measured.means)) + f", difference {_shown(difference)}; {measured.scale}"
        if note := self.claims.not_comparable.get(score):
            verdict, working = NOT_COMPARABLE, f"{working}; {note}"
        return Judgement(self.paper, place, True, RELATION, verdict, low <= difference.mean <= high, working)


def decide(measured: Difference, low: float, high: float) -> str:
    """The verdict on what runs measured, where a claim holds from ``low`` to ``high``; one seed has no interval."""
    if low <= measured.low and measured.high <= high:
        return CONFIRMED
    if measured.high < low or measured.low > high:
        return REFUTED
    return UNDECIDED


def show(value: float) -> str:
    """A number in a text: whole ones in full, with thousands set apart, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{int(value):,}" if value == int(value) else f"{value:.6g}"


@cache
def _parameters(paper: str, name: str, variant: str = BASELINE, vocabulary: tuple[int, ...] = (), **sizes: int) -> int:
    """Parameters of a row at its task's sizes, but for those given."""
    task = load_paper(paper).tasks[name]
    row, known = task.variants[variant], task.sizes or load_claims(paper).counts[name]
    model = {**known.model, **row.model, **sizes}
    data = task.sizes.data if task.sizes else {}
    return count(task.kind or name, row.method, model, vocabulary or known.vocabulary, data)


def _examples(data: str, split: str) -> int:
    """How many examples a split of a public data set has."""
    return load_registry()[data].splits[split].count


def _shown(difference: Difference) -> str:
    if difference.count < 2:
        return f"{show(difference.mean)} of one seed, which has no interval"
    ends, seeds = f"{difference.low:.4g} to {difference.high:.4g}", f"{difference.count} seeds"
    return f"{show(difference.mean)} ({ends} over {seeds}, residual degrees of freedom: {difference.freedom})"
