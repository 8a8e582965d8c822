"""A paper's table with ours beside it."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pandas as pd
from IPython.display import Markdown

from headdiv import places
from headdiv.files import write_text
from headdiv.papers import Column, Task, task_of
from headdiv.params import audit
from headdiv.report.store import Metrics, stored


def results_table(profile: str, experiment: str) -> pd.DataFrame:
    """One line a variant: mean (and standard deviation, from two seeds on) of ours, and what the paper reports.

    Columns: variant, label, seeds, epochs, training_pairs, then for each of the paper's columns
    ``<name>``, ``<name>_sd``, ``<name>_paper``; at last cost.
    """
    task = task_of(experiment)
    runs = stored(profile, experiment)
    by_variant: dict[str, list[Metrics]] = {}
    for metrics in sorted(runs, key=lambda m: (_order(task, m["variant"]), m["variant"], m["seed"])):
        by_variant.setdefault(metrics["variant"], []).append(metrics)
    base = by_variant.get("baseline", [{}])[0].get("parameters")
    return pd.DataFrame([_row(task, variant, group, base) for variant, group in by_variant.items()])


def _order(task: Task, variant: str) -> int:
    names = list(task.variants)
    return names.index(variant) if variant in names else len(names)


def _row(task: Task, variant: str, group: list[Metrics], base: int | None) -> dict[str, Any]:
    known = task.variants.get(variant)
    row: dict[str, Any] = {
        "variant": variant,
        "label": known.label if known else variant,
        "seeds": len(group),
        "epochs": len(group[0]["curve"]),
        "training_pairs": group[0]["data"]["train"]["pairs"],
    }
    for name in task.columns:
        values = [_value(metrics, name, base) for metrics in group]
        row[name] = mean(values) if None not in values else None
        row[f"{name}_sd"] = stdev(values) if len(values) > 1 and None not in values else None
        row[f"{name}_paper"] = known.reported.get(name) if known else None
    row["tokens_per_second"] = mean(m["cost"]["target_tokens_per_second"] for m in group)
    row["training_seconds"] = mean(m["cost"]["training_seconds"] for m in group)
    return row


def _value(metrics: Metrics, name: str, base: int | None) -> float | None:
    if name == "parameters":
        return metrics["parameters"]
    if name == "parameters_of_base":
        return None if base is None else 100 * metrics["parameters"] / base
    return metrics["scores"][name]["value"]


def display_table(profile: str, experiment: str) -> pd.DataFrame:
    """`results_table` for reading: rounded as the paper rounds, ours and the paper's side by side."""
    task = task_of(experiment)
    table = results_table(profile, experiment)
    shown = pd.DataFrame({"Architecture": table["label"]})
    for name, column in task.columns.items():
        unit = f" ({column.unit})" if column.unit else ""
        shown[f"{column.label}{unit}"] = [_shown(row[name], row[f"{name}_sd"], column) for _, row in table.iterrows()]
        shown[f"{column.label}, paper"] = [_shown(value, None, column) for value in table[f"{name}_paper"]]
    return shown


def as_markdown(profile: str, experiment: str) -> str:
    """The table for reading, with its scale above it and signatures below."""
    task = task_of(experiment)
    shown = display_table(profile, experiment)
    runs = stored(profile, experiment)
    lines = [
        f"# {task.table}: {task.title}",
        "",
        scale(runs, profile),
        "",
        shown.to_markdown(index=False, disable_numparse=True, colalign=["left"] + ["right"] * (shown.shape[1] - 1)),
        "",
        *(f"- {name}: {score['signature']}" for name, score in runs[0]["scores"].items()),
        *(f"- {note}" for note in task.notes),
    ]
    return "\n".join(lines) + "\n"


def show_table(profile: str, experiment: str) -> Markdown:
    """`as_markdown` for a notebook, whose own headings come before it."""
    return Markdown(as_markdown(profile, experiment).split("\n", 2)[2])


def scale(runs: list[Metrics], profile: str) -> str:
    """One sentence that says how large the runs were, and that a toy is a toy."""
    config = runs[0]["config"]
    data, train = runs[0]["data"], config["train"]
    seeds = sorted({run["seed"] for run in runs})
    machines = sorted({f"{run['provenance']['device']}, {run['provenance']['threads']} thread(s)" for run in runs})
    epochs = sorted({len(run["curve"]) for run in runs})
    name = places.profile_file(profile).stem
    said = (
        f"Profile {name}: {config['data']['name']}, {data['train']['pairs']:,} training pairs, "
        f"{data['test']['pairs']:,} test pairs, {' or '.join(map(str, epochs))} epochs of batches of "
        f"{train['tokens_per_batch']:,} target tokens, d = {config['model']['d_model']}, "
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}, {'; '.join(machines)}."
    )
    if config["data"]["name"] == "toy":
        said += " **A toy corpus: this shows that the pipeline works and reproduces nothing of the paper.**"
    return said


def _shown(value: float | None, sd: float | None, column: Column) -> str:
    if value is None or pd.isna(value):
        return "–"
    text = f"{value:,.{column.digits}f}"
    return text if sd is None or pd.isna(sd) else f"{text} ± {sd:,.{column.digits}f}"


def write_tables(profile: str, experiment: str, csv: Path, markdown: Path) -> None:
    """The table for programs and for people."""
    write_text(csv, results_table(profile, experiment).to_csv(index=False))
    write_text(markdown, as_markdown(profile, experiment))


def parameter_table(profile: str, experiment: str) -> pd.DataFrame:
    """`headdiv.params.audit` as a table, with the difference to the paper."""
    table = pd.DataFrame(audit(profile, experiment)).T.astype("Int64")
    return table.assign(difference=table["parameters"] - table["paper"])
