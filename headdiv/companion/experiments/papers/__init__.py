"""What the papers report, as data: variants by name, what each is called there, and its numbers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from headdiv.companion import paths
from headdiv.companion.experiments.figure_kinds import FIGURE_KINDS
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import ConfigError
from headdiv.core.registry import load_plugin
from headdiv.core.settings import Settings, Source, check, config_error, nearest

log = logging.getLogger(__name__)

Said = TypeVar("Said")

FOLDER = Path(__file__).parent
BASELINE = "baseline"  # the variant that all others are compared with
# Names of folders of results, and wildcards of the Snakefile.
NAME = re.compile("[a-z0-9]+")  # of a paper or a task
VARIANT = re.compile("[A-Za-z0-9-]+")
VARIANT_IS = "a variant's name is made of letters, digits and hyphens"
FILE = re.compile("[A-Za-z0-9_-]+")  # of a table or a figure


class Variant(Settings):
    """A row of a paper's table: the method that makes it, and what the paper reports."""

    label: str
    method: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict, description="sizes of this row alone")
    reported: dict[str, float] = Field(default_factory=dict)


class Column(Settings):
    """A number that is reported in every row."""

    label: str
    unit: str
    better: str | None = Field(None, pattern="^(higher|lower)$")
    digits: int = Field(ge=0, description="decimals that the paper prints")

    @property
    def quantity(self) -> str:
        """The unit; of a column without one, what its label ends in: "Training BLEU" -> "BLEU"."""
        last = self.label.split()[-1]
        return self.unit or (last if last.isupper() else last.lower())


class PaperSizes(Settings):
    """The model that a paper's parameter counts belong to."""

    model: dict[str, Any]
    vocabulary: list[int]
    printed_to: int = Field(1, ge=1, description="counts are printed to so many parameters")
    data: dict[str, Any] = Field(default_factory=dict, description="of the data, what the model's size depends on")


class Table(Settings):
    """A table of a paper."""

    measured: ClassVar[bool]  # whether runs measure its numbers
    title: str
    table: str = Field(description="what the paper calls it: Table 3")
    columns: dict[str, Column]
    notes: list[str] = Field(default_factory=list)

    def numbers(self) -> dict[str, dict[str, float]]:
        """What the paper reports, by row (a variant, a source of text), by column."""
        raise NotImplementedError

    def label(self, row: str) -> str:
        """What the paper calls a row; one that it does not have goes by its own name."""
        return row

    def step(self, column: str) -> float:
        """One unit of the last printed digit in a column."""
        return 0.0 if column == "parameters" else 10.0 ** -self.columns[column].digits


class Contrast(Settings):
    """A question: what changes from one variant to another."""

    what: str
    variant: str
    against: str


class PaperTask(Table):
    """One task of a paper, and the table of its results."""

    measured = True
    kind: str | None = Field(None, description="what kind of task it is; its own name where left out")
    sizes: PaperSizes | None = Field(None, description="what the reported parameter counts belong to")
    variants: dict[str, Variant]
    labels: dict[str, str] = Field(default_factory=dict, description="what variants are called that profiles define")
    compares_outputs: bool = Field(False, description="whether its table compares stored outputs text by text")
    contrasts: list[Contrast] = Field(default_factory=list, description="pairs of variants that differ in one thing")

    def numbers(self) -> dict[str, dict[str, float]]:
        """See `Table`."""
        return {variant: row.reported for variant, row in self.variants.items()}

    def label(self, row: str) -> str:
        """See `Table`."""
        return self.variants[row].label if row in self.variants else self.labels.get(row, row)

    def step(self, column: str) -> float:
        """One unit of the last printed digit in a column; counts that are printed in full are exact: 0."""
        if column == "parameters" and self.sizes and self.sizes.printed_to > 1:
            return float(self.sizes.printed_to)
        return super().step(column)


class DataTable(Table):
    """A table about a task's data: numbers by source of the text."""

    measured = False
    task: str = Field(description="whose runs read the data")
    rows: dict[str, dict[str, float]]

    def numbers(self) -> dict[str, dict[str, float]]:
        """See `Table`."""
        return self.rows


