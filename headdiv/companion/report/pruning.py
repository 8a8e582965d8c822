"""The figure of scores against heads kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headdiv.companion.experiments.catalogue import FigureEntry
from headdiv.companion.experiments.importance import ImportanceResult, stored_importance
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import stored
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.formats import plural
from headdiv.companion.report.groups import labels_of, over_seeds
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import SMALL, add_grid, add_legend, add_title, new_figure
from headdiv.companion.report.scale import data_title
from headdiv.companion.tasks.run_config import first_difference
from headdiv.core.errors import DataError
from headdiv.methods.options.modules import DeaconOptions

ImportanceGroups = dict[str, list[ImportanceResult]]  # by variant


def draw_pruning(profile: str, figure: FigureEntry) -> Figure:
    """Score against heads kept: a panel for each task with stored importance of heads.

    Solid, filled: heads masked after training. Dashed, hollow: DEACON's runs by the number of components that they were
    trained with, from their metrics.
    """
    paper = figure.paper
    experiments = figure.experiments_in(Runs(profile).experiments())
    panels = {experiment: groups for experiment in experiments if (groups := stored_importance(profile, experiment))}
    if not panels:
        raise DataError(
            f"{paper}_pruning: profile {profile} has no stored importance of heads of {paper}; "
            f"`headdiv importance PAPER/TASK VARIANT --profile {profile}` makes it"
        )
    drawn, axes = new_figure(5.0 * len(panels) + 0.4, 4.4, 1, len(panels))
    for ax, (experiment, groups) in zip(axes[0], panels.items(), strict=True):
        first = next(iter(groups.values()))[0]
        _draw_masked(ax, experiment, groups)
        _draw_trained(ax, profile, experiment, first.score.name)
        _name_axes(ax, experiment, first, groups)
    add_legend(drawn, axes[0], columns=2 * len(panels), fontsize=SMALL)
    add_title(drawn, "Solid: heads masked after training, the least important first\n"
                     "Dashed: trained with fewer components from the start")  # fmt: skip
    return drawn


def _draw_masked(ax: Axes, experiment: str, groups: ImportanceGroups) -> None:
    """Means over seeds, at the numbers of heads that all of them have."""
    labels, look = labels_of(experiment, groups), looks_of(experiment, groups)
    for variant, runs in groups.items():
        curves = [{point.kept: point.score for point in run.curve} for run in runs]
        kept = sorted(set.intersection(*(set(curve) for curve in curves)))
        values = [np.mean([curve[count] for curve in curves]) for count in kept]
        x = np.array(kept) / len(runs[0].modules)
        ax.plot(x, values, ms=4, lw=1.3, label=labels[variant], **look[variant] | {"ls": "-"})


def _draw_trained(ax: Axes, profile: str, experiment: str, score: str) -> None:
    """DEACON's runs with the paper's options: a point for each m and architecture, mean over seeds."""
    files = (metrics_path(profile, experiment, c.variant, c.seed) for c in Runs(profile).of(experiment))
    runs = stored(profile, experiment) if any(file.is_file() for file in files) else []
    found: dict[str, dict[int, list[float]]] = {}
    variants: dict[str, dict[str, None]] = {}
    groups = {run.variant: [run] for run in runs}
    for run in runs:
        method, value = run.config.method, run.value(score)
        if method.get("name") == "deacon" and value is not None and _is_the_papers(method):
            found.setdefault(method["architecture"], {}).setdefault(method["m"], []).append(value)
            variants.setdefault(method["architecture"], {})[run.variant] = None
    look = looks_of(experiment, groups)
    for architecture, by_m in found.items():
        values = [np.mean(by_m[m]) for m in sorted(by_m)]
        labels = labels_of(experiment, variants[architecture])
        own = look[next(iter(labels))] | {"ls": "--", "mfc": "white", "ms": 5.5}
        ax.plot(sorted(by_m), values, lw=1.3, label=f"trained: {', '.join(labels.values())}", **own)


def _is_the_papers(method: dict[str, Any]) -> bool:
    """Whether all options but architecture and m are the defaults."""
    plain = DeaconOptions(architecture=method["architecture"], m=method["m"]).model_dump(mode="json")
    return first_difference({"method": {"name": "deacon", **plain}}, {"method": method}, ["method"]) is None


def _name_axes(ax: Axes, experiment: str, run: ImportanceResult, groups: ImportanceGroups) -> None:
    score, column = run.score, task_of(experiment).columns.get(run.score.name)
    label = column.label if column else score.name.replace("_", " ")
    unit = f" ({score.unit})" if score.unit else ""
    ax.set(xlabel="heads (or components) kept, mean of an attention module", ylabel=f"{label}{unit}, test set")
    if score.name.endswith("perplexity"):
        ax.set_yscale("log")
    modules = plural(len(run.modules), "module")
    ax.set_title(f"{task_of(experiment).title}\n{data_title(run.config.data['name'])}, {modules}, {over_seeds(groups)}")
    add_grid(ax)
