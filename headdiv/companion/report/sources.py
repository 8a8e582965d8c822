"""The composition of a language model's training text: what was drawn from each source beside the paper's shares."""

from __future__ import annotations

import pandas as pd

from headdiv.companion import paths
from headdiv.companion.analysis.statistics import half_width
from headdiv.companion.experiments.papers import DataTable
from headdiv.companion.experiments.results import stored
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.formats import as_printed, plurals, with_unit
from headdiv.companion.report.scale import data_title, toy
from headdiv.companion.report.table_data import BESIDE, PLUS_MINUS, TableData

OURS = {  # columns of ours: heading, decimals, and the paper's column of the same thing
    "weight": ("Sampling (%)", 1, "sampling"),
    "tokens": ("Tokens drawn", 0, "train_billions"),
    "share": ("Share of tokens drawn (%)", 2, "share"),
    "passes": ("Passes", 0, ""),
}


def sources_data(profile: str, experiment: str, table: DataTable) -> TableData:
    """What was drawn from each source, with the sums; one sentence where the runs' text has no sources."""
    runs = stored(profile, experiment)
    numbers, data = _numbers(runs, table), runs[0].config.data
    scale = f"Profile {paths.profile_file(profile).stem}: {data_title(runs[0].data_name)}"
    if data["mixture"] is None:
        scale += " is read as one stream: without data.mixture there are no sources to compare."
        return TableData(table.table, table.title, scale, numbers)
    seeds = len({run.seed for run in runs})
    scale += (
        f", {plurals((run.epochs for run in runs), 'epoch')} of {data['epoch_tokens']:,} tokens, "
        f"{'one seed' if seeds == 1 else f'mean over {seeds} seeds'}. "
        "Tokens drawn are those of whole documents up to the last block read, document ends included."
    )
    notes = [*table.notes, PLUS_MINUS] if seeds > 1 else table.notes
    tables = {BESIDE: _cells(numbers, table, seeds)}
    return TableData(table.table, table.title, " ".join([scale, *toy(runs[0])]), numbers, tables, notes=notes)


def _numbers(runs: list[RunResult], table: DataTable) -> pd.DataFrame:
    """One line a source: ours, then what the paper reports; runs differ by seed alone, and by little.

    Columns: source; weight (%) in the mixture; tokens drawn with their documents' ends, mean over the seeds, and
    tokens_sd; share (%) of all tokens drawn; passes, how often all documents of the source were read;
    ``<name>_paper`` of each of the paper's columns. A text without a mixture is the source "all".
    """
    weights = pd.Series(runs[0].config.data["mixture"] or {"all": 1.0})
    tokens = pd.DataFrame([run.data.stream.tokens for run in runs], index=[run.seed for run in runs])[weights.index]
    tokens = tokens.groupby(level=0).mean()  # runs of one seed draw the same
    ours = pd.DataFrame(
        {
            "weight": 100 * weights / weights.sum(),
            "tokens": tokens.mean(),
            "tokens_sd": tokens.std(),
            "share": 100 * tokens.mean() / tokens.mean().sum(),
            "passes": pd.DataFrame([run.data.stream.passes for run in runs])[weights.index].max(),
        }
    )
    paper = pd.DataFrame.from_dict(table.rows, orient="index", columns=list(table.columns)).add_suffix("_paper")
    sources = list(dict.fromkeys([*table.rows, *weights.index]))
    joined = ours.reindex(sources).join(paper).astype(float)
    return joined.rename_axis("source").reset_index()


def _cells(numbers: pd.DataFrame, table: DataTable, seeds: int) -> pd.DataFrame:
    """Ours, each followed by the paper's column of the same thing where there is one, then its other columns."""
    sums = numbers.drop(columns=["source", "tokens_sd", "passes"]).sum()
    rows = pd.concat([numbers, pd.DataFrame([sums]).assign(source="Total")], ignore_index=True)
    halves = [half_width(sd, seeds) if sd > 0 else None for sd in rows["tokens_sd"]]
    paper = {
        name: (with_unit(f"{column.label}, paper", column.unit), rows[f"{name}_paper"], column.digits)
        for name, column in table.columns.items()
    }
    cells = {"Source": list(rows["source"])}
    for name, (heading, digits, counterpart) in OURS.items():
        cells[heading] = [as_printed(value, digits) for value in rows[name]]
        if name == "tokens":
            cells[heading] = [as_printed(value, digits, half) for value, half in zip(rows[name], halves, strict=True)]
        if counterpart in paper:
            heading, values, digits = paper.pop(counterpart)
            cells[heading] = [as_printed(value, digits) for value in values]
    for heading, values, digits in paper.values():
        cells[heading] = [as_printed(value, digits) for value in values]
    return pd.DataFrame(cells)
