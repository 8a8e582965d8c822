"""A paper's tables with ours beside them: results by variant, and what a task's text is made of.

A table is named like an experiment: ``deacon/translation`` is the table of that experiment's results,
``deacon/sources`` a table about the data of ``deacon/lm``.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd

from headdiv.core.files import write_text
from headdiv.experiments.papers import PaperTask, data_table_of, task_of
from headdiv.experiments.parameters import audit
from headdiv.experiments.results import RunResult
from headdiv.report.formats import as_printed, enough, significant
from headdiv.report.groups import Groups, by_variant
from headdiv.report.headtohead import PAPER, comparison_reading
from headdiv.report.reading import TableData
from headdiv.report.scale import scale
from headdiv.report.sources import sources_reading


def experiment_behind(table: str) -> str:
    """The experiment whose runs a table needs.

    Raises:
        ConfigError: there is no such table.
    """
    about = data_table_of(table)
    if about is None:
        task_of(table)
        return table
    return f"{table.partition('/')[0]}/{about.task}"


def reading(profile: str, table: str) -> TableData:
    """A table for people and for programs: of a comparison, of an experiment's results or of its data.

    Raises:
        ConfigError: no such profile or table.
        DataError: no stored results, or results that contradict each other.
    """
    if table.startswith(f"{PAPER}/"):
        return comparison_reading(profile, table)
    about = data_table_of(table)
    if about is None:
        return results_reading(profile, table)
    return sources_reading(profile, experiment_behind(table), about)


def as_markdown(profile: str, table: str) -> str:
    """A table for reading, with its scale above it, signatures and notes below."""
    return reading(profile, table).markdown()


def write_tables(profile: str, table: str, csv: Path, markdown: Path) -> None:
    """The table for programs and for people."""
    told = reading(profile, table)
    write_text(csv, told.numbers.to_csv(index=False))
    write_text(markdown, told.markdown())


# ---- results by variant


def results_table(profile: str, experiment: str) -> pd.DataFrame:
    """One line a variant: mean (and standard deviation, from two seeds on) of ours, and what the paper reports.

    Columns: variant, label, seeds, epochs, training_examples, epoch_tokens (where an epoch is so many tokens of
    a stream), then for each of the paper's columns ``<name>``, ``<name>_sd``, ``<name>_paper``, for every other
    score ``<name>``, ``<name>_sd``; at last speed and cost.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: no stored results, or results that contradict each other.
    """
    return _table(task_of(experiment), by_variant(profile, experiment))


def _table(task: PaperTask, groups: Groups) -> pd.DataFrame:
    more = list(_more(task, groups))
    base = groups.get("baseline", [{}])[0].get("parameters")
    return pd.DataFrame([_row(task, more, variant, runs, base) for variant, runs in groups.items()])


def _more(task: PaperTask, groups: Groups) -> dict[str, str]:
    """Scores that the paper's table lacks, with their units."""
    scores = next(iter(groups.values()))[0]["scores"]
    return {name: score["unit"] for name, score in scores.items() if name not in task.columns}


def _row(task: PaperTask, more: list[str], variant: str, group: list[RunResult], base: int | None) -> dict[str, Any]:
    known = task.variants.get(variant)
    row: dict[str, Any] = {
        "variant": variant,
        "label": known.label if known else variant,
        "seeds": len(group),
        "epochs": len(group[0]["curve"]),
        "training_examples": group[0]["data"]["train"].get("examples", math.nan),
        "epoch_tokens": group[0]["config"]["data"].get("epoch_tokens", math.nan),
    }
    for name in [*task.columns, *more]:
        values = [_value(metrics, name, base) for metrics in group]
        row[name] = mean(values)
        row[f"{name}_sd"] = stdev(values) if len(values) > 1 and not math.isnan(row[name]) else math.nan
        if name in task.columns:
            row[f"{name}_paper"] = known.reported.get(name, math.nan) if known else math.nan
    row["tokens_per_second"] = mean(m["cost"]["target_tokens_per_second"] for m in group)
    row["training_seconds"] = mean(m["cost"]["training_seconds"] for m in group)
    return row


def _value(metrics: RunResult, name: str, base: int | None) -> float:
    if name == "parameters":
        return metrics["parameters"]
    if name == "parameters_of_base":
        return math.nan if base is None else 100 * metrics["parameters"] / base
    if name == "training_hours":
        return metrics["cost"]["training_seconds"] / 3600
    return metrics["scores"].get(name, {"value": math.nan})["value"]


def results_reading(profile: str, experiment: str) -> TableData:
    """The results of an experiment: the paper's columns with ours beside them, then what else was measured."""
    task, groups = task_of(experiment), by_variant(profile, experiment)
    table, runs = _table(task, groups), [run for group in groups.values() for run in group]
    return TableData(
        task.table,
        task.title,
        scale(runs, profile),
        table,
        [_beside_paper(task, table), _ours_alone(table, _more(task, groups))],
        signatures={name: score["signature"] for name, score in runs[0]["scores"].items()},
        notes=[*task.notes, *_unmeasured(task, table)],
    )


def _beside_paper(task: PaperTask, table: pd.DataFrame) -> pd.DataFrame:
    """Rounded as the paper rounds, ours and the paper's side by side.

    A column of ours has more decimals where a number in it would keep fewer than two significant digits.
    """
    shown = pd.DataFrame({"Architecture": table["label"]})
    for name, column in task.columns.items():
        unit = f" ({column.unit})" if column.unit else ""
        digits, pairs = enough(table[name], column.digits), zip(table[name], table[f"{name}_sd"], strict=True)
        shown[f"{column.label}{unit}"] = [as_printed(value, digits, sd) for value, sd in pairs]
        shown[f"{column.label}, paper"] = [as_printed(value, column.digits) for value in table[f"{name}_paper"]]
    return shown


def _ours_alone(table: pd.DataFrame, more: dict[str, str]) -> pd.DataFrame:
    """What is measured beside the paper's columns, by the scores' own names."""
    shown = pd.DataFrame({"Architecture": table["label"]})
    for name, unit in more.items():
        pairs = zip(table[name], table[f"{name}_sd"], strict=True)
        shown[f"{name} ({unit})" if unit else name] = [significant(value, sd) for value, sd in pairs]
    shown["tokens/s"] = [significant(value) for value in table["tokens_per_second"]]
    shown["training (s)"] = [significant(value) for value in table["training_seconds"]]
    return shown


def _unmeasured(task: PaperTask, table: pd.DataFrame) -> list[str]:
    """The sentence about columns of the paper's that no run here has a number for."""
    lacking = [column.label for name, column in task.columns.items() if table[name].isna().all()]
    return [f"Not measured in these runs: {', '.join(lacking)}."] if lacking else []


def parameter_table(profile: str, experiment: str) -> pd.DataFrame:
    """`audit` as a table, with the difference to the paper, at its sizes where they are known."""
    table = pd.DataFrame(audit(profile, experiment)).T
    counts = table[["parameters", "at_paper_sizes", "paper"]].astype("Int64")
    judged = counts["at_paper_sizes"].fillna(counts["parameters"])
    return counts.assign(difference=judged - counts["paper"], follows=table["follows"])
