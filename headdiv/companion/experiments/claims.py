"""The ledger of claims: the parameter counts that papers print, and what their own numbers contradict.

``papers/claims/<paper>.yaml`` has what a paper says and the causes of contradictions. No verdict is written down
anywhere: counts and expressions are computed. Scores stand in the papers' tables beside ours, and are no claims here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Any, Literal

from pydantic import Field

from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.papers import BASELINE, FOLDER, load_paper, load_yaml, paper_names
from headdiv.companion.experiments.parameters import count
from headdiv.core.settings import Settings

CLAIMS = FOLDER / "claims"

Grade = Literal["result", "open", "slip"]
GRADES: dict[Grade, str] = {
    "result": "a result or a conclusion of the paper depends on it",
    "open": "it holds if the paper is read otherwise, or it cannot be said which of two numbers is wrong",
    "slip": "a misprint or a slip of the pen on which nothing else depends",
}


class Counts(Settings):
    """A task's parameter counts: the sizes that they belong to, and why some do not follow from the architecture."""

    cause: str
    grade: Grade
    model: dict[str, Any] = Field(default_factory=dict, description="where the paper's file has no sizes")
    vocabulary: list[int] = Field(default_factory=list)


class Computed(Settings):
    """What the paper says, and an expression of its own numbers that gives something else.

    Expressions are Python's, with ``count(task, vocabulary=…, <size>=…)``, the baseline's parameters at the paper's
    sizes but for those given, and ``examples(data, split)``, the size of a public data set's split.
    """

    place: str = Field(description="where it stands: §5.1, Direct-3")
    says: str
    printed: str = Field("", description="the number with its unit, 16.95 %; left out of what is true or false")
    computed: str
    also: dict[str, str] = Field(default_factory=dict, description="further expressions, which explain")


class Contradiction(Settings):
    """A cause, and all claims that do not come out because of it."""

    cause: str
    grade: Grade
    claims: list[Computed]


class PaperClaims(Settings):
    """What a paper claims beside its tables' scores."""

    counts: dict[str, Counts] = Field(default_factory=dict, description="by task")
    contradictions: list[Contradiction] = Field(default_factory=list)


@cache
def load_claims(paper: str) -> PaperClaims:
    """What a paper claims. Raises ConfigError: no claims of such a paper are known."""
    return load_yaml(PaperClaims, CLAIMS, paper)


@dataclass(frozen=True)
class Judgement:
    """A claim, and what comes out where it is computed again.

    Attributes:
        place: where it stands in the paper, and what it is.
        value: the paper's number; True for what is true or false.
        unit: "" for what is true or false.
        ours: the same, computed.
        follows: whether it comes out.
        working: how, with its numbers.
        cause: of a contradiction; one may contradict many claims.
        grade: how much depends on the contradiction, a key of `GRADES`.
    """

    paper: str
    place: str
    value: float | bool
    unit: str
    ours: float | bool
    follows: bool
    working: str
    cause: str | None = None
    grade: Grade | None = None


def ledger(paper: str | None = None) -> list[Judgement]:
    """Every claim, computed again; of all papers that have claims where none is named.

    Raises:
        ConfigError: no such paper.
    """
    names = [paper] if paper else paper_names(CLAIMS)
    return [row for name in names for row in (*_counts(name), *_computed(name))]


def _counts(paper: str) -> Iterator[Judgement]:
    """The parameter counts that a paper's tables print."""
    causes = load_claims(paper).counts
    for name, task in load_paper(paper).tasks.items():
        if not task.sizes and name not in causes:
            continue
        printed_to = task.sizes.printed_to if task.sizes else 1
        for variant, row in task.variants.items():
            if (printed := row.reported.get("parameters")) is None:
                continue
            place, ours = f"{task.table}, {task.label(variant)}, parameters", _parameters(paper, name, variant)
            follows, working = abs(ours - printed) <= printed_to / 2, f"parameters counted: {ours:,}"
            why = None if follows else causes.get(name)
            cause, grade = (why.cause, why.grade) if why else (None, None)
            yield Judgement(paper, place, int(printed), "parameters", ours, follows, working, cause, grade)


def _computed(paper: str) -> Iterator[Judgement]:
    """What a paper's own numbers contradict."""
    names = {"__builtins__": {}, "count": partial(_parameters, paper), "examples": _examples}
    for why in load_claims(paper).contradictions:
        for claim in why.claims:
            ours = eval(claim.computed, names)  # it stands in a file of this package
            value: float | bool = True
            unit, follows = "", bool(ours)
            if claim.printed:
                number, _, unit = claim.printed.partition(" ")
                value = float(number) if "." in number else int(number)
                last_digit = 10.0 ** -len(number.partition(".")[2])
                follows = abs(ours - value) <= last_digit / 2 + 1e-9 * abs(value)
            shown = {claim.computed: ours} | {what: eval(also, names) for what, also in claim.also.items()}
            working = "; ".join(f"{what}: {show(number)}" for what, number in shown.items())
            cause, grade = (None, None) if follows else (why.cause, why.grade)
            place = f"{claim.place}, {claim.says}"
            yield Judgement(paper, place, value, unit, ours, follows, working, cause, grade)


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


def show(value: float) -> str:
    """A number in a text: whole ones in full, with thousands set apart, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{int(value):,}" if value == int(value) else f"{value:.6g}"


def as_text(rows: Sequence[Judgement], verbose: bool = False) -> str:
    """The ledger by paper for a terminal: contradictions under their causes, the gravest first.

    ``verbose``: with how each was computed; else what follows, which needs no look, is only counted.
    """
    lines = []
    for paper, group in groupby(rows, lambda row: row.paper):
        of_paper = list(group)
        for verdict, claims in (
            ("follows", [row for row in of_paper if row.follows]),
            ("contradicted", [row for row in of_paper if not row.follows]),
        ):
            if claims:
                lines.append(f"{paper}: {verdict} ({len(claims)})")
            if verbose or verdict == "contradicted":
                lines += _claims(claims, verbose)
        lines.append("")
    if not verbose:
        lines.append("-v shows every claim and how it was computed.")
    return "\n".join(lines).rstrip()


def _claims(claims: Sequence[Judgement], verbose: bool) -> Iterator[str]:
    grades, causes = [None, *GRADES], list(dict.fromkeys(row.cause for row in claims))
    in_order = sorted(claims, key=lambda row: (grades.index(row.grade), causes.index(row.cause)))
    for cause, group in groupby(in_order, lambda row: row.cause):
        for number, row in enumerate(group):
            if cause and number == 0:
                yield f"  [{row.grade}] {cause}"
            printed = f": {show(row.value)} {row.unit}; here {show(row.ours)}" if row.unit else ""
            yield f"    - {row.place}{printed}"
            if verbose:
                yield f"        {row.working}"