class PaperFigure(Settings):
    """A figure of a paper: how it is drawn, and what it shows."""

    kind: str = Field(description="a key of FIGURE_KINDS in headdiv/companion/experiments/figure_kinds.py")
    task: str = Field(description="whose runs it needs")
    label: str = Field("", description="what the paper calls it; its name where left out")
    variants: tuple[str, ...] = Field((), description="one of these must be in the profile; any where left out")
    against: tuple[str, ...] = Field((), description="and all of these")
    beside: tuple[str, ...] = Field((), description="further tasks whose runs are shown where the profile has them")
    options: dict[str, Any] = Field(default_factory=dict, description="what its kind asks for besides")
    caption: str = Field("", description="that of its kind, if it has one, where left out")


class Box(Settings):
    """A box of a diagram."""

    text: str
    at: tuple[float, float] = Field(description="column and row of its middle; rows count upwards")
    width: float = Field(1.4, gt=0, description="in columns")
    own: bool = Field(False, description="whether the paper adds it")


class Arrow(Settings):
    """An arrow of a diagram, from one box to another."""

    tail: str
    head: str
    text: str = ""
    own: bool = Field(False, description="whether the paper adds it")


class Diagram(Settings):
    """A paper's idea as boxes and arrows."""

    boxes: dict[str, Box] = Field(min_length=1)
    arrows: list[Arrow]


class Paper(Settings):
    """A paper, its tasks, its tables that are not about a task's results, and its figures."""

    title: str
    short: str = Field("", description="what menus call it; its name where left out")
    citation: str
    doi: str | None = None
    idea: str = Field("", description="in a few sentences")
    tasks: dict[str, PaperTask]
    tables: dict[str, DataTable] = Field(default_factory=dict)
    figures: dict[str, PaperFigure] = Field(default_factory=dict, description="beside each task's learning curves")
    diagram: Diagram | None = None
    plugins: list[str] = Field(default_factory=list, description="Python files that register its tasks and methods")


def paper_names() -> list[str]:
    """The papers there are: headdiv's own, and those in ``papers/`` in the project's folder."""
    return sorted(_files())


def of_each_paper(ask: Callable[[str], Said]) -> dict[str, Said]:
    """What ``ask`` says of every paper; one whose file is wrong is left out, and a warning names it."""
    answers = {}
    for name in paper_names():
        try:
            answers[name] = ask(name)
        except ConfigError as error:
            log.warning("%s; this paper is left out", error)
    return answers


def _files() -> dict[str, Path]:
    """Every paper's file; of two with one name the project's own, which `load_paper` refuses."""
    return {path.stem: path for folder in (FOLDER, paths.home() / "papers") for path in folder.glob("*.yaml")}


def load_paper(name: str) -> Paper:
    """The paper of this name (``deacon``): one of headdiv's own, or ``papers/<name>.yaml`` in the project's folder.

    Its plugins are loaded with it. Raises ConfigError: there is no such paper, its name is headdiv's or none, or its
    file is wrong.
    """
    files = _files()
    if name not in files:
        raise ConfigError(f"paper {name!r} is not known{nearest(name, list(files))}")
    path = files[name]
    if path.parent != FOLDER:
        if not NAME.fullmatch(name):
            raise ConfigError(f"{path}: a paper's name is made of small letters and digits, found {name!r}")
        if (FOLDER / path.name).is_file():
            raise ConfigError(f"{path}: headdiv has a paper {name!r}; expected another name")
    return _read(path)


@cache
def _read(path: Path) -> Paper:
    source = Source(path)
    paper = check(Paper, source.data, source=source)
    for name, task in paper.tasks.items():
        if not NAME.fullmatch(name):
            raise config_error(("tasks", name), "a task's name is made of small letters and digits", source)
        for variant, row in task.variants.items():
            at = ("tasks", name, "variants", variant)
            if not VARIANT.fullmatch(variant):
                raise config_error(at, VARIANT_IS, source)
            if "name" not in row.method:
                raise config_error((*at, "method", "name"), "is missing", source)
    load_plugins(paper.plugins, source)
    _check_names(paper, source)
    return paper


