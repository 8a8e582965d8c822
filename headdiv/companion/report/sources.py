"""The composition of a language model's training text: what was drawn from each source beside the paper's shares."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headdiv.companion import paths
from headdiv.companion.analysis.statistics import half_width
from headdiv.companion.experiments.papers import DataTable
from headdiv.companion.experiments.results import stored
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.formats import as_printed, plurals, with_unit
from headdiv.companion.report.scale import data_title, toy
from headdiv.companion.report.table_data import BESIDE, PLUS_MINUS, TableData

TOTAL = "Total"


def sources_table(profile: str, experiment: str, table: DataTable) -> pd.DataFrame:
    """One line a source: ours, then what the paper reports; runs differ by seed alone, and by little.

    Columns: source; weight (%) in the mixture; tokens drawn with their documents' ends, mean over the seeds, and
    tokens_sd; share (%) of all tokens drawn; passes, how often all documents of the source were read;
    ``<name>_paper`` of each of the paper's columns. A text without a mixture is the source "all".
    """
    runs = stored(profile, experiment)
    mixture = runs[0].config.data["mixture"] or {"all": 1.0}
    every = pd.DataFrame([run.data.stream.tokens for run in runs], index=[run.seed for run in runs])
    drawn = every.groupby(level=0).mean()  # runs of one seed draw the same
    rows = []
    for name in dict.fromkeys([*table.rows, *mixture]):
        row: dict[str, Any] = dict.fromkeys(("source", "weight", "tokens", "tokens_sd", "share", "passes"))
        row["source"] = name
        if name in mixture:
            row["weight"] = 100 * mixture[name] / sum(mixture.values())
            row |= {"tokens": drawn[name].mean(), "tokens_sd": drawn[name].std()}
            row["share"] = 100 * row["tokens"] / drawn.mean().sum()
            row["passes"] = max(run.data.stream.passes[name] for run in runs)
        rows.append(row | {f"{column}_paper": table.rows.get(name, {}).get(column) for column in table.columns})
    numbers = pd.DataFrame(rows)
    return numbers.astype({name: float for name in numbers.columns if name != "source"})


def sources_data(profile: str, experiment: str, table: DataTable) -> TableData:
    """`sources_table` for display, with the sums; one sentence where the runs' text has no sources."""
    runs = stored(profile, experiment)
    numbers = sources_table(profile, experiment, table)
    if runs[0].config.data["mixture"] is None:
        said = f"{_begin(runs, profile)} is read as one stream: without data.mixture there are no sources to compare."
        return TableData(table.table, table.title, said, numbers)
    total = {"source": TOTAL, "tokens_sd": None, "passes": None}
    sums = {name: numbers[name].sum() for name in numbers.columns if name not in total}
    seeds = len({run.seed for run in runs})
    shown = pd.DataFrame([_cells(row, table, seeds) for row in [*numbers.to_dict("records"), total | sums]])
    epochs, size = plurals((run.epochs for run in runs), "epoch"), runs[0].config.data["epoch_tokens"]
    said = (
        f"{_begin(runs, profile)}, {epochs} of {size:,} tokens, "
        f"{'one seed' if seeds == 1 else f'mean over {seeds} seeds'}. "
        "Tokens drawn are those of whole documents up to the last block read, document ends included."
    )
    notes = [*table.notes, *([PLUS_MINUS] if seeds > 1 else [])]
    return TableData(table.table, table.title, " ".join([said, *toy(runs[0])]), numbers, {BESIDE: shown}, notes=notes)


def _begin(runs: list[RunResult], profile: str) -> str:
    return f"Profile {paths.profile_file(profile).stem}: {data_title(runs[0].data_name)}"


def _cells(row: dict[str, Any], table: DataTable, seeds: int) -> dict[str, str]:
    """Ours, each followed by the paper's column of the same thing where there is one, then its other columns."""
    paper = {
        name: (with_unit(f"{column.label}, paper", column.unit), as_printed(row[f"{name}_paper"], column.digits))
        for name, column in table.columns.items()
    }
    sd = row["tokens_sd"]
    half = half_width(sd, seeds) if sd is not None and sd > 0 else None
    cells = [("Source", row["source"])]
    for heading, value, same in (
        ("Sampling (%)", as_printed(row["weight"], 1), "sampling"),
        ("Tokens drawn", as_printed(row["tokens"], 0, half), "train_billions"),
        ("Share of tokens drawn (%)", as_printed(row["share"], 2), "share"),
        ("Passes", as_printed(row["passes"], 0), None),
    ):
        cells += [(heading, value), *([paper.pop(same)] if same in paper else [])]
    return dict([*cells, *paper.values()])
