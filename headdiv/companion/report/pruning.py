"""How many heads of trained models can be masked: scores or losses against heads, and the number by method."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.importance import ImportanceResult, stored_importance
from headdiv.companion.experiments.papers import BASELINE, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import stored
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.contrasts import set_apart
from headdiv.companion.report.differences import draw_rows
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import NONE, plural, plurals, with_intervals, with_unit
from headdiv.companion.report.groups import failed_trainings, labels_of, not_judged_yet, over_seeds, task_shown
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import (
    SMALL,
    add_grid,
    add_handles,
    add_legend,
    add_title,
    name_rows,
    new_figure,
    verdict_handles,
    wrapped,
)
from headdiv.companion.report.scale import data_title
from headdiv.companion.report.table_data import OF_PRUNING, SIMULTANEOUS, TableData, ends
from headdiv.companion.report.verdicts import (
    BETTER,
    NO_DIFFERENCE,
    NOT_JUDGED,
    UNDECIDED,
    WORSE,
    verdict,
)
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import first_difference
from headdiv.core.errors import NotStoredError
from headdiv.methods.deacon import Deacon

ImportanceGroups = dict[str, list[ImportanceResult]]  # by variant
RISE = 0.05  # of the validation loss, nats a prediction: heads can be masked until it is larger (docs/contest.md)
MORE = {BETTER: "more heads", WORSE: "fewer heads", UNDECIDED: UNDECIDED, NOT_JUDGED: NOT_JUDGED}  # than the baseline
SHOWN = 6  # times `RISE`: where the axis of losses ends


# ---- how many heads can be masked


def heads_to_mask(groups: ImportanceGroups) -> dict[str, dict[int, float]]:
    """How many heads can be masked before the validation loss has risen by `RISE`, by variant and seed."""
    return {name: {run.seed: float(run.can_be_masked(RISE)) for run in runs} for name, runs in groups.items()}


def _heads(runs: Iterable[ImportanceResult]) -> str:
    """ "192"; "96 or 192" where settings give variants heads of their own."""
    return " or ".join(map(str, sorted({run.every for run in runs})))


def pruning_data(profile: str, experiment: str) -> TableData:
    """How many heads each method's models can lose, and that number minus the baseline's.

    Raises:
        DataError: no importance of heads is stored, or it is that of other settings.
    """
    groups = stored_importance(profile, experiment)
    task = task_shown(experiment, groups)
    if not groups:
        raise NotStoredError(f"{experiment}{OF_PRUNING}: {_makes_it(profile, experiment)}")
    runs = [run for of in groups.values() for run in of]
    first, numbers = runs[0], heads_to_mask(groups)
    apart = comparison.against(numbers, BASELINE)
    heads, of_variants = _heads(runs), [of[0].every for of in groups.values()]
    found: dict[str, list[Interval]] = {
        "validation_nll": [interval([run.loss.value for run in of]) for of in groups.values()],
        "heads_to_mask": [interval(list(numbers[variant].values())) for variant in groups],
        "heads_to_mask_difference": [apart.get(variant, NO_DIFFERENCE) for variant in groups],
    }
    seeds, labels = [len(of) for of in groups.values()], [task.label(variant) for variant in groups]
    table = pd.DataFrame({"variant": list(groups), "label": labels, "seeds": seeds, "heads": of_variants})
    for name, ones in found.items():
        table = table.join(pd.DataFrame([ends(name, one) for one in ones]))
    waiting = not_judged_yet(profile, experiment, groups)
    shown = pd.DataFrame(
        {"Method": labels, "Seeds": list(map(str, seeds))}
        | {f"Validation loss, all heads ({first.loss.unit})": with_intervals(found["validation_nll"], 3)}
        | {f"Heads that can be masked, of {heads}": with_intervals(found["heads_to_mask"], 1)}
        | {"Minus the baseline": with_intervals(found["heads_to_mask_difference"], 1)},
        index=list(groups),
    )
    if task.primary and not waiting:
        ones = found["heads_to_mask_difference"]
        shown["Verdict"] = [
            NONE if name == BASELINE else MORE[verdict(one)] for name, one in zip(groups, ones, strict=True)
        ]
    scale = (
        f"Profile {Runs(profile).name}: {data_title(first.config.data['name'])}, {heads} heads in "
        f"{plurals((len(run.modules) for run in runs), 'attention module')}, validation split, without dropout and "
        "label smoothing."
    )
    how = (
        f"A head can be masked as long as the validation loss is at most {RISE} {TASKS[first.kind].unit} above that "
        "with all heads. Heads are masked in increasing order of what each alone adds to it, measured again when half "
        "of them are gone, without retraining."
    )
    steps = [len(run.curve) - 1 for run in runs if run.curve[-1].kept == 0 and len(run.curve) <= run.every]
    how += f" They are masked in {plurals(steps, 'step')}, so numbers are those of whole steps." if steps else ""
    alone = comparison.uneven(numbers)
    said = [
        *[waiting] * bool(waiting),
        *set_apart(task.label(variant) for variant in groups if variant in alone),
        *failed_trainings(profile, experiment),
    ]
    notes = [how, SIMULTANEOUS]
    return TableData(f"{task.table}, pruning", task.title, scale, table, {"heads": shown}, said=said, notes=notes)


def _makes_it(profile: str, of: str) -> str:
    made = f"`{headdiv_command('importance', 'PAPER/TASK', 'VARIANT', '--profile', profile)}` makes it"
    return f"profile {profile} has no stored importance of heads of {of}; {made}"


# ---- the figure


@figure_kind(
    "pruning",
    caption=(
        "The score on the test set with ever fewer heads: after training, heads are masked in increasing order of what "
        "masking each alone adds to the validation loss, measured again when half of them are gone, without "
        "retraining. Dashed: DEACON models, by the number m of components that they were trained with."
    ),
    planned=lambda runs, experiment: experiment in runs.pruned(),
    of_importance=True,
)
def draw_pruning(profile: str, figure: FigureEntry) -> Figure:
    """Score against heads kept: a panel for each task with stored importance of heads.

    Where the loss alone was measured, its rise against heads masked, and how many can be.

    Solid, filled: heads masked after training. Dashed, hollow: DEACON's runs by the number of components that they were
    trained with, from their metrics.
    """
    paper = figure.paper
    experiments = figure.experiments_in(Runs(profile).experiments())
    panels = {experiment: groups for experiment in experiments if (groups := stored_importance(profile, experiment))}
    if not panels:
        raise NotStoredError(f"{paper}_pruning: {_makes_it(profile, paper)}")
    if not all(run.score for groups in panels.values() for runs in groups.values() for run in runs):
        return _draw_by_loss(profile, panels)
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


def _draw_by_loss(profile: str, panels: dict[str, ImportanceGroups]) -> Figure:
    """Of each task the rise of the validation loss against heads masked; beside it how many can be, by method."""
    drawn, axes = new_figure(9.2, 3.6 * len(panels) + 0.6, len(panels), 2, width_ratios=[3, 2])
    verdicts, waiting = [], []
    for (left, right), (experiment, groups) in zip(axes, panels.items(), strict=True):
        labels, look = labels_of(experiment, groups), looks_of(experiment, groups)
        for variant, runs in groups.items():
            curves = [{point.kept: point.loss - run.curve[0].loss for point in run.curve} for run in runs]
            kept = sorted(set.intersection(*(set(curve) for curve in curves)), reverse=True)
            rises = [np.mean([curve[count] for curve in curves]) for count in kept]
            own = look[variant] | {"ls": "-", "marker": ""}
            left.plot([kept[0] - count for count in kept], rises, lw=1.3, label=labels[variant], **own)
        first = next(iter(groups.values()))[0]
        left.axhline(RISE, color="0.35", lw=1, ls="--", zorder=1)
        left.set(ylim=(-RISE, SHOWN * RISE), xlabel=f"heads masked, of {_heads(chain.from_iterable(groups.values()))}")
        left.set_ylabel(f"rise of the validation loss ({first.loss.unit})", fontsize=SMALL)
        data = data_title(first.config.data["name"])
        left.set_title(f"{task_shown(experiment, groups).subject}\n{data}, {over_seeds(groups)}", fontsize=SMALL)
        add_grid(left)
        numbers = heads_to_mask(groups)
        apart = comparison.against(numbers, BASELINE)
        order = sorted(apart, key=lambda variant: -apart[variant].mean)
        said = not_judged_yet(profile, experiment, groups)
        waiting += [said] * bool(said)
        verdicts += draw_rows(right, [apart[variant] for variant in order], higher=True, judged=not said)
        right.set_visible(bool(order))
        name_rows(right, [wrapped(labels[variant], 24) for variant in order] or [""])
        right.set_title("more heads →", fontsize=SMALL, color="0.35")
        right.set_xlabel(f"heads that can be masked (rise at most {RISE})\nminus the Transformer's", fontsize=SMALL)
    lines = {line.get_label(): line for ax in axes[:, 0] for line in ax.get_legend_handles_labels()[0]}
    add_handles(drawn, [*lines.values(), *verdict_handles(verdicts, MORE)], 4, SMALL)
    what = "Heads masked after training, the least important first; simultaneous 95 % intervals"
    add_title(drawn, "\n".join([what, *dict.fromkeys(waiting)]))
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
    plain = Deacon.Options(architecture=method["architecture"], m=method["m"]).model_dump(mode="json")
    return first_difference({"method": {"name": "deacon", **plain}}, {"method": method}, ["method"]) is None


def _name_axes(ax: Axes, experiment: str, run: ImportanceResult, groups: ImportanceGroups) -> None:
    score, column = run.score, task_of(experiment).columns.get(run.score.name)
    label = column.label if column else score.name.replace("_", " ")
    ylabel = f"{with_unit(label, score.unit)}, test set"
    ax.set(xlabel="heads (or components) kept, mean of an attention module", ylabel=ylabel)
    if score.name.endswith("perplexity"):
        ax.set_yscale("log")
    modules = plural(len(run.modules), "module")
    what = f"{data_title(run.config.data['name'])}, {modules}, {over_seeds(groups)}"
    ax.set_title(f"{task_shown(experiment, groups).subject}\n{what}")
    add_grid(ax)
