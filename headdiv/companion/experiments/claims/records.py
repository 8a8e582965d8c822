"""What a paper claims beside its tables' numbers, as ``papers/claims/<paper>.yaml`` has it. No file holds a verdict."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import Field

from headdiv.companion.experiments.papers import FOLDER, load_yaml
from headdiv.core.settings import Settings

CLAIMS = FOLDER / "claims"

Grade = Literal["result", "open", "slip"]
GRADES: dict[Grade, str] = {
    "result": "a result or a conclusion of the paper depends on it",
    "open": "it holds if the paper is read otherwise, or it cannot be said which of two numbers is wrong",
    "slip": "a misprint or a slip of the pen on which nothing else depends",
}
Holds = Literal["higher", "lower", "not higher", "within half a point"]


class Scale(Settings):
    """What a run must be to decide anything about a task's results."""

    data: dict[str, Any] = Field(description="keys of its data")
    examples: int | None = Field(None, description="of the training set")
    model: dict[str, Any] = Field(default_factory=dict, description="sizes, where the paper's file has none")
    epochs: int | None = Field(None, description="of the paper; or else")
    steps: int | None = None


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


class Relation(Settings):
    """A relation of two variants' scores that the text states and runs can measure."""

    place: str
    score: str
    variant: str
    holds: Holds
    against: str = Field(description="a variant of the same task, or <task>/<variant>")


class PaperClaims(Settings):
    """What a paper claims beside its tables' numbers."""

    scale: dict[str, Scale] = Field(default_factory=dict, description="by task")
    not_comparable: dict[str, str] = Field(default_factory=dict, description="scores that we measure otherwise: how")
    counts: dict[str, Counts] = Field(default_factory=dict, description="by task")
    contradictions: list[Contradiction] = Field(default_factory=list)
    relations: dict[str, list[Relation]] = Field(default_factory=dict, description="by task")


@cache
def load_claims(paper: str) -> PaperClaims:
    """What a paper claims. Raises ConfigError: no claims of such a paper are known."""
    return load_yaml(PaperClaims, CLAIMS, paper)
