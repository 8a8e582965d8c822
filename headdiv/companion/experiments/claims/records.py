"""What a paper's claims are made of: typed records, and short ways to write them in ``papers/claims/<paper>.py``.

A claim is a number with its place in the paper and, where it can be computed, a function with the numbers that the
function takes: other cells of the paper's tables, counts of parameters, sizes of data sets, or what stored runs
measured. No file holds a verdict: these are computed (`headdiv.companion.experiments.claims.ledger`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headdiv.companion.experiments.claims.functions import itself

RELATION = "relation"

ClaimKind = Literal["parameter count", "score", "cost", "arithmetic", "setting"]
Sign = Literal["=", "about", "<", "<=", ">", ">="]
Grade = Literal["result", "open", "slip"]
GRADES: dict[Grade, str] = {
    "result": "a result or a conclusion of the paper depends on it",
    "open": "it holds if the paper is read otherwise, or it cannot be said which of two numbers is wrong",
    "slip": "a misprint or a slip of the pen on which nothing else depends",
}


# ---- numbers that functions take


@dataclass(frozen=True)
class Printed:
    """A number that one of the paper's tables prints."""

    table: str
    row: str
    column: str


@dataclass(frozen=True)
class WholeColumn:
    """All numbers that a column of one of the paper's tables prints."""

    table: str
    column: str


@dataclass(frozen=True)
class FromRuns:
    """What the stored runs of a row measured: a score, a cost, or a setting (``config.model.heads``)."""

    task: str
    row: str
    quantity: str


@dataclass(frozen=True)
class Counted:
    """The parameters of a row, counted at the sizes of its task or of one of `PaperClaims.models`."""

    model: str
    row: str = "baseline"


@dataclass(frozen=True)
class Examples:
    """How many examples a split of a public data set has."""

    data: str
    split: str


Number = float | Printed | FromRuns | Counted | Examples
Argument = Number | WholeColumn | tuple[Number | WholeColumn, ...]  # a function gets a column or a tuple as one list


@dataclass(frozen=True)
class NumbersOf:
    """Writes numbers of a table of the paper: ``NumbersOf("qa")("f1", "direct-8", "baseline")``."""

    name: str

    def __call__(self, column: str, *rows: str) -> tuple[Printed, ...]:
        """What the paper prints in a column, in these rows."""
        return tuple(Printed(self.name, row, column) for row in rows)

    def runs(self, quantity: str, *rows: str) -> tuple[FromRuns, ...]:
        """What the stored runs of these rows measured."""
        return tuple(FromRuns(self.name, row, quantity) for row in rows)

    def counted(self, *rows: str) -> tuple[Counted, ...]:
        """The parameters of these rows."""
        return tuple(Counted(self.name, row) for row in rows)

    def row(self, row: str, *columns: str) -> tuple[Printed, ...]:
        """What the paper prints in a row, in these columns."""
        return tuple(Printed(self.name, row, column) for column in columns)

    def column(self, column: str) -> WholeColumn:
        """All that the paper prints in a column."""
        return WholeColumn(self.name, column)

    def setting(self, path: str, row: str = "baseline") -> FromRuns:
        """A setting that the stored runs of a row have: ``model.heads``."""
        return FromRuns(self.name, row, f"config.{path}")


# ---- claims


@dataclass(frozen=True)
class Cause:
    """Why claims do not come out: one cause may contradict many numbers."""

    grade: Grade
    text: str


@dataclass(frozen=True)
class Computation:
    """How a claimed number is computed.

    Attributes:
        function: its docstring says in one sentence what it computes; of a relation it returns `Margins`.
        numbers: what it takes.
        sign: how the result must stand to the claim.
        also: further computations that explain, by what they give.
        note: how the sentence is read where it can be read in two ways.
        cause: why it does not come out, if it does not.
    """

    function: Callable[..., float | list[float]]
    numbers: tuple[Argument, ...]
    sign: Sign = "="
    also: Mapping[str, Computation] = field(default_factory=dict)
    note: str | None = None
    cause: Cause | None = None


