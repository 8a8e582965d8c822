"""Which tables a profile has, and how they are made and written.

A table is named like an experiment: ``deacon/translation`` is the table of that experiment's results,
``deacon/sources`` a table about the data of ``deacon/lm``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from headdiv.companion.experiments.papers import data_table_of, load_paper, task_of
from headdiv.companion.experiments.parameters import audit
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report.headtohead import comparison_data
from headdiv.companion.report.pruning import pruning_data
from headdiv.companion.report.result_tables import family_data, results_data, results_of
from headdiv.companion.report.sources import sources_data
from headdiv.companion.report.table_data import OF_PRUNING, OF_TUNING, TableData
from headdiv.companion.report.tuning import tuning_data
from headdiv.core.errors import ConfigError
from headdiv.core.files import write_text
from headdiv.core.settings import nearest

WRITERS: dict[str, Callable[[TableData], str]] = {".csv": TableData.csv, ".md": TableData.markdown}


def tables_of(runs: Runs) -> dict[str, str]:
    """The tables that a profile's runs give, each with the experiment whose runs it needs.

    A table about an experiment's data comes before that of its results; then those of tuning and pruning.
    """
    tables = {}
    for experiment in runs.experiments():
        paper, _, task = experiment.partition("/")
        data_tables = [name for name, table in load_paper(paper).tables.items() if table.task == task]
        if data_tables and not task_of(experiment).shown_on(runs.planned(experiment)[0].data.model_dump()).others_data:
            tables |= {f"{paper}/{name}": experiment for name in data_tables}
        tables[experiment] = experiment
        if experiment in runs.arms:
            tables[f"{experiment}{OF_TUNING}"] = experiment
        if experiment in runs.pruned():
            tables[f"{experiment}{OF_PRUNING}"] = experiment
    return tables


def experiment_of_table(table: str, profile: str | None = None) -> str:
    """The experiment whose runs a table needs.

    Raises:
        ConfigError: there is no such table; with a ``profile`` the message suggests one of its tables.
    """
    experiment = table.removesuffix(OF_TUNING).removesuffix(OF_PRUNING)
    if profile is not None:
        tables = tables_of(Runs(profile))
        if experiment not in tables:
            raise ConfigError(f"profile {profile}: no table {table!r}{nearest(table, list(tables))}")
    data_table = data_table_of(table)
    if data_table is None:
        task_of(experiment)
        return experiment
    return f"{table.partition('/')[0]}/{data_table.task}"


def table_data(profile: str, table: str) -> TableData:
    """A table for people and for programs: of an experiment's results, its data, its tuning or its heads' pruning.

    Raises:
        ConfigError: no such profile or table.
        DataError: no stored results, or results that contradict each other.
    """
    data_table, experiment = data_table_of(table), experiment_of_table(table)
    if data_table is not None:
        return sources_data(profile, experiment, data_table)
    if table.endswith(OF_TUNING):
        return tuning_data(profile, experiment)
    if table.endswith(OF_PRUNING):
        return pruning_data(profile, experiment)
    results = results_of(profile, experiment)
    if results.task.families:
        return family_data(results)
    return comparison_data(results) if results.task.compares_outputs else results_data(results)


def write_table(profile: str, table: str, *paths: Path) -> None:
    """Write a table to files: ``.csv`` for programs, to ten digits; ``.md``.

    Raises:
        ConfigError: no such profile or table, or another ending.
        DataError: no stored results.
    """
    for path in paths:
        if path.suffix not in WRITERS:
            raise ConfigError(f"{path}: a table is written as one of {', '.join(WRITERS)}")
    data = table_data(profile, table)
    for path in paths:
        write_text(path, WRITERS[path.suffix](data))


def parameter_table(profile: str, experiment: str) -> pd.DataFrame:
    """`audit` as a table, with the difference from the paper, at its sizes where they are known.

    A column without a value, as of a paper that prints no count, is left out.
    """
    table = pd.DataFrame(audit(profile, experiment)).T
    counts = table[["parameters", "at_paper_sizes", "paper"]].astype("Int64")
    comparable = counts["at_paper_sizes"].fillna(counts["parameters"])
    audited = counts.assign(difference=comparable - counts["paper"], follows=table["follows"])
    return audited.dropna(axis="columns", how="all")
