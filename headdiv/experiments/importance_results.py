"""The stored importance of a run's heads: ``importance.json`` beside the run's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate

from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.core.settings import check
from headdiv.experiments.importance import FORMAT, HeadChange, Kept
from headdiv.experiments.profiles import Runs
from headdiv.experiments.results import RunIdentity, StoredScore, metrics_path, remedy


class NamedScore(StoredScore):
    """A score and its name."""

    name: str


class ImportanceResult(RunIdentity):
    """Importance of every head of a run, and the pruning curve, as `importance_record` measures them.

    Attributes:
        modules: number of heads by attention module ("encoder 1").
        loss: on the validation split with all heads.
        score: on the test set with all heads.
    """

    stored_format, noun, command = FORMAT, "importance", "importance"

    modules: dict[str, int]
    loss: StoredScore
    score: NamedScore
    heads: list[HeadChange]
    curve: list[Kept]


def importance_table(importance: Mapping[str, Any]) -> str:
    """Every head, the most important first, and the pruning curve: text for a terminal."""
    run = check(ImportanceResult, importance)
    heads = [
        (head.place, str(head.head), f"{head.change:+.4f}", "–" if head.score is None else f"{head.score:+.2f}")
        for head in sorted(run.heads, key=lambda head: -head.change)
    ]
    curve = [(str(point.kept), f"{point.loss:.4f}", f"{point.score:.2f}") for point in run.curve]
    names = ("module", "head", f"change of validation loss ({run.loss.unit})", run.score.name)
    return "\n\n".join(
        tabulate(rows, headers, "plain", disable_numparse=True, colalign=["left"] + ["right"] * (len(headers) - 1))
        for rows, headers in ((heads, names), (curve, ("heads kept", "validation loss", run.score.name)))
    )


def importance_path(profile: str, experiment: str, variant: str, seed: int) -> Path:
    """``importance.json`` beside the run's metrics."""
    return metrics_path(profile, experiment, variant, seed).with_name("importance.json")


def record_importance(importance: Mapping[str, Any], profile: str) -> Path:
    """Write the importance of a run's heads to its path in the profile's results.

    Args:
        importance: as `headdiv.experiments.importance.importance_record` gives it.
        profile: name or path of a profile.
    """
    run = check(ImportanceResult, importance)
    path = importance_path(profile, run.experiment, run.variant, run.seed)
    write_json(path, importance)
    return path


def stored_importance(profile: str, experiment: str) -> dict[str, list[ImportanceResult]]:
    """The stored importance of a profile's runs of an experiment, by variant, in the profile's order; {} for none.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: a file of another format, or of another run than the metrics beside it.
    """
    groups: dict[str, list[ImportanceResult]] = {}
    for config in Runs(profile).of(experiment):
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
    return groups
