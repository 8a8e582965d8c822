"""Tables and figures for notebooks; a line of text where the profile lacks them, so one notebook fits all profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import SVG, Markdown
from pandas.io.formats.style import Styler

from headdiv.companion.experiments.catalogue import OF_PRUNING, OF_TUNING, figure_entry
from headdiv.companion.experiments.evaluation import examples
from headdiv.companion.experiments.figure_kinds import HEADS, PRUNING, TUNING
from headdiv.companion.experiments.importance import stored_importance
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import score_table
from headdiv.companion.experiments.run_result import RunResult, stored_files
from headdiv.companion.report.formats import shortened, significant
from headdiv.companion.report.tables import experiment_of_table, parameter_table, table_data
from headdiv.companion.tasks.base import Run
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.settings import nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MADE_OF = {OF_TUNING: TUNING, OF_PRUNING: PRUNING}  # by the end of a table's name: the kind of figure beside it
DIAGRAMS = Path(__file__).parent / "diagrams"  # <paper>.svg


def show_diagram(paper: str) -> SVG:
    """The paper's idea as a diagram: what is the paper's own stands in orange, what every Transformer has in grey.

    Raises:
        DataError: there is no diagram of this paper.
    """
    path = DIAGRAMS / f"{paper}.svg"
    if not path.is_file():
        known = [found.stem for found in sorted(DIAGRAMS.glob("*.svg"))]
        raise DataError(f"diagram {paper!r} is not known{nearest(paper, known)}")
    return SVG(filename=str(path))


def show_table(profile: str, table: str) -> Markdown:
    """A table without its heading, which the notebook has, and with how it is measured folded below it.

    Raises:
        ConfigError: no such profile or table.
        DataError: no stored results.
    """
    made_of = next((kind for end, kind in MADE_OF.items() if table.endswith(end)), "")
    lacking = _lacking(profile, experiment_of_table(table), kind=made_of)
    return Markdown(table_data(profile, table).folded()) if lacking is None else lacking


def show_parameters(profile: str, experiment: str) -> pd.DataFrame | Markdown:
    """The parameter audit of an experiment.

    Raises:
        ConfigError: no such profile or experiment.
    """
    task_of(experiment)
    lacking = _lacking(profile, experiment, stored=False)
    if lacking is not None:
        return lacking
    try:
        return parameter_table(profile, experiment)
    except (ConfigError, DataError) as error:  # vocabularies come from the corpus, which stored results do without
        return Markdown(f"*{error}*")


def show_figure(name: str, profile: str, **options: Any) -> Figure | Markdown:
    """A figure by name; ``options`` in the place of its own, as `headdiv figure --option`.

    Raises:
        ConfigError: no such profile, or the figure has no such option or value.
        DataError: no figure of this name, or no stored results to draw it from.
    """
    from headdiv.companion.report.figures import draw  # a second and a half that notebooks without figures are spared

    entry = figure_entry(name, profile)
    lacking = _lacking(profile, entry.experiment, entry.variants, entry.against, kind=entry.kind)
    return draw(name, profile, **options) if lacking is None else lacking


def _lacking(
    profile: str,
    experiment: str,
    variants: tuple[str, ...] = (),
    all_of: tuple[str, ...] = (),
    stored: bool = True,
    kind: str = "",
) -> Markdown | None:
    """A line that names what the profile lacks; None if it lacks nothing. ``kind``: of the figure."""
    runs = Runs(profile)
    if experiment not in runs.experiments():
        return Markdown(f"*Profile {runs.name} has no {experiment}.*")
    configs = runs.planned(experiment)
    there = {config.variant for config in configs}
    if variants and not there & set(variants):
        return Markdown(f"*Profile {runs.name} has no {' or '.join(variants)} in {experiment}.*")
    if missing := [variant for variant in all_of if variant not in there]:
        return Markdown(f"*Profile {runs.name} has no {' and no '.join(missing)} in {experiment}.*")
    if kind == TUNING:
        tuned = any(arm.choice for arm in runs.arms.get(experiment, {}).values())
        return None if tuned else Markdown(f"*No arm of {experiment} is tuned yet in profile {runs.name}.*")
    if kind == PRUNING:
        masked = stored_importance(profile, experiment)
        return None if masked else Markdown(f"*No heads of {experiment} are masked yet in profile {runs.name}.*")
    if kind == HEADS and not any(config.train.epoch_heads for config in configs):
        return Markdown(f"*Profile {runs.name} does not measure the heads of {experiment} after each epoch.*")
    if stored and not stored_files(profile, configs):
        return Markdown(f"*There are no stored results of {experiment} in profile {runs.name}.*")
    return None


def show_scores(metrics: Mapping[str, Any] | RunResult) -> Styler:
    """Scores of one run with unit and signature."""
    return as_text(score_table(metrics), "scores")


def show_examples(run: Run, count: int) -> Styler:
    """Inputs, references and outputs of the first examples of the test set, long ones cut."""
    return as_text(examples(run, count), "examples")


def as_text(table: pd.DataFrame, name: str) -> Styler:
    """A table of text, left-aligned and broken into lines; pandas itself cuts every cell at 50 characters.

    Args:
        table: of text and numbers.
        name: identifies the table in a page; the same one gives the same bytes.
    """
    left = {"text-align": "left", "vertical-align": "top"}
    style = Styler(table.map(_cell), uuid=name, cell_ids=False).format(escape="html")
    style.set_table_styles([{"selector": "th", "props": list(left.items())}])
    return style.set_properties(**left, **{"white-space": "pre-wrap"})


def _cell(value: str | float) -> str:
    return shortened(value) if isinstance(value, str) else significant(value)
