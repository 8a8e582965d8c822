"""The figures that there are, and how they are drawn from stored metrics.

A paper's file lists its figures; every task of a paper has learning curves, heads by epoch and the pruning of heads
besides, and plugins add figures of one's own (`add_figure`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

from headdiv.companion.experiments.papers import PaperFigure, load_paper, paper_names, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import stored_files
from headdiv.companion.report import (  # noqa: F401 (each adds its kinds)
    curves,
    differences,
    diversity,
    gap,
    head_history,
    heads,
    homeostasis,
    moa,
    pruning,
)
from headdiv.companion.report.figure_kinds import KINDS, DrawFigure, FigureEntry
from headdiv.companion.report.groups import labels_of
from headdiv.companion.report.plotting import STYLE, add_title
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import ConfigError, DataError, NotStoredError
from headdiv.core.files import replacing
from headdiv.core.settings import nearest

_NOT_XML = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # with metadata that would change the bytes
OF_EVERY_TASK = {"curves": "curves", "heads_by_epoch": "heads-by-epoch", "pruning": "pruning"}  # kinds by names' ends

_plugin_figures: dict[str, FigureEntry] = {}


def add_figure(experiment: str) -> Callable[[DrawFigure], DrawFigure]:
    """Make a function a figure of one's own, ``<paper>_<its name>``; its docstring is the caption.

    A profile names its file under ``plugins``: the figure is then drawn, and shown in the report, like those of papers.
    The function gets the profile's name and the figure's entry, reads what is stored, and returns matplotlib's figure.

    Args:
        experiment: ``<paper>/<task>``, whose runs it needs.

    Raises:
        ConfigError: no such experiment, a function without a docstring, or a name that is taken.
    """
    task_of(experiment)

    def register(draw: DrawFigure) -> DrawFigure:
        paper = experiment.partition("/")[0]
        name = f"{paper}_{draw.__name__}"
        existing = figures_of_paper(paper).get(name)
        if existing is not None and existing.draw.__module__ != draw.__module__:
            raise ConfigError(f"add_figure: the name {name!r} is taken by another figure")
        caption = " ".join((draw.__doc__ or "").split())
        if not caption:
            raise ConfigError(f"add_figure: {name!r} has no docstring, expected its caption")
        _plugin_figures[name] = FigureEntry(name, draw, experiment, caption, draw.__name__.replace("_", " "))
        return draw

    return register


def figures_of_paper(name: str) -> dict[str, FigureEntry]:
    """Every figure of a paper by its name: task by task those of every task and what its file lists, then one's own.

    Raises:
        ConfigError: there is no such paper, or its file is wrong.
    """
    entries, paper = [], load_paper(name)
    for task, content in paper.tasks.items():
        for ending, kind in OF_EVERY_TASK.items():
            caption = KINDS[kind].caption or TASKS[content.kind or task].curves_caption
            entries.append(_entry(name, f"{task}_{ending}", PaperFigure(kind=kind, task=task, caption=caption)))
        entries += [_entry(name, key, figure) for key, figure in paper.figures.items() if figure.task == task]
    return {entry.name: entry for entry in (*entries, *_plugin_figures.values()) if entry.paper == name}


def _entry(paper: str, name: str, figure: PaperFigure) -> FigureEntry:
    beside = tuple(f"{paper}/{task}" for task in figure.beside)
    kind = KINDS[figure.kind]
    return replace(
        kind,
        name=f"{paper}_{name}",
        experiment=f"{paper}/{figure.task}",
        caption=figure.caption or kind.caption,
        label=figure.label or f"{paper}_{name}",
        variants=figure.variants,
        beside=beside,
        options=figure.options,
    )


def known_figures() -> dict[str, FigureEntry]:
    """The figures of all papers by name, those drawn on request too."""
    return {name: entry for paper in paper_names() for name, entry in figures_of_paper(paper).items()}


def figure_entry(name: str, runs: Runs | None = None) -> FigureEntry:
    """The figure of this name, which a plugin of a profile may add.

    Raises:
        DataError: there is no such figure; the message suggests one of the profile's, or of all without a profile.
    """
    paper = name.partition("_")[0]  # whose name has no _
    entries = figures_of_paper(paper) if paper in paper_names() else {}
    if name not in entries:
        others = figures_of(runs) if runs else known_figures()
        raise DataError(f"figure {name!r} is not known{nearest(name, list(others))}")
    return entries[name]


def figures_of(runs: Runs) -> dict[str, FigureEntry]:
    """The figures that a profile's runs allow; those that `headdiv importance` allows on request are not among them."""
    entries = (entry for paper in runs.papers() for entry in figures_of_paper(paper).values())
    return {entry.name: entry for entry in entries if entry.planned_in(runs)}


def draw(name: str, profile: str) -> Figure:
    """Draw a figure by name.

    Args:
        name: of the figure.
        profile: name or path of a profile.

    Raises:
        ConfigError: no such profile, or it has no experiment of the figure's.
        DataError: no figure of this name, or no stored results to draw it from.
    """
    runs = Runs(profile)
    entry = figure_entry(name, runs)
    stored = {
        experiment: {config.variant for config in stored_files(profile, runs.configs(experiment)).values()}
        for experiment in dict.fromkeys((entry.experiment, *entry.experiments_in(runs)))
    }
    variants = stored[entry.experiment]
    if variants and (missing := entry.lacks(variants)):
        raise NotStoredError(f"{entry.label} needs {missing} among the stored runs of profile {profile}")
    with matplotlib.rc_context(STYLE):
        figure = entry.draw(profile, entry, **entry.options)
        if not isinstance(figure, Figure):
            raise ConfigError(f"{entry.name}: its function returned {figure!r}, expected a matplotlib Figure")
        if entry.compares:
            labels = labels_of(entry.experiment, entry.names)
            absent = [label for variant, label in labels.items() if variant not in stored[entry.experiment]]
            absent += [experiment for experiment in entry.beside if not stored.get(experiment)]
            if absent:
                note = f"Incomplete; not stored in this profile: {', '.join(absent)}"
                add_title(figure, f"{figure.get_suptitle()}\n{note}")
    for text in figure.findobj(Text):  # text from results is no formula, and must be valid XML
        text.set_text(_NOT_XML.sub("\ufffd", text.get_text()).replace("$", r"\$"))
    return figure


def write_figure(name: str, profile: str, *paths: Path) -> None:
    """Draw a figure once and write it in the format of each path's ending.

    Raises:
        DataError: no such figure, no results, or an ending that is not in `FORMATS`.
    """
    for path in paths:
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: a figure is written as one of {', '.join(FORMATS)}")
    figure = draw(name, profile)
    for path in paths:
        metadata = {FORMATS[path.suffix]: None}
        with matplotlib.rc_context(STYLE), replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=metadata, facecolor="white")