def _check_names(paper: Paper, source: Source) -> None:
    """Refuse names that nothing has: they would silently change nothing, or fail where a table or figure is drawn."""

    def must_be(at: tuple[str | int, ...], what: str, name: str, names: Iterable[str]) -> None:
        if name not in names:
            raise config_error(at, f"unknown {what} {name!r}{nearest(name, list(names))}", source)

    # Not a task's kind: the file that registers it may be named in a profile that is not read yet.
    for name, task in paper.tasks.items():
        at: tuple[str | int, ...] = ("tasks", name)
        for variant, row in task.variants.items():
            for column in row.reported:
                must_be((*at, "variants", variant, "reported", column), "column", column, task.columns)
        for number, contrast in enumerate(task.contrasts):
            for key in ("variant", "against"):
                must_be((*at, "contrasts", number, key), "variant", getattr(contrast, key), task.variants)
        for key, needed in (("compares_outputs", "bleu"), ("contrasts", "validation_nll")):
            if getattr(task, key) and needed not in task.columns:
                raise config_error((*at, "columns", needed), f"is missing; {key} asks for it", source)
    for number, arrow in enumerate(paper.diagram.arrows if paper.diagram else ()):
        for key in ("tail", "head"):
            must_be(("diagram", "arrows", number, key), "box", getattr(arrow, key), paper.diagram.boxes)
    for section in ("tables", "figures"):
        for name, content in getattr(paper, section).items():
            if not FILE.fullmatch(name):
                raise config_error(
                    (section, name), "its name is made of letters, digits, hyphens and underscores", source
                )
            must_be((section, name, "task"), "task", content.task, paper.tasks)
    for name, table in paper.tables.items():
        if name in paper.tasks:
            raise config_error(("tables", name), "the task of this name has a table; expected another name", source)
        kind = TASKS.get(paper.tasks[table.task].kind or table.task)
        if kind and "mixture" not in kind.Data.model_fields:
            what = f"{table.task!r} reads no text with sources; expected a task that has data.mixture"
            raise config_error(("tables", name, "task"), what, source)
        for row, numbers in table.rows.items():
            for column in numbers:
                must_be(("tables", name, "rows", row, column), "column", column, table.columns)
    for name, figure in paper.figures.items():
        at, variants = ("figures", name), paper.tasks[figure.task].variants
        must_be((*at, "kind"), "kind", figure.kind, FIGURE_KINDS)
        for key, what, names in (
            ("variants", "variant", variants),
            ("against", "variant", variants),
            ("beside", "task", paper.tasks),
        ):
            for number, one in enumerate(getattr(figure, key)):
                must_be((*at, key, number), what, one, names)
        _check_kind(figure, at, source)


def _check_kind(figure: PaperFigure, at: tuple[str | int, ...], source: Source) -> None:
    """Refuse a figure without what its kind needs."""
    kind = FIGURE_KINDS[figure.kind]
    check(kind.Options, figure.options, (*at, "options"), source)
    for key in ("variants", "against"):
        count, found = getattr(kind, key), len(getattr(figure, key))
        if count not in (None, found):
            raise config_error((*at, key), f"found {found}, a figure of kind {figure.kind!r} has {count}", source)
    if not (figure.caption or kind.caption):
        raise config_error((*at, "caption"), f"is missing; the kind {figure.kind!r} has none of its own", source)
    for option in kind.in_caption if not figure.caption else ():
        if option not in figure.options:
            raise config_error((*at, "options", option), "is missing; the caption of its kind names it", source)


def load_plugins(plugins: Sequence[str], source: Source) -> None:
    """Run Python files that register tasks and methods (`headdiv.register`), each once.

    Their paths are relative to the project's folder; ``source``, for the ConfigError where one is missing, is the file
    that names them under ``plugins``.
    """
    for position, plugin in enumerate(plugins):
        try:
            load_plugin(paths.home() / plugin)
        except ConfigError as error:
            raise config_error(("plugins", position), str(error), source) from None


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
