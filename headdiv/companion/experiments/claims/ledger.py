"""The ledger of claims: what the papers' own numbers contradict, parameter counts, and what stored runs measured.

No verdict is written down anywhere: counts and expressions are computed, and stored runs decide where they may
(`evidence.py`). A table's score that no run has judged stands in the table beside ours, and is no claim here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from headdiv.companion import paths
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.claims.evidence import Evidence, Results
from headdiv.companion.experiments.claims.records import (
    Computed,
    Contradiction,
    Counts,
    Grade,
    Relation,
    load_claims,
    papers_with_claims,
)
from headdiv.companion.experiments.claims.verdicts import (
    ABOVE,
    ACCEPTED,
    CONFIRMED,
    CONTRADICTED,
    FOLLOWS,
    NOT_COMPARABLE,
    NOT_RUN,
    REFUTED,
    TOLERANCE,
    UNDECIDED,
    VERDICTS,
    decide,
    tolerance,
)
from headdiv.companion.experiments.papers import BASELINE, PaperTask, load_paper
from headdiv.companion.experiments.parameters import count
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.settings import nearest

RELATION = "relation"  # the unit of what is true or false


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

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def ledger(paper: str | None = None, verdict: str | None = None) -> list[Judgement]:
    """Every claim with its verdict; of all papers that have claims and of all verdicts where none is named.

    A stored run that cannot be read decides nothing: a warning names its file.

    Raises:
        ConfigError: no such paper or verdict.
        DataError: this is no project.
    """
    if not any((paths.home() / name).is_dir() for name in ("results", "config")):
        raise DataError(
            f"{paths.home()}: no project (neither results/ nor config/), so that no claim can be held against "
            "stored runs; change to a project's folder, or name it in HEADDIV_HOME"
        )
    if verdict is not None and verdict not in VERDICTS:
        raise ConfigError(f"verdict {verdict!r} is not known{nearest(verdict, list(VERDICTS))}")
    judgements = [row for name in ([paper] if paper else papers_with_claims()) for row in _Judge(name).ledger()]
    return [judgement for judgement in judgements if verdict in (None, judgement.verdict)]


def summary(rows: Iterable[Judgement]) -> dict[str, dict[str, int]]:
    """By paper, how many claims have each verdict; zeros included."""
    counts = Counter((row.paper, row.verdict) for row in rows)
    return {paper: {verdict: counts[paper, verdict] for verdict in VERDICTS} for paper, _ in counts}


class _Judge:
    """Gives a paper's claims their verdicts; a class because all of them share its files and stored runs."""

    def __init__(self, paper: str) -> None:
        self.paper, self.claims, self.tasks = paper, load_claims(paper), load_paper(paper).tasks
        self.results = Results(paper)

    def ledger(self) -> list[Judgement]:
        """All claims of the paper: tables' numbers, then what its text says."""
        rows: list[Judgement] = []
        for name, task in self.tasks.items():
            rows += [*self._counts(name, task), *self._scores(name, task)]
        for contradiction in self.claims.contradictions:
            rows += [self._computed(contradiction, claim) for claim in contradiction.claims]
        for name, relations in self.claims.relations.items():
            rows += [self._relation(name, relation) for relation in relations]
        return rows

    # ---- what is computed

    def _counts(self, name: str, task: PaperTask) -> Iterator[Judgement]:
        """The parameter counts that a task's table prints, where the sizes that they belong to are known."""
        known = self.claims.counts.get(name)
        if task.sizes is None and known is None:
            return
        for variant, numbers in task.numbers().items():
            if (printed := numbers.get("parameters")) is None:
                continue
            ours = self._parameters(name, variant)
            follows = abs(ours - printed) <= task.step("parameters") / 2
            yield Judgement(
                self.paper,
                f"{task.table}, {task.label(variant)}, parameters",
                int(printed),
                "parameters",
                FOLLOWS if follows else CONTRADICTED,
                ours,
                f"parameters counted: {ours:,}",
                *_why(None if follows else known),
            )

    def _computed(self, contradiction: Contradiction, claim: Computed) -> Judgement:
        value, unit, step = _printed(claim.printed)
        ours = self._evaluated(claim.computed)
        follows = ours if isinstance(ours, bool) else abs(ours - value) <= step / 2 + 1e-9 * abs(value)
        shown = [f"{claim.computed}: {show(ours)}"]
        shown += [f"{what}: {show(self._evaluated(expression))}" for what, expression in claim.also.items()]
        return Judgement(
            self.paper,
            f"{claim.place}, {claim.says}",
            value,
            unit,
            FOLLOWS if follows else CONTRADICTED,
            ours,
            "; ".join(shown),
            *_why(None if follows else contradiction),
        )

    def _evaluated(self, expression: str) -> float | bool:
        """What an expression of a claim gives, see `Computed`: it stands in a file of this package."""
        names = {"__builtins__": {}, "count": self._parameters, "examples": _examples}
        return eval(expression, names)

    def _parameters(self, name: str, variant: str = BASELINE, vocabulary: list[int] | None = None, **sizes: int) -> int:
        """Parameters of a row at its task's sizes, but for those given."""
        task, known = self.tasks[name], self.claims.counts.get(name)
        row, papers = task.variants[variant], task.sizes
        model = papers.model if papers else known.model
        vocabulary = vocabulary or (papers.vocabulary if papers else known.vocabulary)
        data = papers.data if papers else {}
        return count(task.kind or name, row.method, {**model, **row.model, **sizes}, vocabulary, data)

    # ---- what runs measured

    def _scores(self, name: str, task: PaperTask) -> Iterator[Judgement]:
        """The scores of a task's table that stored runs have judged."""
        numbers = task.numbers()
        for variant, reported in numbers.items():
            evidence = self.results.evidence((name, variant)) if name in self.claims.scale else None
            if evidence is None:
                continue
            for score, printed in reported.items():
                column, values = task.columns[score], evidence.values((name, variant), score)
                if column.better is None or column.quantity not in TOLERANCE or not values:
                    continue
                measured, room = interval(values), tolerance(printed, column.quantity)
                verdict, working = decide(measured, printed - room, printed + room), f"tolerance {show(room)}"
                if verdict == REFUTED and column.better == "higher" and measured.mean > printed:
                    verdict = ABOVE
                # A run without the paper's effect may lie within the tolerance as well.
                if verdict == CONFIRMED and room >= (effect := _effect(numbers, variant, score)) - 1e-9:
                    verdict, working = UNDECIDED, f"{working}, not smaller than the paper's own effect, {show(effect)}"
                verdict, working = self._with_scale(score, verdict, f"{_shown(measured)}, {working}", evidence)
                place = f"{task.table}, {task.label(variant)}, {column.label}"
                yield Judgement(self.paper, place, printed, column.quantity, verdict, measured.mean, working)

    def _relation(self, name: str, relation: Relation) -> Judgement:
        task, score = self.tasks[name], relation.score
        other_task, _, other_variant = relation.against.rpartition("/")
        variant, other = (name, relation.variant), (other_task or name, other_variant)
        what = task.columns[score].label if score in task.columns else score.replace("_", " ")
        than = "of" if relation.holds == "within half a point" else "than"
        label, other_label = task.label(relation.variant), self.tasks[other[0]].label(other_variant)
        place = f"{relation.place}, {what} of {label} is {relation.holds} {than} that of {other_label}"
        evidence = self.results.evidence(variant, other)
        values = [evidence.values(row, score) for row in (variant, other)] if evidence else []
        if evidence is None or not all(len(found) == evidence.seeds for found in values):
            lacking = "nothing stored has the paper's data, sizes, method and length"
            return Judgement(self.paper, place, True, RELATION, NOT_RUN, None, lacking)
        difference, (low, high) = evidence.difference(variant, other, score), ACCEPTED[relation.holds]
        working = f"{show(mean(values[0]))} against {show(mean(values[1]))}, difference {_shown(difference)}"
        verdict, working = self._with_scale(score, decide(difference, low, high), working, evidence)
        return Judgement(self.paper, place, True, RELATION, verdict, low <= difference.mean <= high, working)

    def _with_scale(self, score: str, verdict: str, working: str, evidence: Evidence) -> tuple[str, str]:
        """A verdict and its working with the runs' scale; of a score that we measure otherwise, with how."""
        if note := self.claims.not_comparable.get(score):
            return NOT_COMPARABLE, f"{working}; {evidence.scale}; {note}"
        return verdict, f"{working}; {evidence.scale}"


