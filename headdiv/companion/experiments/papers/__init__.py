"""What the papers report, as data: variants by name, what each is called there, and its numbers.

A paper is a file ``<name>.yaml`` in this folder. `tests/experiments/test_papers.py` holds its names together: that each
figure's variants are rows, and each reported number's column is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from headdiv.core.errors import ConfigError
from headdiv.core.settings import Settings, Source, check, nearest

FOLDER = Path(__file__).parent
BASELINE = "baseline"  # the variant that all others are compared with
VARIANT = re.compile("[A-Za-z0-9-]+")  # a folder of results, and a wildcard of the Snakefile
VARIANT_IS = "a variant's name is made of letters, digits and hyphens"
Content = TypeVar("Content", bound=BaseModel)


class Variant(Settings):
    """A row of a paper's table: the method that makes it, and what the paper reports."""

    label: str
    level: float | None = Field(None, description="of the task's factor; labels end in it")
    method: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict, description="sizes of this row alone")
    train: dict[str, Any] = Field(default_factory=dict, description="and settings of its training")
    reported: dict[str, float] = Field(default_factory=dict)


class Column(Settings):
    """A number that is reported in every row."""

    label: str
    unit: str
    better: Literal["higher", "lower"] | None = None
    digits: int = Field(ge=0, description="decimals that the paper prints")
    where: str = Field("", description="a score without which runs do not have this column")


class PaperSizes(Settings):
    """The model that a paper's parameter counts belong to."""

    model: dict[str, Any]
    vocabulary: list[int]
    printed_to: int = Field(1, ge=1, description="counts are printed to so many parameters")
    data: dict[str, Any] = Field(default_factory=dict, description="of the data, what the model's size depends on")


class PaperData(Settings):
    """The data that a paper's table is of."""

    sets: list[str] = Field(description="the paper's own set, and public ones that stand in for it")
    source: str | None = Field(None, description="language translated from, where that is a part of it")
    target: str | None = Field(None, description="and into")


class Table(Settings):
    """A table of a paper."""

    title: str
    table: str = Field(description="what the paper calls it: Table 3")
    columns: dict[str, Column]
    notes: list[str] = Field(default_factory=list)


class Contrast(Settings):
    """A question: what changes from one variant to another."""

    what: str
    variant: str
    against: str


class Factor(Settings):
    """What the rows of a task differ in besides their method."""

    name: str = Field(description="on axes")
    same: str = Field(description="the Transformer with the same …")
    tick: str = Field("{:g}", description="a level on an axis")
    label: str = Field(description="and as rows' labels end")
    logarithmic: bool = Field(False, description="the axis")

    @property
    def heading(self) -> str:
        """Its name as a column's."""
        return self.name.capitalize()

    def at(self, level: float) -> str:
        """A level as it stands on an axis and in a cell."""
        return self.tick.format(level)


