"""How much each head of a run matters, the validation loss with heads masked, and what is stored of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headdiv.analysis.heads import ModelHeads
from headdiv.analysis.masking import least_important_first
from headdiv.companion.commands import remedy
from headdiv.companion.experiments.checking import outdated_among
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import IMPORTANCE, Record, RunIdentity, StoredScore, metrics_path
from headdiv.companion.provenance import commit
from headdiv.companion.tasks.base import Run, held_out_loss, score
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.core.settings import check

FORMAT = 1  # of importance.json


class Kept(Record):
    """A point of a pruning curve: how many heads of all modules are kept, and the validation loss a prediction."""

    kept: int
    loss: float


class ImportanceResult(RunIdentity):
    """Importance of every head of a run, and the pruning curve, as `importance_record` measures them.

    Attributes:
        modules: number of heads by attention module ("encoder 1").
        loss: on the validation split with all heads.
    """

    stored_format, noun, command = FORMAT, "importance", "importance"

    modules: dict[str, int]
    loss: StoredScore
    curve: list[Kept]

    @property
    def every(self) -> int:
        """The number of heads of all modules."""
        return sum(self.modules.values())

    def can_be_masked(self, rise: float) -> int:
        """How many heads can be masked before the validation loss is more than ``rise`` above that with all heads.

        It ends at the first point of the curve that is above, whatever comes after it.
        """
        count = 0
        for point in self.curve[1:]:
            if not point.loss - self.curve[0].loss <= rise:  # NaN ends it too
                break
            count = self.curve[0].kept - point.kept
        return count


def importance_record(run: Run, steps: int) -> dict[str, Any]:
    """Importance of every head and the pruning curve in so many steps: importance.json as a dictionary.

    The curve is that of Michel et al. (2019, section 4): the least important heads are masked first, nothing is trained
    again. Importance depends on which other heads there are, so it is measured once more when half of them are masked.
    The test set is not read.
    """

    def loss() -> float:
        return held_out_loss(run, "valid")["nll"]

    began = time.perf_counter()
    model = ModelHeads(run.model)
    heads = model.leave_one_out(loss)
    half = least_important_first(heads)[: len(heads) // 2]
    order = [*half, *least_important_first(model.leave_one_out(loss, half))]
    curve = model.pruning_curve(loss, order, steps)
    return {
        "format": FORMAT,
        **run.identity(),
        "modules": model.counts,
        "loss": score(curve[0].value, run.task.unit, "validation split, without label smoothing and dropout"),
        "heads": [change._asdict() for change in heads],
        "order": [list(head) for head in order],
        "curve": [{"kept": point.kept, "loss": point.value} for point in curve],
        "seconds": time.perf_counter() - began,
        "provenance": {**run.record["provenance"], "evaluated_at_commit": commit()},
    }


def importance_path(profile: str, experiment: str, variant: str, seed: int) -> Path:
    """``importance.json`` beside the run's metrics."""
    return metrics_path(profile, experiment, variant, seed).with_name(IMPORTANCE)


def record_importance(importance: Mapping[str, Any], profile: str) -> Path:
    """Write the importance of a run's heads, as `importance_record` gives it, to its path in the profile's results."""
    run = check(ImportanceResult, importance)
    path = importance_path(profile, run.experiment, run.variant, run.seed)
    write_json(path, importance)
    return path


def stored_importance(profile: str, experiment: str) -> dict[str, list[ImportanceResult]]:
    """The stored importance of a profile's runs of an experiment, by variant, in the profile's order; {} for none.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: a file of another format, of another run than the metrics beside it, or of settings (of the search
            too, which a run's hash leaves out) that are no longer the profile's.
    """
    groups: dict[str, list[ImportanceResult]] = {}
    for config in Runs(profile).planned(experiment):
        path = importance_path(profile, experiment, config.variant, config.seed)
        if not path.is_file():
            continue
        result, metrics = ImportanceResult.read(path, profile), path.with_name("metrics.json")
        if metrics.is_file() and (expected := read_json(metrics)["hash"]) != result.hash:
            raise DataError(
                f"{path}: of run {result.hash}, expected {expected} as in the metrics beside it; "
                + remedy(path, profile, result.command)
            )
        groups.setdefault(config.variant, []).append(result)
    if outdated := outdated_among(profile, (result for group in groups.values() for result in group)):
        raise DataError(next(iter(outdated.values())))
    return groups
