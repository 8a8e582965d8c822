"""How many heads of trained models can be masked: the loss against heads masked, and the number by method."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.statistics import interval
from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.importance import ImportanceResult, stored_importance
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report.differences import draw_rows
from headdiv.companion.report.families import outlier_note
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import NONE, plurals, with_intervals
from headdiv.companion.report.groups import failed_trainings, labels_of, not_judged_yet, over_seeds, task_shown
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.plotting import (
    SMALL,
    add_grid,
    add_handles,
    add_title,
    name_rows,
    new_figure,
    verdict_handles,
    wrapped,
)
from headdiv.companion.report.scale import data_title
from headdiv.companion.report.table_data import OF_PRUNING, SIMULTANEOUS, TableData, interval_columns
from headdiv.companion.report.verdicts import BETTER, NO_DIFFERENCE, NOT_JUDGED, UNDECIDED, WORSE, verdict
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import NotStoredError

ImportanceGroups = dict[str, list[ImportanceResult]]  # by variant
RISE = 0.05  # of the validation loss, nats a prediction: heads can be masked until it is larger (docs/contest.md)
LABELS = {BETTER: "more heads", WORSE: "fewer heads", UNDECIDED: UNDECIDED, NOT_JUDGED: NOT_JUDGED}  # of verdicts
SHOWN = 6  # times `RISE`: where the axis of losses ends


# ---- how many heads can be masked


def heads_to_mask(groups: ImportanceGroups) -> dict[str, dict[int, float]]:
    """How many heads can be masked before the validation loss has risen by `RISE`, by variant and seed."""
    return {name: {run.seed: float(run.can_be_masked(RISE)) for run in runs} for name, runs in groups.items()}


def _head_counts(runs: Iterable[ImportanceResult]) -> str:
    """ "192"; "96 or 192" where settings give variants heads of their own."""
    return " or ".join(map(str, sorted({run.every for run in runs})))


def pruning_data(profile: str, experiment: str) -> TableData:
    """How many heads each method's models can lose, and that number minus the baseline's.

    Raises:
        NotStoredError: no importance of heads is stored.
        DataError: it is that of other settings.
    """
    groups = stored_importance(profile, experiment)
    if not groups:
        raise NotStoredError(f"{experiment}{OF_PRUNING}: {_remedy(profile, experiment)}")
    task = task_shown(experiment, groups)
    runs = list(chain.from_iterable(groups.values()))
    first, heads, numbers = runs[0], _head_counts(runs), heads_to_mask(groups)
    against = comparison.against(numbers, BASELINE)
    losses = [interval([run.loss.value for run in variant_runs]) for variant_runs in groups.values()]
    counts = [interval(list(numbers[variant].values())) for variant in groups]
    differences = [against.get(variant, NO_DIFFERENCE) for variant in groups]
    columns = {
        "variant": list(groups),
        "label": [task.label(variant) for variant in groups],
        "seeds": [len(variant_runs) for variant_runs in groups.values()],
        "heads": [variant_runs[0].every for variant_runs in groups.values()],
    }
    table = pd.DataFrame(
        columns
        | interval_columns("validation_nll", losses)
        | interval_columns("heads_to_mask", counts)
        | interval_columns("heads_to_mask_difference", differences)
    )
    cells = {
        "Method": columns["label"],
        "Seeds": [str(count) for count in columns["seeds"]],
        f"Validation loss, all heads ({first.loss.unit})": with_intervals(losses, 3),
        f"Heads that can be masked, of {heads}": with_intervals(counts, 1),
        "Minus the baseline": with_intervals(differences, 1),
    }
    pending_note = not_judged_yet(profile, experiment, groups)
    if task.primary and not pending_note:
        verdicts = [LABELS[verdict(difference)] for difference in differences]
        cells["Verdict"] = [NONE if name == BASELINE else text for name, text in zip(groups, verdicts, strict=True)]
    scale = (
        f"Profile {Runs(profile).name}: {data_title(first.config.data['name'])}, {heads} heads in "
        f"{plurals((len(run.modules) for run in runs), 'attention module')}, validation split, without dropout and "
        "label smoothing."
    )
    explanation = (
        f"A head can be masked as long as the validation loss is at most {RISE} {TASKS[first.kind].unit} above that "
        "with all heads. Heads are masked in increasing order of what each alone adds to it, measured again when half "
        "of them are gone, without retraining."
    )
    steps = [len(run.curve) - 1 for run in runs if run.curve[-1].kept == 0 and len(run.curve) <= run.every]
    if steps:
        explanation += f" They are masked in {plurals(steps, 'step')}, so numbers are those of whole steps."
    outliers = comparison.uneven(numbers)
    remarks = [pending_note] if pending_note else []
    remarks += outlier_note(task.label(variant) for variant in groups if variant in outliers)
    remarks += failed_trainings(profile, experiment)
    tables = {"heads": pd.DataFrame(cells, index=list(groups))}
    notes = [explanation, SIMULTANEOUS]
    return TableData(f"{task.table}, pruning", task.title, scale, table, tables, remarks=remarks, notes=notes)


def _remedy(profile: str, experiment: str) -> str:
    command = headdiv_command("importance", experiment, "VARIANT", "--profile", profile)
    return f"profile {profile} has no stored importance of heads of {experiment}; `{command}` makes it"


# ---- the figure


@figure_kind(
    "pruning",
    caption=(
        "How many heads can each method's models lose? Left: how much the validation loss rises as heads are masked "
        "after training, least important first, without retraining; importance is measured again when half of them "
        f"are gone. Dashed: a rise of {RISE} nats. Right: how many heads can be masked up to that rise, minus the "
        "Transformer's number, with Dunnett's simultaneous 95 % intervals."
    ),
    pruning=True,
)
def draw_pruning(profile: str, figure: FigureEntry) -> Figure:
    """The rise of the validation loss against heads masked; beside it how many can be, by method."""
    experiment = figure.experiment
    groups = stored_importance(profile, experiment)
    if not groups:
        raise NotStoredError(f"{figure.name}: {_remedy(profile, experiment)}")
    fig, ((left, right),) = new_figure(9.2, 4.2, 1, 2, width_ratios=[3, 2])
    _draw_rises(left, experiment, groups)
    labels, differences = labels_of(experiment, groups), comparison.against(heads_to_mask(groups), BASELINE)
    order = sorted(differences, key=lambda variant: -differences[variant].mean)
    pending_note = not_judged_yet(profile, experiment, groups)
    verdicts = draw_rows(right, [differences[variant] for variant in order], higher=True, judged=not pending_note)
    right.set_visible(bool(order))
    name_rows(right, [wrapped(labels[variant], 24) for variant in order] or [""])
    right.set_title("more heads →", fontsize=SMALL, color="0.35")
    right.set_xlabel(f"heads that can be masked (rise at most {RISE})\nminus the Transformer's", fontsize=SMALL)
    add_handles(fig, [*left.get_legend_handles_labels()[0], *verdict_handles(verdicts, LABELS)], 4, SMALL)
    data = data_title(next(iter(groups.values()))[0].config.data["name"])
    heading = f"Heads masked after training: {data}, {over_seeds(groups)}"
    add_title(fig, f"{heading}; simultaneous 95 % intervals\n{pending_note}".rstrip())
    return fig


def _draw_rises(ax: Axes, experiment: str, groups: ImportanceGroups) -> None:
    """Means over seeds, at the numbers of heads that all of them have."""
    labels, looks = labels_of(experiment, groups), looks_of(experiment, groups)
    for variant, runs in groups.items():
        curves = [{point.kept: point.loss - run.curve[0].loss for point in run.curve} for run in runs]
        kept = sorted(set.intersection(*(set(curve) for curve in curves)), reverse=True)
        rises = [np.mean([curve[count] for curve in curves]) for count in kept]
        look = looks[variant] | {"ls": "-", "marker": ""}
        ax.plot([kept[0] - count for count in kept], rises, lw=1.3, label=labels[variant], **look)
    all_runs = list(chain.from_iterable(groups.values()))
    ax.axhline(RISE, color="0.35", lw=1, ls="--", zorder=1)
    ax.set(ylim=(-RISE, SHOWN * RISE), xlabel=f"heads masked, of {_head_counts(all_runs)}")
    ax.set_xlim(right=max(run.every for run in all_runs))
    ax.set_ylabel(f"rise of the validation loss ({all_runs[0].loss.unit})", fontsize=SMALL)
    add_grid(ax)