class PaperTask(Table):
    """One task of a paper, and the table of its results."""

    kind: str | None = Field(None, description="what kind of task it is; its own name where left out")
    data: PaperData | None = Field(None, description="what its numbers and notes are about; any where left out")
    others_data: bool = Field(False, description="whether runs on other data are shown, see `shown_on`")
    sizes: PaperSizes | None = Field(None, description="what the reported parameter counts belong to")
    variants: dict[str, Variant]
    labels: dict[str, str] = Field(default_factory=dict, description="what variants are called that profiles define")
    compares_outputs: bool = Field(False, description="whether its table compares stored outputs text by text")
    factor: Factor | None = Field(None, description="what levels are of")
    families: list[Literal["baseline", "contrasts", "levels", "ends", "slope", "methods"]] = Field(
        default_factory=list, description="the differences of its table (headdiv/companion/report/families.py)"
    )
    primary: str = Field("", description="the score that decides by docs/contest.md, once all runs are there")
    contrasts: list[Contrast] = Field(default_factory=list, description="pairs of variants that differ in one thing")

    @property
    def subject(self) -> str:
        """The title without the paper's data in brackets: figures name the data that they show."""
        return re.sub(r" \([^()]*\)$", "", self.title)

    def shown_on(self, data: Mapping[str, Any]) -> PaperTask:
        """The task as tables and figures show it for runs on this data: on the paper's as the paper has it.

        On other data the heading names these, and the paper's numbers, sizes and notes are absent. A sample or a part
        of the paper's set counts as that, and so does generated text, whose tables say that they reproduce nothing.
        """
        name = str(data["name"])
        if self.data is None or name == "toy":
            return self
        languages = {key: data.get(key) for key in ("source", "target")}
        stated = {key: getattr(self.data, key) for key in languages}
        if re.sub("-(sample|part)$", "", name) in self.data.sets and languages == stated:
            return self
        heading = f"{name}, {languages['source']} to {languages['target']}" if all(languages.values()) else name
        variants = {variant: row.model_copy(update={"reported": {}}) for variant, row in self.variants.items()}
        changed = {"table": heading, "title": re.split(r", | \(", self.title)[0], "notes": [], "sizes": None}
        return self.model_copy(update=changed | {"variants": variants, "others_data": True})

    def numbers(self) -> dict[str, dict[str, float]]:
        """What the paper reports, by variant, by column."""
        return {variant: row.reported for variant, row in self.variants.items()}

    def label(self, variant: str) -> str:
        """What the paper calls a variant; one that it does not have goes by its own name."""
        if variant not in self.variants:
            return self.labels.get(variant, variant)
        label, level = self.variants[variant].label, self.variants[variant].level
        return label if level is None else f"{label}, {self.factor.label.format(level)}"


class DataTable(Table):
    """A table about a task's data: numbers by source of the text."""

    task: str = Field(description="whose runs read the data")
    rows: dict[str, dict[str, float]]


class PaperFigure(Settings):
    """A figure of a paper: how it is drawn, and what it shows."""

    kind: str = Field(description="its name in headdiv/companion/report: @figure_kind(name)")
    task: str = Field(description="whose runs it needs")
    label: str = Field("", description="what the paper calls it; its name where left out")
    variants: tuple[str, ...] = Field((), description="one of these must be in the profile; any where left out")
    beside: tuple[str, ...] = Field((), description="further tasks whose runs are shown where the profile has them")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the kind's function")
    caption: str = Field("", description="that of its kind, if it has one, where left out")


class Paper(Settings):
    """A paper, its tasks, its tables that are not about a task's results, and its figures."""

    title: str
    short: str = Field("", description="what menus call it; its name where left out")
    citation: str
    tasks: dict[str, PaperTask]
    tables: dict[str, DataTable] = Field(default_factory=dict)
    figures: dict[str, PaperFigure] = Field(default_factory=dict, description="beside each task's learning curves")


def paper_names(folder: Path = FOLDER) -> list[str]:
    """The papers that a folder has a file of."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_yaml(model: type[Content], folder: Path, paper: str) -> Content:
    """What a folder's file of a paper says. Raises ConfigError: there is none, or it is wrong."""
    names = paper_names(folder)
    if paper not in names:
        raise ConfigError(f"paper {paper!r} is not known{nearest(paper, names)}")
    source = Source(folder / f"{paper}.yaml")
    return check(model, source.data, source=source)


@cache
def load_paper(name: str) -> Paper:
    """The paper of this name (``deacon``). Raises ConfigError: there is none."""
    return load_yaml(Paper, FOLDER, name)


def task_of(experiment: str) -> PaperTask:
    """The task of ``<paper>/<task>``. Raises ConfigError: there is no such paper or task."""
    paper, _, task = experiment.partition("/")
    if not task:
        raise ConfigError(f"found {experiment!r}, expected <paper>/<task>")
    tasks = load_paper(paper).tasks
    if task not in tasks:
        raise ConfigError(f"task {task!r} of {paper} is not known{nearest(task, list(tasks))}")
    return tasks[task]


def data_table_of(name: str) -> DataTable | None:
    """The table ``<paper>/<table>`` about data; None where the paper, which must be known, has none of this name."""
    paper, _, table = name.partition("/")
    return load_paper(paper).tables.get(table)
