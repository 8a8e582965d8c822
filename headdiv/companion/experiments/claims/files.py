"""What the five papers claim, as data: ``papers/claims/<paper>.yaml``, and the numbers of their tables.

A claim is a number with its place in the paper. Those of the tables that stand in ``papers/<paper>.yaml`` are taken
from there; the file of claims adds the sentences, and says how numbers are recomputed. No file holds a verdict: these
are computed (`headdiv.companion.experiments.claims.ledger`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from headdiv.companion.experiments.claims.arithmetic import Working, WorkingError
from headdiv.companion.experiments.papers import BASELINE, FOLDER, PaperTask, Table, Variant, load_paper
from headdiv.core.errors import ConfigError
from headdiv.core.settings import Settings, Source, check, config_error, nearest

CLAIMS = FOLDER / "claims"
RELATION = "relation"
COSTS = ("days", "h", "ms")  # units
PRINTS = "Expected a whole number, one with decimals in quotes ('2.10'), or true for a relation"
PRINTED = re.compile(r"-?\d+(\.\d+)?")

ClaimKind = Literal["parameter count", "score", "cost", "arithmetic", "setting"]
Sign = Literal["=", "about", "<", "<=", ">", ">="]
Grade = Literal["result", "open", "slip"]
GRADES: dict[Grade, str] = {
    "result": "a result or a conclusion of the paper depends on it",
    "open": "it holds if the paper is read otherwise, or it cannot be said which of two numbers is wrong",
    "slip": "a misprint or a slip of the pen on which nothing else depends",
}


class Recomputation(Settings):
    """How a claimed number is worked out."""

    working: str | None = Field(None, description="an expression; nothing can be worked out where left out")
    sign: Sign = Field("=", description="how what is worked out must stand to the claim")
    also: dict[str, str] = Field(default_factory=dict, description="further workings that explain, by what they are")
    note: str | None = Field(None, description="how the sentence is read where it can be read in two ways")
    cause: str | None = Field(None, description="one of the file's causes: why it does not come out")


class Statement(Recomputation):
    """A number, or a relation, that the text or a caption states."""

    value: bool | int | str = Field(description="as printed, decimals in quotes: '2.10'; true: a relation that holds")
    unit: str = RELATION
    kind: ClaimKind = "arithmetic"

    @field_validator("value", mode="before")
    @classmethod
    def _keeps_its_digits(cls, value: Any) -> Any:
        whole = isinstance(value, int) and value is not False
        if not whole and not (isinstance(value, str) and PRINTED.fullmatch(value)):
            raise PydanticCustomError("printed", PRINTS)
        return value

    @model_validator(mode="after")
    def _relations_are_true(self) -> Statement:
        if (self.value is True) != (self.unit == RELATION):
            raise ValueError(f"unit: {self.unit!r} with the value {self.value!r}; a relation, and no number, is true")
        return self


class TableSetting(Settings):
    """A column of a table that holds a setting: every row's is taken from the paper's own file."""

    of: list[str] = Field(min_length=1, description="method.<option> or model.<size>; the first that a row has")
    unit: str = ""
    rows: list[str] | None = Field(None, description="of these rows alone")
    table: str | None = Field(None, description="where it is not the row's")


class Scale(Settings):
    """What a run must be to decide anything about a task's results."""

    data: dict[str, Any] = Field(description="keys of a run's data")
    examples: int | None = Field(None, ge=1, description="training examples")
    model: dict[str, Any] = Field(default_factory=dict, description="sizes, where the paper's own file has none")
    epochs: int | None = Field(None, ge=1)
    steps: int | None = Field(None, ge=1)
    device: str | None = Field(None, description="part of the name of the machine that the paper's times are of")
    ranks: int = 1

    @model_validator(mode="after")
    def _one_length(self) -> Scale:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("epochs: expected one of epochs and steps")
        return self


class Model(Settings):
    """A model whose parameters are counted beside those of the tasks' own sizes: ``params.<name>.<variant>``."""

    task: str
    model: dict[str, Any] = Field(default_factory=dict, description="sizes; over the task's own where it has them")
    vocabulary: list[int]
    kind: str | None = Field(None, description="another kind than the task's; all its sizes are then given here")
    data: dict[str, Any] = Field(default_factory=dict)


class Cause(Settings):
    """Why claims do not come out: one cause may contradict many numbers."""

    grade: Grade
    text: str


