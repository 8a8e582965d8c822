"""Importance of heads as it is stored beside a run's metrics, and the drawing of scores against heads kept."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.experiments.importance import FORMAT
from headdiv.experiments.papers import task_of
from headdiv.experiments.profiles import Runs
from headdiv.experiments.results import Metrics, metrics_path, stored
from headdiv.report.curves import MARKS
from headdiv.report.formats import NONE, plural
from headdiv.report.groups import labels_of, over_seeds

Importance = dict[str, Any]  # as `headdiv.experiments.importance.importance_record` gives it
ARCHITECTURES = {"direct": "o", "average": "s", "nonlinear": "D"}  # DEACON's, and their marks


def importance_path(profile: str, experiment: str, variant: str, seed: int) -> Path:
    """``importance.json`` beside the run's metrics."""
    return metrics_path(profile, experiment, variant, seed).with_name("importance.json")


def record_importance(told: Importance, profile: str) -> Path:
    """Write what is told of a run's heads to its place in the profile's results."""
    path = importance_path(profile, f"{told['paper']}/{told['task']}", told["variant"], told["seed"])
    write_json(path, told)
    return path


def stored_importance(profile: str, experiment: str) -> dict[str, list[Importance]]:
    """What is stored of a profile's runs of an experiment, by variant, in the profile's order; {} where nothing is.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: a file of another format, or of another run than the metrics beside it.
    """
    groups: dict[str, list[Importance]] = {}
    for config in Runs(profile).of(experiment):
        path = importance_path(profile, experiment, config.variant, config.seed)
        if path.is_file():
            groups.setdefault(config.variant, []).append(_read(path, profile))
    return groups


def _read(path: Path, profile: str) -> Importance:
    told = read_json(path)
    found = told.get("format") if isinstance(told, dict) else None
    if found != FORMAT:
        raise DataError(f"{path}: importance of format {found}, expected {FORMAT}; {_how_to_make(told, profile)}")
    metrics = path.with_name("metrics.json")
    if metrics.is_file() and (of := read_json(metrics)["hash"]) != told["hash"]:
        raise DataError(
            f"{path}: of run {told['hash']}, expected {of} as in the metrics beside it; {_how_to_make(told, profile)}"
        )
    return told


def _how_to_make(told: Any, profile: str) -> str:
    known = isinstance(told, dict) and {"paper", "task", "variant"} <= set(told)
    run = f"{told['paper']}/{told['task']} {told['variant']}" if known else "PAPER/TASK VARIANT"
    return f"`headdiv importance {run} --profile {profile}` makes it anew"


def importance_table(told: Importance) -> str:
    """What is told of a run's heads, for a terminal: every head, the most important first, and the pruning curve."""
    loss, score = told["loss"], told["score"]
    lines = [f"{'place':<12}{'head':>5}{'change of validation loss (' + loss['unit'] + ')':>42}{score['name']:>18}"]
    for head in sorted(told["heads"], key=lambda head: -head["change"]):
        change = NONE if head["score"] is None else f"{head['score']:+.2f}"
        lines.append(f"{head['place']:<12}{head['head']:>5}{head['change']:>+42.4f}{change:>18}")
    lines += ["", f"{'heads kept':<12}{'validation loss':>47}{score['name']:>18}"]
    lines += [f"{point['kept']:<12}{point['loss']:>47.4f}{point['score']:>18.2f}" for point in told["curve"]]
    return "\n".join(lines)


# ---- the drawing


def draw_pruning(profile: str, paper: str) -> Figure:
    """Score against heads kept, a panel for each task of which importance is stored, a line for each variant.

    Beside them DEACON's runs by the number of components that they were trained with, from their metrics.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored, or a file that cannot be used.
    """
    experiments = [experiment for experiment in Runs(profile).experiments() if experiment.startswith(f"{paper}/")]
    panels = {experiment: groups for experiment in experiments if (groups := stored_importance(profile, experiment))}
    if not panels:
        raise DataError(
            f"{paper}_pruning: profile {profile} has no stored importance of heads of {paper}; "
            f"`headdiv importance PAPER/TASK VARIANT --profile {profile}` makes it"
        )
    drawn = Figure(figsize=(5.2 * len(panels) + 0.4, 4.2), layout="constrained")
    axes = drawn.subplots(1, len(panels), squeeze=False)[0]
    for ax, (experiment, groups) in zip(axes, panels.items(), strict=True):
        _draw_masked(ax, experiment, groups)
        _draw_trained(ax, profile, experiment, _score_name(groups))
        _finish(ax, experiment, groups)
    drawn.suptitle("Heads masked after training, the least important first", fontsize=10)
    return drawn


def _score_name(groups: dict[str, list[Importance]]) -> str:
    return next(iter(groups.values()))[0]["score"]["name"]


def _draw_masked(ax: Axes, experiment: str, groups: dict[str, list[Importance]]) -> None:
    """Means over seeds, at the numbers of heads that all of them have."""
    labels = labels_of(experiment, groups)
    looks = zip(sns.color_palette("colorblind", len(groups)), cycle(MARKS), strict=False)
    for (variant, runs), (colour, mark) in zip(groups.items(), looks, strict=False):
        curves = [{point["kept"]: point["score"] for point in run["curve"]} for run in runs]
        kept = sorted(set.intersection(*(set(curve) for curve in curves)))
        values = [np.mean([curve[count] for curve in curves]) for count in kept]
        x = np.array(kept) / len(runs[0]["modules"])
        ax.plot(x, values, color=colour, marker=mark, ms=3.5, lw=1.2, label=labels[variant])


def _draw_trained(ax: Axes, profile: str, experiment: str, score: str) -> None:
    """DEACON's runs: one point for each number of components and architecture, mean over seeds."""
    found: dict[str, dict[int, list[float]]] = {}
    for run in _stored_or_none(profile, experiment):
        method = run["config"].get("method", {})
        if method.get("name") == "deacon" and score in run["scores"]:
            by_m = found.setdefault(method["architecture"], {})
            by_m.setdefault(method["m"], []).append(run["scores"][score]["value"])
    for architecture, by_m in found.items():
        values = [np.mean(by_m[m]) for m in sorted(by_m)]
        look = {"marker": ARCHITECTURES.get(architecture, "^"), "color": "0.25", "ls": "--", "mfc": "white"}
        ax.plot(sorted(by_m), values, ms=5, lw=0.8, label=f"DEACON {architecture}, trained with m", **look)


def _stored_or_none(profile: str, experiment: str) -> list[Metrics]:
    there = (metrics_path(profile, experiment, c.variant, c.seed).is_file() for c in Runs(profile).of(experiment))
    return stored(profile, experiment) if any(there) else []


def _finish(ax: Axes, experiment: str, groups: dict[str, list[Importance]]) -> None:
    run = next(iter(groups.values()))[0]
    score, columns = run["score"], task_of(experiment).columns
    label = columns[score["name"]].label if score["name"] in columns else score["name"].replace("_", " ")
    ax.set(xlabel="heads (or components) kept, mean of an attention module")
    unit = f" ({score['unit']})" if score["unit"] else ""
    ax.set_ylabel(f"{label}{unit}, test set")
    if score["name"].endswith("perplexity"):
        ax.set_yscale("log")
    modules = plural(len(run["modules"]), "module")
    ax.set_title(f"{experiment}: {run['config']['data']['name']}, {modules}, {over_seeds(groups)}")
    ax.grid(color="0.92")
    ax.set_axisbelow(True)
    ax.legend(frameon=False, fontsize=8)
