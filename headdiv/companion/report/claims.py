"""The ledger of claims: papers' parameter counts, what their own numbers contradict, and how rows compare.

``papers/claims/<paper>.yaml`` has what a paper says and the causes of contradictions. No verdict is written down
anywhere: counts and expressions are computed, and relations of two rows are decided by the stored runs of the profile
that has the paper's data, sizes and length. Scores stand in the papers' tables beside ours, and are no claims here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from statistics import fmean
from typing import Any, Literal, get_args

from pydantic import Field

from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.papers import BASELINE, FOLDER, load_paper, load_yaml, paper_names
from headdiv.companion.experiments.parameters import count
from headdiv.companion.report.families import pair_differences, scores_of
from headdiv.companion.report.formats import plural
from headdiv.companion.report.groups import Groups, judged_with
from headdiv.core.errors import NotStoredError
from headdiv.core.settings import Settings

CLAIMS = FOLDER / "claims"
COSINE = "mean_absolute_cosine"  # of a PCA layer's columns

Verdict = Literal["follows", "contradicted", "confirmed", "refuted", "undecided", "not comparable", "not run here"]
NEED_NO_LOOK: tuple[Verdict, ...] = ("follows", "not run here")
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

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


Holds = Literal["higher", "lower", "not higher", "within half a point"]
# What a row's score minus another's may be for a relation to hold. Equal scores are neither higher nor lower.
ACCEPTED: dict[Holds, tuple[float, float]] = {
    "higher": (1e-12, math.inf),
    "lower": (-math.inf, -1e-12),
    "not higher": (-math.inf, 0.0),
    "within half a point": (-0.5, 0.5),
}


class Relation(Settings):
    """What the text says of two rows' scores."""

    place: str
    score: str
    variant: str
    holds: Holds
    against: str = Field(description="a variant of the same task, or <task>/<variant>")


class PaperClaims(Settings):
    """What a paper claims beside its tables' scores."""

    counts: dict[str, Counts] = Field(default_factory=dict, description="by task")
    contradictions: list[Contradiction] = Field(default_factory=list)
    relations: dict[str, list[Relation]] = Field(default_factory=dict, description="by task")
    measured: dict[str, str] = Field(
        default_factory=dict, description="by task: the profile that has the paper's data, sizes and length"
    )
    not_comparable: dict[str, str] = Field(default_factory=dict, description="scores that we measure otherwise: how")


@cache
def load_claims(paper: str) -> PaperClaims:
    """What a paper claims. Raises ConfigError: no claims of such a paper are known."""
    return load_yaml(PaperClaims, CLAIMS, paper)


@dataclass(frozen=True)
class Judgement:
    """A claim with its verdict.

    Attributes:
        place: where it stands in the paper, and what it is.
        value: the paper's number; True for what is true or false.
        unit: "" for what is true or false.
        ours: the same, computed or measured; None where no run has measured it.
        working: how, with its numbers; or why not.
        cause: of a contradiction; one may contradict many claims.
        grade: how much depends on the contradiction, a key of `GRADES`.
    """

    paper: str
    place: str
    value: float | bool
    unit: str
    ours: float | bool | None
    verdict: Verdict
    working: str
    cause: str | None = None
    grade: Grade | None = None


def ledger(paper: str | None = None) -> list[Judgement]:
    """Every claim with its verdict; of all papers that have claims where none is named.

    Raises:
        ConfigError: no such paper, or the project lacks the profile that decides relations.
    """
    names = [paper] if paper else paper_names(CLAIMS)
    return [row for name in names for row in (*_counts(name), *_computed(name), *_relations(name))]


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
            verdict, working = _verdict(abs(ours - printed) <= printed_to / 2), f"parameters counted: {ours:,}"
            judgement = Judgement(paper, place, int(printed), "parameters", ours, verdict, working)
            yield _explained(judgement, causes.get(name))


def _computed(paper: str) -> Iterator[Judgement]:
    """What a paper's own numbers contradict."""
    names = {"__builtins__": {}, "count": partial(_parameters, paper), "examples": _examples}
    for contradiction in load_claims(paper).contradictions:
        for claim in contradiction.claims:
            ours = eval(claim.computed, names)  # it stands in a file of this package
            value: float | bool = True
            unit, follows = "", bool(ours)
            if claim.printed:
                number, _, unit = claim.printed.partition(" ")
                value = float(number) if "." in number else int(number)
                last_digit = 10.0 ** -len(number.partition(".")[2])
                follows = abs(ours - value) <= last_digit / 2 + 1e-9 * abs(value)
            numbers = {claim.computed: ours}
            numbers |= {name: eval(expression, names) for name, expression in claim.also.items()}
            working = "; ".join(f"{name}: {show(number)}" for name, number in numbers.items())
            place = f"{claim.place}, {claim.says}"
            judgement = Judgement(paper, place, value, unit, ours, _verdict(follows), working)
            yield _explained(judgement, contradiction)


def _verdict(follows: bool) -> Verdict:
    return "follows" if follows else "contradicted"


