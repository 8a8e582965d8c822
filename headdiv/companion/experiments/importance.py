"""How much each head of a run matters, the validation loss with heads masked, and what is stored of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from headdiv.analysis.masking import (
    Head,
    HeadChange,
    Masks,
    heads_of,
    least_important_first,
    masked_heads,
    masking_changes,
    pruning_steps,
)
from headdiv.companion.commands import remedy
from headdiv.companion.experiments.checking import outdated_among
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import IMPORTANCE, Record, RunIdentity, StoredScore, metrics_path
from headdiv.companion.provenance import commit
from headdiv.companion.tasks.base import Run, held_out_loss, score
from headdiv.core import progress
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.core.settings import check

FORMAT = 1  # of importance.json


class Kept(Record):
    """A point of a pruning curve: how many heads of all modules are kept, and the validation loss a prediction."""

    kept: int
    loss: float


def _without_score(head: Any) -> Any:
    """A head's change without the task's score, which files from before the loss alone was measured have too."""
    return {key: value for key, value in head.items() if key != "score"} if isinstance(head, dict) else head


class ImportanceResult(RunIdentity):
    """Importance of every head of a run, and the pruning curve, as `importance_record` measures them.

    Attributes:
        modules: number of heads by attention module ("encoder 1").
        loss: on the validation split with all heads.
    """

    stored_format, noun, command = FORMAT, "importance", "importance"

    modules: dict[str, int]
    loss: StoredScore
    heads: list[Annotated[HeadChange, BeforeValidator(_without_score)]]
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


def masked_loss(run: Run, masks: Masks | None = None) -> float:
    """Loss on the validation split with these masks, in nats for each prediction."""
    with masked_heads(run.model, masks or {}):
        return held_out_loss(run, "valid")["nll"]


def head_importance(run: Run, masked: Sequence[Head] = ()) -> list[HeadChange]:
    """How the validation loss changes when one head at a time is masked, for every head, in a forward pass's order.

    ``masked``: heads (attention module, number from 1) that are masked in any case, and are not in the result.
    """
    return masking_changes(run.model, lambda masks: masked_loss(run, masks), masked)


def pruning_order(run: Run, importance: Sequence[HeadChange] | None = None) -> list[Head]:
    """All heads (attention module, number from 1) of a finished run, the least important first.

    It is measured, where it is not given; and once more when half of the heads are masked: it depends on the others.
    """
    importance = head_importance(run) if importance is None else importance
    first_half = least_important_first(importance)[: len(importance) // 2]
    return [*first_half, *least_important_first(head_importance(run, first_half))]


def pruning_curve(run: Run, steps: int = 10, order: Sequence[Head] | None = None) -> list[Kept]:
    """Validation loss with ever fewer heads, from all to none (Michel et al. 2019, section 4), nothing trained again.

    Args:
        run: a finished run.
        steps: of about the same number of heads, one at least.
        order: in which heads are masked, each once at most; the curve ends where it does. Default: `pruning_order`.

    Raises:
        DataError: there are fewer than one step, or a head is not there or named twice.
    """
    points, curve = pruning_steps(run.model, steps, pruning_order(run) if order is None else order), []
    with progress.bar(len(points), "pruning") as advance:
        for kept, masks in points:
            curve.append(Kept(kept=kept, loss=masked_loss(run, masks)))
            advance("")
    return curve


def importance_record(run: Run, steps: int) -> dict[str, Any]:
    """Importance of every head and the pruning curve in so many steps: importance.json as a dictionary.

    The test set is not read.
    """
    began = time.perf_counter()
    heads = head_importance(run)
    order = pruning_order(run, heads)
    curve = pruning_curve(run, steps, order)
    return {
        "format": FORMAT,
        **run.identity(),
        "modules": heads_of(run.model),
        "loss": score(curve[0].loss, run.task.unit, "validation split, without label smoothing and dropout"),
        "heads": [change._asdict() for change in heads],
        "order": [list(head) for head in order],
        "curve": [point.model_dump() for point in curve],
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
