"""Scores of stored outputs computed anew, without a model: after a measure was corrected, or a package changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headdiv.companion import paths
from headdiv.companion.commands import remedy
from headdiv.companion.data.cache import content_key
from headdiv.companion.experiments.evaluation import named
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import DECIDING, corpus_difference, difference, in_lines
from headdiv.companion.experiments.run_result import DataStatistics, RunResult, stored_files
from headdiv.companion.experiments.running import run_folder
from headdiv.companion.experiments.stored_outputs import FILE, Outputs, StoredOutputs, read_outputs, write_outputs
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import AVERAGE, BEST, OF_PARAMETERS, Run, Score, Task
from headdiv.companion.tasks.run_config import RunConfig, has_name, run_name
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_text
from headdiv.core.settings import check


@dataclass(frozen=True)
class Rescored:
    """A run with the scores of its stored outputs.

    Attributes:
        changed: by name of the score: what was stored (None: nothing) and what the outputs give now.
    """

    name: str
    path: Path
    changed: dict[str, tuple[float | None, float]]


def rescore(profile: str) -> list[Rescored]:
    """Compute the text scores of a profile's stored runs anew and write those that changed into their metrics.

    Everything is computed before anything is written, so that a run that cannot be scored leaves all as they were.
    Scores that no text decides (losses, exact match) stay. So does all else: curves, heads, provenance.

    Raises:
        ConfigError: no such profile.
        DataError: no run is stored, outputs are missing or of another number than the references, or the references are
            not those of the run.
    """
    of_texts = (one for one in Runs(profile).all() if type(TASKS[one.kind]).score_lines is not Task.score_lines)
    there = stored_files(profile, of_texts)
    if not there:
        raise DataError(
            f"{paths.results(profile)}: no stored run of a task that writes texts, so nothing to score anew"
        )
    found = [_rescored(config, path, profile) for path, config in there.items()]
    for metrics, outputs, one in found:
        if metrics is not None:
            write_outputs(one.path, outputs)  # first: the bootstrap compares their counts with the metrics
            write_text(one.path, in_lines(metrics))
    return [one for _, _, one in found]


def _rescored(config: RunConfig, path: Path, profile: str) -> tuple[dict[str, Any] | None, StoredOutputs, Rescored]:
    """Metrics to write (None: they stay), outputs with their counts, and what changed; nothing is written here."""
    stored, task = RunResult.read(path, profile), TASKS[config.kind]
    outputs = read_outputs(path, profile)
    # No model is needed: outputs and references decide.
    run = Run(config, run_folder(config), task.load(config.data), nn.Identity(), {})
    if differs := _other_data(stored, config, run):
        raise DataError(f"{path}: {differs}, so the references are not known to be this run's; {remedy(path, profile)}")
    scores = _scores(run, outputs.test, path, profile, outputs.tokens)
    metrics = read_json(path)
    kept = metrics["scores"]
    scores |= _of_more_outputs(stored, run, path, outputs, scores, profile)
    changed = {
        name: (kept[name]["value"] if name in kept else None, one["value"])
        for name, one in scores.items()
        if kept.get(name) != one
    }
    counts = task.sentence_counts(run, list(outputs.test)) if changed else None
    if counts is not None:
        outputs = outputs.model_copy(update={"counts": counts.tolist()})
    new = metrics | {"scores": _merged(kept, scores)} if changed else None
    return new, outputs, Rescored(stored.name, path, changed)


def _of_more_outputs(
    stored: RunResult, run: Run, path: Path, outputs: StoredOutputs, scores: dict[str, Score], profile: str
) -> dict[str, Score]:
    """The scores of the best epoch's outputs and of further test sets, as far as the run has them.

    The name of a run leaves out what further sets hold; the folder that each was searched in has it.
    """
    task, found = TASKS[stored.kind], {}
    others = task.further_tests(run) | {BEST: run, AVERAGE: run}
    for name in others if scores else ():
        compared = {one: f"{one}_{name}" for one in (task.test_score_name, *task.also_compared)}
        if not stored.scores.keys() >= set(compared.values()):
            continue
        searched = stored.more_outputs.get(name)
        if searched and name not in outputs.more:
            raise DataError(f"{path.with_name(FILE)}: more.{name}: missing; {remedy(path, profile)}")
        if (
            searched
            and name not in OF_PARAMETERS
            and (held := Path(searched).parent.name) != (now := others[name].folder.name)
        ):
            raise DataError(
                f"{path}: of a further test set {held}, expected {now} by the content of its files, so the references "
                f"are not known to be this run's; {remedy(path, profile)}"
            )
        # The outputs of the best epoch may be those of the last one.
        own = _scores(others[name], outputs.more[name], path, profile) if searched else scores
        *_, what = stored.scores[compared[task.test_score_name]].signature.rpartition("; ")
        found |= named({one: own[one] for one in compared}, name, what)
    return found


def _scores(
    run: Run, outputs: Outputs, path: Path, profile: str, tokens: list[list[str]] | None = None
) -> dict[str, Score]:
    """What `Task.score_lines` gives outputs beside the metrics at ``path``, whose file an error names."""
    try:
        return run.task.score_lines(run, list(outputs), tokens)
    except DataError as error:
        raise DataError(f"{path.with_name(FILE)}: {error}; {remedy(path, profile)}") from None


def _other_data(stored: RunResult, config: RunConfig, run: Run) -> str | None:
    """Why the profile's data are not those of a stored run, in words; None where they are.

    The name of a run has the checksums of its data's files, and the code of a method of one's own, which matters only
    where the checksums are not stored by themselves. Of a run from before some of today's keys of ``data`` that name
    can no longer be worked out: what was counted in the corpus is compared.
    """
    ours = config.model_dump(mode="json")
    same = difference(stored.config.sections(), ours, DECIDING) is None
    if has_name(config, stored.hash) or (same and stored.data.content == content_key(config.data)):
        return None
    if ours["data"].keys() <= stored.config.data.keys():
        of = "by the profile's settings and the checksums of its data and plugins"
        return f"hash is {stored.hash}, expected {run_name(config)} {of}"
    return corpus_difference(stored.data, check(DataStatistics, run.corpus.statistics))


def _merged(kept: dict[str, Score], scores: dict[str, Score]) -> dict[str, Score]:
    """The stored scores in their order with the new values, then what is new."""
    return {name: scores.get(name, one) for name, one in kept.items()} | scores