def _explained(judgement: Judgement, explanation: Counts | Contradiction | None) -> Judgement:
    """A contradiction with its cause, where one is known."""
    if judgement.verdict != "contradicted" or explanation is None:
        return judgement
    return replace(judgement, cause=explanation.cause, grade=explanation.grade)


def _relations(paper: str) -> Iterator[Judgement]:
    """What runs at the paper's scale say of two rows."""
    claims = load_claims(paper)
    for name, relations in claims.relations.items():
        rows: Groups = {}
        if (profile := claims.measured.get(name)) is not None:
            with contextlib.suppress(NotStoredError):
                rows = judged_with(profile, f"{paper}/{name}")
        for relation in relations:
            yield _relation(paper, name, relation, rows)


def _relation(paper: str, name: str, relation: Relation, rows: Groups) -> Judgement:
    tasks, claims, score = load_paper(paper).tasks, load_claims(paper), relation.score
    other_task, _, other_variant = relation.against.rpartition("/")
    columns = tasks[name].columns
    measure = columns[score].label if score in columns else score.replace("_", " ")
    preposition = "of" if relation.holds == "within half a point" else "than"
    labels = tasks[name].label(relation.variant), tasks[other_task or name].label(other_variant)
    place = f"{relation.place}, {measure} of {labels[0]} is {relation.holds} {preposition} that of {labels[1]}"
    scores = _scores(rows, relation)
    if not {relation.variant, relation.against} <= scores.keys():
        return Judgement(
            paper, place, True, "", None, "not run here", "no stored run has the paper's data, sizes and length"
        )
    (difference,) = pair_differences(scores, [(relation.variant, relation.against)])
    if not difference.count:
        return Judgement(paper, place, True, "", None, "not run here", "the stored runs have no seed in common")
    low, high = ACCEPTED[relation.holds]
    means = " against ".join(show(fmean(scores[row].values())) for row in (relation.variant, relation.against))
    working = f"{means}, difference {_describe(difference)}; profile {claims.measured[name]}"
    verdict = decide(difference, low, high)
    if note := claims.not_comparable.get(score):
        verdict, working = "not comparable", f"{working}; {note}"
    return Judgement(paper, place, True, "", low <= difference.mean <= high, verdict, working)


def _scores(rows: Groups, relation: Relation) -> dict[str, dict[int, float]]:
    """By variant and seed, of all rows of the model; cosines, which spread with the number of columns, of these two."""
    if relation.score != COSINE:
        return scores_of(rows, relation.score)
    compared = {row: rows[row] for row in (relation.variant, relation.against) if row in rows}
    return {
        row: {run.seed: fmean(layer[COSINE] for layer in run.heads.get("pca_weights", {}).values()) for run in runs}
        for row, runs in compared.items()
    }


def decide(difference: Difference, low: float, high: float) -> Verdict:
    """The verdict where a relation holds from ``low`` to ``high``; one seed has no interval."""
    if low <= difference.low and difference.high <= high:
        return "confirmed"
    return "refuted" if difference.high < low or difference.low > high else "undecided"


def _describe(difference: Difference) -> str:
    if difference.count < 2:
        return f"{show(difference.mean)} of one seed, which has no interval"
    ends, seeds = f"{difference.low:.4g} to {difference.high:.4g}", plural(difference.count, "seed")
    return f"{show(difference.mean)} ({ends} over {seeds}, residual degrees of freedom: {difference.freedom})"


@cache
def _parameters(paper: str, name: str, variant: str = BASELINE, vocabulary: tuple[int, ...] = (), **sizes: int) -> int:
    """Parameters of a row at its task's sizes, but for those given."""
    task = load_paper(paper).tasks[name]
    row, defaults = task.variants[variant], task.sizes or load_claims(paper).counts[name]
    model = {**defaults.model, **row.model, **sizes}
    data = task.sizes.data if task.sizes else {}
    return count(task.kind or name, row.method, model, vocabulary or defaults.vocabulary, data)


def _examples(data: str, split: str) -> int:
    """How many examples a split of a public data set has."""
    return load_registry()[data].splits[split].count


def show(value: float) -> str:
    """A number in a text: whole ones in full, with thousands separators, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{int(value):,}" if value == int(value) else f"{value:.6g}"


def as_text(rows: Sequence[Judgement], verbose: bool = False) -> str:
    """The ledger by paper for a terminal: contradictions under their causes, the gravest first.

    ``verbose``: with how each was computed; else claims that follow or were not run, which need no look, are only
    counted.
    """
    lines = []
    for paper, group in groupby(rows, lambda row: row.paper):
        judgements = list(group)
        for verdict in VERDICTS:
            if claims := [row for row in judgements if row.verdict == verdict]:
                lines.append(f"{paper}: {verdict} ({len(claims)})")
                if verbose or verdict not in NEED_NO_LOOK:
                    lines += _claim_lines(claims, verbose)
        lines.append("")
    if not verbose:
        lines.append("-v shows every claim and how it was computed.")
    return "\n".join(lines).rstrip()


def _claim_lines(claims: Sequence[Judgement], verbose: bool) -> Iterator[str]:
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
