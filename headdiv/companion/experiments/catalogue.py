"""The tables and figures that there are, as data: which runs each needs and what it shows.

A paper's file lists its figures and its tables of data; every task of a paper has a table of results and a figure of
learning curves besides, and plugins add figures of one's own (`add_figure`). `headdiv.companion.report.figures` draws
them; nothing here imports matplotlib.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from headdiv.companion.experiments.figure_kinds import CURVES, FIGURE_KINDS, HEADS, PRUNING
from headdiv.companion.experiments.papers import PaperFigure, load_paper, paper_names, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.settings import nearest

OF_TUNING = "_tuning"  # end of the name of the table about an experiment's tuning
OF_PRUNING = "_pruning"  # and of that about how many heads its runs can lose


@dataclass(frozen=True)
class FigureEntry:
    """A figure: its kind, the experiment whose runs it needs, and what it shows."""

    name: str
    kind: str  # names the function that draws it
    experiment: str
    caption: str
    label: str = ""  # what its title and errors call it: "Figure 6"
    variants: tuple[str, ...] = ()  # one of these must be in the profile; none named: any will do
    against: tuple[str, ...] = ()  # and all of these
    beside: tuple[str, ...] = ()  # further experiments: their runs are shown as well where the profile has them
    options: dict[str, Any] = field(default_factory=dict)  # what its kind asks for besides
    draw: DrawFigure | None = None  # of one's own: the function itself, in place of its kind's

    @property
    def of_importance(self) -> bool:
        """Whether it is drawn from what `headdiv importance` stores, which a profile's ``pruning`` asks for."""
        return self.kind == PRUNING

    @property
    def alternative(self) -> str:
        """What it shows, in place of the picture: the caption up to its first pause."""
        return re.split(r"[.:;]\s|(?<=\?)\s", f"{self.caption} ", maxsplit=1)[0]

    @property
    def paper(self) -> str:
        """The paper that the figure belongs to."""
        return self.experiment.partition("/")[0]

    def experiments_in(self, experiments: Iterable[str]) -> list[str]:
        """The experiments whose runs it shows, of a profile's; what importance it draws is that of all of its paper."""
        known = list(experiments)
        of_paper = [experiment for experiment in known if experiment.startswith(f"{self.paper}/")]
        return of_paper if self.of_importance else [name for name in (self.experiment, *self.beside) if name in known]


DrawFigure = Callable[[str, FigureEntry], Any]  # of a profile; returns a figure of matplotlib's
_own: dict[str, FigureEntry] = {}  # what plugins have added


def add_figure(
    experiment: str, *, label: str = "", variants: tuple[str, ...] = (), against: tuple[str, ...] = ()
) -> Callable[[DrawFigure], DrawFigure]:
    """Make a function a figure of one's own, ``<paper>_<its name>``; its docstring is the caption.

    A profile names its file under ``plugins``: the figure is then drawn, and shown in the report, like those of papers.
    The function gets the profile's name and the figure's entry, reads what is stored, and returns matplotlib's figure.

    Args:
        experiment: ``<paper>/<task>``, whose runs it needs.
        label: what the gallery calls it; the function's name where left out.
        variants: one of these must be in the profile; any where none is named. ``against``: and all of these.

    Raises:
        ConfigError: no such experiment, a function without a docstring, or a name that is taken.
    """
    task_of(experiment)

    def added(draw: DrawFigure) -> DrawFigure:
        name = f"{experiment.partition('/')[0]}_{draw.__name__}"
        taken = known_figures().get(name)
        if taken is not None and (taken.draw is None or taken.draw.__module__ != draw.__module__):
            raise ConfigError(f"add_figure: the name {name!r} is taken by another figure")
        if not (caption := " ".join((draw.__doc__ or "").split())):
            raise ConfigError(f"add_figure: {name!r} has no docstring, expected its caption")
        called = label or draw.__name__.replace("_", " ")
        _own[name] = FigureEntry(name, "own", experiment, caption, called, variants, against, draw=draw)
        return draw

    return added