def show(value: float) -> str:
    """A number in a text: whole ones in full, with thousands set apart, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{int(value):,}" if value == int(value) else f"{value:.6g}"


def _examples(data: str, split: str) -> int:
    """How many examples a split of a public data set has."""
    return load_registry()[data].splits[split].count


def _printed(text: str) -> tuple[float | bool, str, float]:
    """A number as the paper prints it: its value, its unit, and one unit of its last digit; "": a truth."""
    if not text:
        return True, RELATION, 0.0
    number, _, unit = text.partition(" ")
    return float(number) if "." in number else int(number), unit, 10.0 ** -len(number.partition(".")[2])


def _shown(measured: Interval) -> str:
    if measured.count < 2:
        return f"{show(measured.mean)} of one seed, which has no interval"
    freedom = f", residual degrees of freedom: {measured.freedom}" if isinstance(measured, Difference) else ""
    return f"{show(measured.mean)} ({measured.low:.4g} to {measured.high:.4g} over {measured.count} seeds{freedom})"


def _why(known: Counts | Contradiction | None) -> tuple[str | None, Grade | None]:
    return (known.cause, known.grade) if known else (None, None)


def _effect(numbers: dict[str, dict[str, float]], variant: str, score: str) -> float:
    """How far the paper's score is from its baseline's; of the baseline, the most that another row is from it."""
    scores = {name: reported[score] for name, reported in numbers.items() if score in reported}
    rows = [variant] if variant != BASELINE else [name for name in scores if name != BASELINE]
    return max(abs(scores[row] - scores[BASELINE]) for row in rows)
