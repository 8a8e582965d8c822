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
from headdiv.companion.experiments.run_result import IMPORTANCE
from headdiv.companion.report.differences import draw_rows
from headdiv.companion.report.families import set_apart
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
from headdiv.companion.report.table_data import OF_PRUNING, SIMULTANEOUS, TableData, ends
from headdiv.companion.report.verdicts import BETTER, NO_DIFFERENCE, NOT_JUDGED, UNDECIDED, WORSE, verdict
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import NotStoredError

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
    runs = [run for of_variant in groups.values() for run in of_variant]
    first, heads, numbers = runs[0], _heads(runs), heads_to_mask(groups)
    against = comparison.against(numbers, BASELINE)
    losses = [interval([run.loss.value for run in of_variant]) for of_variant in groups.values()]
    counts = [interval(list(numbers[variant].values())) for variant in groups]
    differences = [against.get(variant, NO_DIFFERENCE) for variant in groups]
    columns = {
        "variant": list(groups),
        "label": [task.label(variant) for variant in groups],
        "seeds": [len(of_variant) for of_variant in groups.values()],
        "heads": [of_variant[0].every for of_variant in groups.values()],
    }
    table = pd.DataFrame(
        columns
        | ends("validation_nll", losses)
        | ends("heads_to_mask", counts)
        | ends("heads_to_mask_difference", differences)
    )
    cells = {
        "Method": columns["label"],
        "Seeds": [str(count) for count in columns["seeds"]],
        f"Validation loss, all heads ({first.loss.unit})": with_intervals(losses, 3),
        f"Heads that can be masked, of {heads}": with_intervals(counts, 1),
        "Minus the baseline": with_intervals(differences, 1),
    }
    waiting = not_judged_yet(profile, experiment, groups)
    if task.primary and not waiting:
        decided = [MORE[verdict(difference)] for difference in differences]
        cells["Verdict"] = [NONE if name == BASELINE else text for name, text in zip(groups, decided, strict=True)]
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
    remarks = [waiting] if waiting else []
    remarks += set_apart(task.label(variant) for variant in groups if variant in alone)
    remarks += failed_trainings(profile, experiment)
    tables = {"heads": pd.DataFrame(cells, index=list(groups))}
    notes = [how, SIMULTANEOUS]
    return TableData(f"{task.table}, pruning", task.title, scale, table, tables, remarks=remarks, notes=notes)


def _makes_it(profile: str, experiment: str) -> str:
    command = headdiv_command("importance", experiment, "VARIANT", "--profile", profile)
    return f"profile {profile} has no stored importance of heads of {experiment}; `{command}` makes it"


# ---- the figure


@figure_kind(
    "pruning",
    caption=(
        "How many heads can each method's models lose? Left: how much the validation loss rises as heads are masked "
        f"after training, least important first, without retraining; dashed: a rise of {RISE} nats. Right: how many "
        "heads can be masked up to that rise, minus the Transformer's number, with Dunnett's simultaneous 95 % "
        "intervals."
    ),
    reads=(IMPORTANCE,),
)
def draw_pruning(profile: str, figure: FigureEntry) -> Figure:
    """The rise of the validation loss against heads masked; beside it how many can be, by method."""
    experiment = figure.experiment
    groups = stored_importance(profile, experiment)
    if not groups:
        raise NotStoredError(f"{figure.name}: {_makes_it(profile, experiment)}")
    drawn, ((left, right),) = new_figure(9.2, 4.2, 1, 2, width_ratios=[3, 2])
    _draw_rises(left, experiment, groups)
    labels, differences = labels_of(experiment, groups), comparison.against(heads_to_mask(groups), BASELINE)
    order = sorted(differences, key=lambda variant: -differences[variant].mean)
    waiting = not_judged_yet(profile, experiment, groups)
    verdicts = draw_rows(right, [differences[variant] for variant in order], higher=True, judged=not waiting)
    right.set_visible(bool(order))
    name_rows(right, [wrapped(labels[variant], 24) for variant in order] or [""])
    right.set_title("more heads →", fontsize=SMALL, color="0.35")
    right.set_xlabel(f"heads that can be masked (rise at most {RISE})\nminus the Transformer's", fontsize=SMALL)
    add_handles(drawn, [*left.get_legend_handles_labels()[0], *verdict_handles(verdicts, MORE)], 4, SMALL)
    what = "Heads masked after training, the least important first; simultaneous 95 % intervals"
    add_title(drawn, f"{what}\n{waiting}".rstrip())
    return drawn


def _draw_rises(ax: Axes, experiment: str, groups: ImportanceGroups) -> None:
    """Means over seeds, at the numbers of heads that all of them have."""
    labels, look = labels_of(experiment, groups), looks_of(experiment, groups)
    for variant, runs in groups.items():
        curves = [{point.kept: point.loss - run.curve[0].loss for point in run.curve} for run in runs]
        kept = sorted(set.intersection(*(set(curve) for curve in curves)), reverse=True)
        rises = [np.mean([curve[count] for curve in curves]) for count in kept]
        own = look[variant] | {"ls": "-", "marker": ""}
        ax.plot([kept[0] - count for count in kept], rises, lw=1.3, label=labels[variant], **own)
    first = next(iter(groups.values()))[0]
    ax.axhline(RISE, color="0.35", lw=1, ls="--", zorder=1)
    ax.set(ylim=(-RISE, SHOWN * RISE), xlabel=f"heads masked, of {_heads(chain.from_iterable(groups.values()))}")
    ax.set_ylabel(f"rise of the validation loss ({first.loss.unit})", fontsize=SMALL)
    data = data_title(first.config.data["name"])
    ax.set_title(f"{task_shown(experiment, groups).subject}\n{data}, {over_seeds(groups)}", fontsize=SMALL)
    add_grid(ax)