def figures_of_paper(name: str) -> dict[str, FigureEntry]:
    """Every figure of a paper by its name: task by task those by epoch and what the paper's file lists, then one's own.

    Raises:
        ConfigError: there is no such paper, or its file is wrong.
    """
    entries, paper = [], load_paper(name)
    for task, content in paper.tasks.items():
        caption = TASKS[content.kind or task].curves_caption
        entries.append(FigureEntry(f"{name}_{task}_curves", CURVES, f"{name}/{task}", caption))
        entries.append(
            FigureEntry(f"{name}_{task}_heads_by_epoch", HEADS, f"{name}/{task}", FIGURE_KINDS[HEADS].caption)
        )
        entries += [_entry(name, key, figure) for key, figure in paper.figures.items() if figure.task == task]
    return {entry.name: entry for entry in (*entries, *_own.values()) if entry.paper == name}


def _entry(paper: str, name: str, figure: PaperFigure) -> FigureEntry:
    name, beside = f"{paper}_{name}", tuple(f"{paper}/{task}" for task in figure.beside)
    larger = f"; {' and '.join(beside)} where the profile has them" if beside else ""
    caption = figure.caption or FIGURE_KINDS[figure.kind].caption.format(
        label=figure.label, and_larger=larger, **figure.options
    )
    needs = (figure.variants, figure.against, beside, figure.options)
    return FigureEntry(name, figure.kind, f"{paper}/{figure.task}", caption, figure.label or name, *needs)


def known_figures() -> dict[str, FigureEntry]:
    """The figures of all papers by name, those drawn on request too."""
    return {name: entry for paper in paper_names() for name, entry in figures_of_paper(paper).items()}


def figure_entry(name: str, profile: str | None = None) -> FigureEntry:
    """The figure of this name, which a plugin of the profile may add.

    Raises:
        ConfigError: the profile is wrong.
        DataError: there is no such figure.
    """
    if profile is not None:
        Runs(profile)  # which loads its plugins
    if name not in (known := known_figures()):
        raise DataError(f"figure {name!r} is not known{nearest(name, list(known))}")
    return known[name]


def figures_of(
    configured: Iterable[tuple[str, str]], by_epoch: Container[str] = (), pruned: Container[str] = ()
) -> dict[str, FigureEntry]:
    """The figures that runs, (experiment, variant) each, allow.

    ``by_epoch``: the experiments whose heads are measured after each epoch; ``pruned``: those whose runs' heads are
    masked.
    """
    variants: dict[str, set[str]] = {}
    for experiment, variant in configured:
        variants.setdefault(experiment, set()).add(variant)
    return {
        name: entry
        for paper in dict.fromkeys(experiment.partition("/")[0] for experiment in variants)
        for name, entry in figures_of_paper(paper).items()
        if (entry.kind != PRUNING or entry.experiment in pruned)
        and (entry.kind != HEADS or entry.experiment in by_epoch)
        and (listed := variants.get(entry.experiment))
        and (not entry.variants or listed & set(entry.variants))
        and listed.issuperset(entry.against)
    }


def tables_of(experiments: Iterable[str], tuned: Container[str] = (), pruned: Container[str] = ()) -> dict[str, str]:
    """The tables that these experiments give, each with the experiment whose runs it needs.

    A table about an experiment's data comes before that of its results; then, where arms are ``tuned``, that of tuning,
    and where heads are ``pruned``, that of how many.
    """
    found = {}
    for experiment in experiments:
        paper, _, task = experiment.partition("/")
        about = {f"{paper}/{name}": experiment for name, t in load_paper(paper).tables.items() if t.task == task}
        found |= about | {experiment: experiment}
        found |= {f"{experiment}{OF_TUNING}": experiment} if experiment in tuned else {}
        found |= {f"{experiment}{OF_PRUNING}": experiment} if experiment in pruned else {}
    return found
