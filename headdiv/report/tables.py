"""A paper's tables with ours beside them: results by variant, and what a task's text is made of.

A table is named like an experiment: ``deacon/translation`` is the table of that experiment's results,
``deacon/sources`` a table about the data of ``deacon/lm``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd

from headdiv.files import write_text
from headdiv.papers import Task, data_table_of, load_paper, task_of
from headdiv.params import audit
from headdiv.report.formats import as_printed, enough, significant
from headdiv.report.headtohead import PAPER, comparison_reading, comparison_table
from headdiv.report.reading import Reading
from headdiv.report.scale import scale
from headdiv.report.sources import sources_reading, sources_table
from headdiv.report.store import Metrics, stored


def tables_of(experiments: Iterable[str]) -> dict[str, str]:
    """The tables that these experiments give, each with the experiment whose runs it needs.

    A table about an experiment's data comes before that of its results.
    """
    found = {}
    for experiment in experiments:
        paper, _, task = experiment.partition("/")
        about = {f"{paper}/{name}": experiment for name, t in load_paper(paper).tables.items() if t.task == task}
        found |= about | {experiment: experiment}
    return found


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


def numbers(profile: str, table: str) -> pd.DataFrame:
    """A table for programs: `comparison_table`, `results_table` or `sources_table`."""
    if table.startswith(f"{PAPER}/"):
        return comparison_table(profile, table)
    about = data_table_of(table)
    if about is None:
        return results_table(profile, table)
    return sources_table(profile, experiment_behind(table), about)


def reading(profile: str, table: str) -> Reading:
    """A table for people."""
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
    write_text(csv, numbers(profile, table).to_csv(index=False))
    write_text(markdown, as_markdown(profile, table))


# ---- results by variant


def results_table(profile: str, experiment: str) -> pd.DataFrame:
    """One line a variant: mean (and standard deviation, from two seeds on) of ours, and what the paper reports.

    Columns: variant, label, seeds, epochs, training_examples, epoch_tokens (where an epoch is so many tokens of
    a stream), then for each of the paper's columns ``<name>``, ``<name>_sd``, ``<name>_paper``, for every other
    score ``<name>``, ``<name>_sd``; at last speed and cost.
    """
    task = task_of(experiment)
    runs = stored(profile, experiment)
    by_variant: dict[str, list[Metrics]] = {}
    for metrics in sorted(runs, key=lambda m: (_order(task, m["variant"]), m["variant"], m["seed"])):
        by_variant.setdefault(metrics["variant"], []).append(metrics)
    base = by_variant.get("baseline", [{}])[0].get("parameters")
    more = list(_more(task, runs[0]))
    return pd.DataFrame([_row(task, more, variant, group, base) for variant, group in by_variant.items()])


def _order(task: Task, variant: str) -> int:
    names = list(task.variants)
    return names.index(variant) if variant in names else len(names)


def _more(task: Task, metrics: Metrics) -> dict[str, str]:
    """Scores that the paper's table lacks, with their units."""
    return {name: score["unit"] for name, score in metrics["scores"].items() if name not in task.columns}


def _row(task: Task, more: list[str], variant: str, group: list[Metrics], base: int | None) -> dict[str, Any]:
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


def _value(metrics: Metrics, name: str, base: int | None) -> float:
    if name == "parameters":
        return metrics["parameters"]
    if name == "parameters_of_base":
        return math.nan if base is None else 100 * metrics["parameters"] / base
    if name == "training_hours":
        return metrics["cost"]["training_seconds"] / 3600
    return metrics["scores"].get(name, {"value": math.nan})["value"]


def display_table(profile: str, experiment: str) -> pd.DataFrame:
    """`results_table` for reading: rounded as the paper rounds, ours and the paper's side by side.

    A column of ours has more decimals where a number in it would keep fewer than two significant digits.
    """
    task, table = task_of(experiment), results_table(profile, experiment)
    shown = pd.DataFrame({"Architecture": table["label"]})
    for name, column in task.columns.items():
        unit = f" ({column.unit})" if column.unit else ""
        digits, pairs = enough(table[name], column.digits), zip(table[name], table[f"{name}_sd"], strict=True)
        shown[f"{column.label}{unit}"] = [as_printed(value, digits, sd) for value, sd in pairs]
        shown[f"{column.label}, paper"] = [as_printed(value, column.digits) for value in table[f"{name}_paper"]]
    return shown


def further_table(profile: str, experiment: str) -> pd.DataFrame:
    """What is measured beside the paper's columns, by the scores' own names."""
    task, table = task_of(experiment), results_table(profile, experiment)
    shown = pd.DataFrame({"Architecture": table["label"]})
    for name, unit in _more(task, stored(profile, experiment)[0]).items():
        pairs = zip(table[name], table[f"{name}_sd"], strict=True)
        shown[f"{name} ({unit})" if unit else name] = [significant(value, sd) for value, sd in pairs]
    shown["tokens/s"] = [significant(value) for value in table["tokens_per_second"]]
    shown["training (s)"] = [significant(value) for value in table["training_seconds"]]
    return shown


def results_reading(profile: str, experiment: str) -> Reading:
    """The results of an experiment for reading."""
    task, runs = task_of(experiment), stored(profile, experiment)
    return Reading(
        task.table,
        task.title,
        scale(runs, profile),
        [display_table(profile, experiment), further_table(profile, experiment)],
        signatures={name: score["signature"] for name, score in runs[0]["scores"].items()},
        notes=[*task.notes, *_unmeasured(task, results_table(profile, experiment))],
    )


def _unmeasured(task: Task, table: pd.DataFrame) -> list[str]:
    """The sentence about columns of the paper's that no run here has a number for."""
    lacking = [column.label for name, column in task.columns.items() if table[name].isna().all()]
    return [f"Not measured in these runs: {', '.join(lacking)}."] if lacking else []


def parameter_table(profile: str, experiment: str) -> pd.DataFrame:
    """`headdiv.params.audit` as a table, with the difference to the paper, at its sizes where they are known."""
    table = pd.DataFrame(audit(profile, experiment)).T
    counts = table[["parameters", "at_paper_sizes", "paper"]].astype("Int64")
    judged = counts["at_paper_sizes"].fillna(counts["parameters"])
    return counts.assign(difference=judged - counts["paper"], follows=table["follows"])
