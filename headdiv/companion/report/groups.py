"""Which stored runs a figure or table shows, and what they are called."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headdiv.companion.experiments.papers import Column, PaperTask, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import stored
from headdiv.companion.experiments.run_result import RunIdentity, RunResult
from headdiv.companion.report.figure_kinds import FigureEntry
from headdiv.companion.report.formats import plural, plurals, seeds_named
from headdiv.companion.report.scale import data_title
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import NotStoredError

KIND_LABELS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}

Groups = dict[str, list[RunResult]]  # runs by variant
Modules = dict[tuple[str, int], Any]  # by kind of attention and layer, counted from 1


def by_variant(profile: str, experiment: str) -> Groups:
    """All stored runs: the paper's variants in its order, then the profile's own; of each the seeds in its order.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: no stored results, or results that contradict each other.
    """
    groups: Groups = {}
    for run in stored(profile, experiment):
        groups.setdefault(run.variant, []).append(run)
    order = dict.fromkeys([*task_of(experiment).variants, *groups])
    return {variant: groups[variant] for variant in order if variant in groups}


def task_shown(experiment: str, groups: Mapping[str, Sequence[RunIdentity]]) -> PaperTask:
    """The experiment's task as these runs' data let it be shown (`PaperTask.shown_on`)."""
    return task_of(experiment).shown_on(next(iter(groups.values()))[0].config.data)


def judged_with(profile: str, experiment: str) -> Groups:
    """The stored rows that one model judges (`Runs.of_one_model`); those of other experiments go by ``task/variant``.

    So a difference has one interval, whichever table shows it.
    """
    rows = by_variant(profile, experiment)
    hashes = {run.hash for runs in rows.values() for run in runs}
    for other in Runs(profile).of_one_model(experiment):
        with contextlib.suppress(NotStoredError):
            for run in stored(profile, other):
                if run.hash not in hashes:
                    rows.setdefault(f"{run.task}/{run.variant}", []).append(run)
    return rows


def other_rows_note(model: Groups, groups: Groups) -> list[str]:
    """The sentence about rows of a model that stand in another table; nothing where there are none."""
    others = [task_of(runs[0].experiment).label(runs[0].variant) for name, runs in model.items() if name not in groups]
    if not others:
        return []
    labels = ", ".join(others)
    return [f"The model also has the rows of this profile's other tables with the same baseline runs: {labels}."]


def runs_of_figure(profile: str, figure: FigureEntry) -> Groups:
    """The stored runs that a figure shows: its variants in their order, all if it names none; seeds as in a profile."""
    groups = by_variant(profile, figure.experiment)
    return {variant: groups[variant] for variant in figure.names or groups if variant in groups}


def not_judged_yet(profile: str, experiment: str, groups: Mapping[str, Sequence[RunIdentity]]) -> str:
    """ "Not judged yet: 38 of 72 runs are stored."; "" where all planned ones are there, or no rules ask for it.

    Rules that name the score that decides (`PaperTask.primary`) judge once, since every look is a chance to err; so
    does a profile that is `cautious`.
    """
    runs = Runs(profile)
    planned = runs.planned(experiment)
    stored_runs = {(run.variant, run.seed) for variant_runs in groups.values() for run in variant_runs}
    count = sum((config.variant, config.seed) in stored_runs for config in planned)
    if not (task_of(experiment).primary or runs.profile.cautious) or count == len(planned):
        return ""
    return f"Not judged yet: {count} of {plural(len(planned), 'run')} {'is' if count == 1 else 'are'} stored."


def all_quiet(groups: Groups) -> bool:
    """Whether nothing else kept the machine busy in any run, so that their times may be compared."""
    return all(run.cost.quiet for runs in groups.values() for run in runs)


def failed_trainings(profile: str, experiment: str) -> list[str]:
    """The sentence about runs that failed: their variants have only the other seeds."""
    failed = Runs(profile).failed(experiment).items()
    names = [f"{task_of(experiment).label(variant)} ({', '.join(map(str, seeds))})" for variant, seeds in failed]
    return [f"Runs that failed twice, by seed: {'; '.join(names)}."] if names else []


def place_name(place: str) -> str:
    """ "cross 1" is "encoder-decoder, layer 1", "cross" is "encoder-decoder attention"."""
    kind, _, layer = place.partition(" ")
    return f"{KIND_LABELS[kind].split()[0]}, layer {layer}" if layer else KIND_LABELS[kind]


def by_module(values: dict[str, Any]) -> Modules:
    """Values by attention module ("encoder 1", "cross 2") as values by kind and layer."""
    modules = ((*name.rsplit(" ", 1), value) for name, value in values.items())
    return {(kind, int(layer)): value for kind, layer, value in modules}


def kinds_of(modules: Iterable[tuple[str, int]]) -> list[str]:
    """The kinds of attention that these modules are of, in the order of `KIND_LABELS`."""
    kinds = {kind for kind, _ in modules}
    return [kind for kind in KIND_LABELS if kind in kinds]


def labels_of(experiment: str, variants: Iterable[str]) -> dict[str, str]:
    """The paper's label of each variant (`PaperTask.label`)."""
    task = task_of(experiment)
    return {variant: task.label(variant) for variant in variants}


def score_label(run: RunResult, name: str) -> str:
    """What the paper's table calls a score, or else the task."""
    column = task_of(run.experiment).columns.get(name)
    return column.label if column else TASKS[run.kind].score_label(name)


def signatures_of(runs: Sequence[RunResult], scores: Mapping[str, Column]) -> dict[str, str]:
    """How these scores are measured, by their labels."""
    return {column.label: signature(runs, name) for name, column in scores.items() if name in runs[0].scores}


def signature(runs: Sequence[RunResult], name: str) -> str:
    """How a score is measured, in one way or several, without numbers of epochs, which runs do not share."""
    signatures = []
    for run in runs:
        if name in run.scores:
            text = re.sub(r"epoch \d+ of \d+, that of", "the epoch of", run.scores[name].signature)
            text = re.sub(r"the steps of epoch \d+", "the steps of the best epoch", text)
            signatures.append(re.sub(r"parameters of epochs (\d+) to (\d+)", _number_of_epochs, text))
    return " or ".join(dict.fromkeys(signatures))


def _number_of_epochs(averaged: re.Match[str]) -> str:
    first, last = map(int, averaged.groups())
    return f"parameters of the last {last - first + 1} epochs"


def title(subject: str, groups: Groups, first: bool = False) -> str:
    """ "Subject: data, 2 epochs, mean over 2 seeds"; ``first``: the first run of each variant is shown."""
    shown = {variant: runs[:1] for variant, runs in groups.items()} if first else groups
    return f"{title_without_seeds(subject, shown)}, {over_seeds(shown)}"


def title_without_seeds(subject: str, groups: Groups) -> str:
    """ "Subject: data, 2 epochs"."""
    all_runs = [run for runs in groups.values() for run in runs]
    return f"{subject}: {data_title(all_runs[0].data_name)}, {plurals((run.epochs for run in all_runs), 'epoch')}"


def over_seeds(groups: Groups) -> str:
    """ "mean over 1 or 3 seeds"; of one run each "seed 1", "seeds 1, 2"."""
    counts = sorted({len(runs) for runs in groups.values()})
    if counts == [1]:
        return seeds_named(runs[0].seed for runs in groups.values())
    *smaller, largest = map(str, counts)
    return f"mean over {', '.join(smaller)} or {largest} seeds" if smaller else f"mean over {largest} seeds"