class ClaimsFile(Settings):
    """All that a paper claims beside its tables' numbers, and how both are recomputed."""

    scale: dict[str, Scale] = Field(default_factory=dict, description="by task")
    models: dict[str, Model] = Field(default_factory=dict)
    tables: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="by task: the table of a column or variant, where it is not the task's"
    )
    workings: dict[str, dict[str, str | Recomputation]] = Field(
        default_factory=dict, description="by task or table: of a column, or of <row>.<column>; 'row' is the row itself"
    )
    settings: dict[str, dict[str, TableSetting]] = Field(default_factory=dict, description="by task: by column's label")
    causes: dict[str, Cause] = Field(default_factory=dict, description="of contradictions, by name")
    notes: dict[str, str] = Field(
        default_factory=dict, description="by column: why ours may differ; said where a claim is refuted or differs"
    )
    sentences: dict[str, dict[str, Statement]] = Field(description="by place, by what is claimed there")


@dataclass(frozen=True)
class Claim:
    """One number of a paper.

    Attributes:
        value: the number; True for a relation.
        step: one unit of its last printed digit.
        at: keys that lead to it in the file of claims, for messages.
        cause: why it does not come out, if it does not.
        better: which way a score is better; None for what is no score of a table.
        effect: of a table's score: how far the paper's number is from its baseline's, and of the baseline the most that
            another row is from it; None where there is no baseline or no other row.
    """

    paper: str
    place: str
    value: float | bool
    step: float
    unit: str
    kind: ClaimKind
    working: Working | None = None
    sign: Sign = "="
    also: dict[str, Working] = field(default_factory=dict)
    note: str | None = None
    at: tuple[str, ...] = ()
    cause: Cause | None = None
    better: str | None = None
    effect: float | None = None


def papers_with_claims() -> list[str]:
    """The papers that have a file of claims, by name."""
    return sorted(path.stem for path in CLAIMS.glob("*.yaml"))


def claims_source(paper: str) -> Source:
    """A paper's file of claims, which knows its lines. Raises ConfigError: there is none, or it is not YAML."""
    known = papers_with_claims()
    if paper not in known:
        raise ConfigError(f"claims of {paper!r} are not known{nearest(paper, known)}")
    return Source(CLAIMS / f"{paper}.yaml")


@cache
def load_claims(paper: str) -> ClaimsFile:
    """A paper's file of claims. Raises ConfigError: there is none, or it has a mistake (file, line, key)."""
    source, known = claims_source(paper), load_paper(paper)
    file = check(ClaimsFile, source.data, source=source)
    tables: dict[str, Table] = {**known.tasks, **known.tables}

    def must_be(at: tuple[str, ...], what: str, name: str, names: Iterable[str]) -> None:
        """A name with a slip would silently change nothing."""
        if name not in names:
            raise config_error(at, f"unknown {what}{nearest(name, list(names))}", source)

    for section in ("scale", "tables", "settings"):
        for name in getattr(file, section):
            must_be((section, name), "task", name, known.tasks)
    for name, model in file.models.items():
        must_be(("models", name, "task"), "task", model.task, known.tasks)
    for name in file.notes:
        must_be(("notes", name), "column", name, [column for task in known.tasks.values() for column in task.columns])
    for name, keys in file.tables.items():
        for key in keys:
            must_be(("tables", name, key), "row or column", key, [*tables[name].numbers(), *tables[name].columns])
    for name, workings in file.workings.items():
        must_be(("workings", name), "table", name, tables)
        for key in workings:
            row, _, column = key.rpartition(".")
            if column not in tables[name].columns or (row and row not in tables[name].numbers()):
                raise config_error(("workings", name, key), "expected <column> or <row>.<column> of that table", source)
    return file


def claims_of(paper: str) -> list[Claim]:
    """All claims of a paper: its tables' numbers, then its sentences; errors as those of `load_claims`."""
    file, known = load_claims(paper), load_paper(paper)
    claims = []
    for name, task in known.tasks.items():
        claims += [*_of_table(paper, name, task, file), *_of_settings(paper, name, task, file)]
    for name, table in known.tables.items():
        claims += _of_table(paper, name, table, file)
    for section, sentences in file.sentences.items():
        claims += [_of_sentence(paper, section, what, sentence) for what, sentence in sentences.items()]
    return claims