@dataclass(frozen=True)
class Claim:
    """One number of a paper.

    Attributes:
        place: where it stands in the paper, and what it is.
        value: the number; True for a relation that holds.
        step: one unit of its last printed digit.
        how: how it is computed; None where nothing here can compute it.
        better: which way a score is better; None for what is no score of a table.
        effect: of a table's score: how far the paper's number is from its baseline's, and of the baseline the most that
            another row is from it; None where there is no baseline or no other row.
    """

    place: str
    value: float | bool
    step: float
    unit: str
    kind: ClaimKind
    how: Computation | None = None
    better: str | None = None
    effect: float | None = None

    @property
    def sign(self) -> Sign:
        """How what is computed must stand to the value."""
        return self.how.sign if self.how else "="


def how(function: Callable[..., float | list[float]], *numbers: Argument, **explained: Any) -> Computation:
    """A computation; ``explained``: its other attributes."""
    return Computation(function, numbers, **explained)


def claim(
    what: str,
    printed: str,
    function: Callable[..., float],
    *numbers: Argument,
    kind: ClaimKind = "arithmetic",
    **explained: Any,
) -> Claim:
    """A number that the text states, as printed and with its unit ("2.10 %"), and the function that computes it."""
    value, _, unit = printed.partition(" ")
    return Claim(what, float(value), step(value), unit, kind, how(function, *numbers, **explained))


def stated(what: str, printed: str, number: Number | None = None, kind: ClaimKind = "setting") -> Claim:
    """A number that the text states, as printed and with its unit, and where the same can be looked up."""
    value, _, unit = printed.partition(" ")
    return Claim(what, float(value), step(value), unit, kind, None if number is None else how(itself, number))


def relation(
    what: str,
    function: Callable[..., list[float]],
    *numbers: Argument,
    kind: ClaimKind = "arithmetic",
    **explained: Any,
) -> Claim:
    """A relation between numbers that the text states."""
    return Claim(what, True, 1.0, RELATION, kind, how(function, *numbers, **explained))


def measured(what: str, function: Callable[..., list[float]], *numbers: Argument, **explained: Any) -> Claim:
    """A relation between scores, which stored runs decide."""
    return relation(f"{what}, measured", function, *numbers, kind="score", **explained)


def step(value: object) -> float:
    """One unit of the last printed digit."""
    return 10.0 ** -len(str(value).partition(".")[2])


# ---- a paper


@dataclass(frozen=True)
class TableSetting:
    """A column of a table that holds a setting: every row's is taken from the paper's own file.

    Attributes:
        of: ``method.<option>`` or ``model.<size>``; the first that a row has.
        rows: of these rows alone.
        table: where it is not the row's.
    """

    of: tuple[str, ...]
    unit: str
    rows: tuple[str, ...] | None = None
    table: str | None = None


@dataclass(frozen=True)
class Scale:
    """What a run must be to decide anything about a task's results.

    Attributes:
        data: keys of a run's data.
        examples: training examples.
        model: sizes, where the paper's own file has none.
        epochs: the paper's, or else
        steps: the paper's.
        device: part of the name of the machine that the paper's times are of.
        ranks: how many of these it used.
    """

    data: Mapping[str, Any]
    examples: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    steps: int | None = None
    device: str | None = None
    ranks: int = 1


@dataclass(frozen=True)
class Model:
    """A model whose parameters are counted beside those of the tasks' own sizes.

    Attributes:
        label: what it is.
        model: sizes; over the task's own where it has them.
        kind: another kind than the task's; all its sizes are then given here.
    """

    label: str
    task: str
    vocabulary: tuple[int, ...]
    model: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None


@dataclass(frozen=True)
class PaperClaims:
    """All that a paper claims beside its tables' numbers, and how both are computed.

    Attributes:
        sentences: by place.
        scale: by task.
        tables: by task: the table of a column or a row, where it is not the task's.
        numbers: by task or table, by column, or by (row, column) where one row differs: how the row's number is
            computed.
        settings: by task, by column's label.
        notes: by column: how ours is measured otherwise, so that no claim on it is comparable.
    """

    sentences: Mapping[str, Sequence[Claim]]
    scale: Mapping[str, Scale] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    numbers: Mapping[str, Mapping[str | tuple[str, str], Callable[[str], Computation]]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, TableSetting]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
