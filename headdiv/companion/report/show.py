"""Tables and figures for notebooks, of one profile or of the best that is stored; a line of text where none is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from IPython.display import SVG, Markdown, display
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import best_profiles, score_table
from headdiv.companion.report.figures import draw, figure_entry
from headdiv.companion.report.formats import shortened, significant
from headdiv.companion.report.tables import experiment_of_table, parameter_table, table_data
from headdiv.companion.tasks.base import Run
from headdiv.core.errors import ConfigError, DataError, NotStoredError
from headdiv.core.settings import nearest

T = TypeVar("T")

DIAGRAMS = Path(__file__).parent / "diagrams"


def show_diagram(name: str) -> SVG:
    """A drawn diagram: by a paper's name its idea, in orange what is its own, in grey what every Transformer has.

    ``deacon_rows``: how each architecture forms the rows of its PCA layer, the paper's Figures 1 to 5.

    Raises:
        DataError: there is no diagram of this name.
    """
    path = DIAGRAMS / f"{name}.svg"
    if not path.is_file():
        names = [file.stem for file in sorted(DIAGRAMS.glob("*.svg"))]
        raise DataError(f"diagram {name!r} is not known{nearest(name, names)}")
    return SVG(filename=str(path))


def show_table(profile: str | None, table: str) -> Markdown:
    """A table without its heading, which the notebook has, and with how it is measured folded below it.

    Args:
        profile: whose results are shown; None: the first of `best_profiles` that has them.
        table: of an experiment's results, its data, tuning or pruning.

    Raises:
        ConfigError: no such profile or table.
        DataError: results that contradict each other.
    """
    return _first_stored(
        profile, experiment_of_table(table), lambda name: Markdown(table_data(name, table).folded()), named=False
    )


def show_parameters(profile: str | None, experiment: str) -> pd.DataFrame | Markdown:
    """The parameter audit of an experiment; ``profile`` as in `show_table`, and "paper" where nothing is stored.

    Raises:
        ConfigError: no such profile or experiment.
    """
    task_of(experiment)

    def audit(name: str) -> pd.DataFrame:
        try:
            return parameter_table(name, experiment)
        except (ConfigError, DataError) as error:  # vocabularies come from the corpus, which stored results do without
            raise NotStoredError(str(error)) from None

    return _first_stored(profile, experiment, audit, others=("paper",))


def show_figure(name: str, profile: str | None) -> Figure | Markdown:
    """A figure by name, below the profile's.

    ``profile`` is as in `show_table`. A line of text stands for a figure whose results are not stored.

    Raises:
        ConfigError: no such profile.
        DataError: no figure of this name, or results that contradict each other.
    """
    entry = figure_entry(name, Runs(profile) if profile else None)
    return _first_stored(profile, entry.experiment, lambda profile_name: draw(name, profile_name))


def _first_stored(
    profile: str | None, experiment: str, make: Callable[[str], T], others: Sequence[str] = (), named: bool = True
) -> T | Markdown:
    """What ``make`` returns for a profile, or for the best that has results; a line of text where none are stored.

    ``others``: profiles to try after those with stored results. ``named``: the profile's name stands above it.
    """
    reasons = []
    for name in [profile] if profile else [*best_profiles(experiment), *others]:
        runs = Runs(name)
        if experiment not in runs.experiments():
            reasons.append(f"Profile {runs.name} has no {experiment}.")
            continue
        try:
            result = make(name)
        except NotStoredError as error:
            reasons.append(str(error))
            continue
        if named:
            display(Markdown(f"*Profile {runs.name}:*"))
        return result
    reason = reasons[0] if reasons else f"No profile has stored results of {experiment}."
    return Markdown(f"*{reason}*")


def show_scores(metrics: Mapping[str, Any]) -> Styler:
    """Scores of one run with unit and signature."""
    return as_text(score_table(metrics), "scores")


def show_examples(run: Run, count: int) -> Styler:
    """Inputs, references and outputs of the first examples of the test set, long ones cut."""
    return as_text(run.task.examples(run, count), "examples")


def as_text(table: pd.DataFrame, name: str) -> Styler:
    """A table of text, left-aligned and broken into lines; pandas itself cuts every cell at 50 characters.

    Args:
        table: of text and numbers.
        name: identifies the table in a page; the same one gives the same bytes.
    """
    alignment = {"text-align": "left", "vertical-align": "top"}
    style = Styler(table.map(_cell), uuid=name, cell_ids=False).format(escape="html")
    style.set_table_styles([{"selector": "th", "props": list(alignment.items())}])
    return style.set_properties(**alignment, **{"white-space": "pre-wrap"})


def _cell(value: str | float) -> str:
    return shortened(value) if isinstance(value, str) else significant(value)