def identifier(name: str) -> str:
    """A variant's name in workings: ``direct_8`` for ``direct-8``."""
    return name.replace("-", "_")


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


def _of_table(paper: str, name: str, table: Table, file: ClaimsFile) -> Iterator[Claim]:
    """A table's numbers; one with a working of its own, not that of its kind, is arithmetic."""
    tables, workings = file.tables.get(name, {}), file.workings.get(name, {})
    for row, numbers in table.numbers().items():
        for column, value in numbers.items():
            shown = table.columns[column]
            key = f"{row}.{column}" if f"{row}.{column}" in workings else column
            own, default, kind = workings.get(key), None, "cost" if shown.unit in COSTS else "score"
            if not table.measured:
                kind = "setting"
            elif column != "parameters":
                default = f"ours.{name}.row.{column}"
            elif table.sizes:
                default = f"params.{name}.row"
            if column == "parameters":
                kind = "parameter count"
            elif own:
                kind = "arithmetic"
            how = Recomputation(working=own) if isinstance(own, str) else own or Recomputation(working=default)
            place = f"{tables.get(column) or tables.get(row) or table.table}, {table.label(row)}, {shown.label}"
            given = {"value": value, "step": table.step(column), "unit": shown.quantity, "kind": kind}
            if kind == "score":
                given |= {"better": shown.better, "effect": _effect(table, row, column)}
            yield _claim(paper, how, ("workings", name, key), name, row, place=place, **given)


def _effect(table: Table, row: str, column: str) -> float | None:
    """See `Claim.effect`."""
    values = {name: numbers[column] for name, numbers in table.numbers().items() if column in numbers}
    if BASELINE not in values:
        return None
    others = [row] if row != BASELINE else [name for name in values if name != BASELINE]
    return max((round(abs(values[other] - values[BASELINE]), 9) for other in others), default=None)


def _of_settings(paper: str, name: str, task: PaperTask, file: ClaimsFile) -> Iterator[Claim]:
    scale = file.scale.get(name)
    for label, setting in file.settings.get(name, {}).items():
        for variant, row in task.variants.items():
            if not row.reported or (setting.rows is not None and variant not in setting.rows):
                continue
            sections = {"method": row.method, "model": sizes_of(task, row, scale)}
            found = ((path, walk(sections, path.split("."))) for path in setting.of)
            path, value = next(((path, value) for path, value in found if value is not None), ("", None))
            if value is not None:
                how = Recomputation(working=f"ours.{name}.row.config.{path}")
                place = setting.table or file.tables.get(name, {}).get(variant) or task.table
                given = {"value": value, "step": _step(value), "unit": setting.unit, "kind": "setting"}
                place = f"{place}, {row.label}, {label}"
                yield _claim(paper, how, ("settings", name, label), name, variant, place=place, **given)


def _of_sentence(paper: str, section: str, what: str, sentence: Statement) -> Claim:
    value = True if sentence.value is True else float(sentence.value)
    given = {"value": value, "step": _step(sentence.value), "unit": sentence.unit, "kind": sentence.kind}
    return _claim(paper, sentence, ("sentences", section, what), "", "", place=f"{section}, {what}", **given)


def _step(value: Any) -> float:
    """One unit of the last printed digit."""
    return 10.0 ** -len(str(value).partition(".")[2])


def _claim(paper: str, how: Recomputation, at: tuple[str, ...], name: str, row: str, **given: Any) -> Claim:
    def parsed(text: str) -> Working:
        if row:  # row.bleu -> translation.direct_8.bleu, params.translation.row -> params.translation.direct_8
            text = re.sub(r"(?<=\.)row\b", identifier(row), re.sub(r"(?<![\w.])row(?=\.)", f"{name}.row", text))
        try:
            return Working(text)
        except WorkingError as error:
            raise config_error(at, str(error), claims_source(paper)) from None

    causes = load_claims(paper).causes
    if how.cause is not None and how.cause not in causes:
        raise config_error((*at, "cause"), f"unknown cause{nearest(how.cause, list(causes))}", claims_source(paper))
    return Claim(
        paper,
        working=parsed(how.working) if how.working else None,
        sign=how.sign,
        also={what: parsed(text) for what, text in how.also.items()},
        note=how.note,
        at=at,
        cause=causes[how.cause] if how.cause else None,
        **given,
    )
