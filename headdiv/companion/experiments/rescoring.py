"""What stored outputs score today, without a model: after a measure was corrected, or a package changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headdiv.companion.commands import remedy
from headdiv.companion.data.cache import content_key
from headdiv.companion.experiments.evaluation import named
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import corpus_difference
from headdiv.companion.experiments.run_result import DataStatistics, RunResult, stored_files
from headdiv.companion.experiments.running import run_folder
from headdiv.companion.experiments.stored_outputs import FILE, StoredOutputs, read_outputs, write_outputs
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import AVERAGE, BEST, OF_PARAMETERS, Run, Score, Task
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import DataError
from headdiv.core.files import in_lines, read_json, write_text
from headdiv.core.settings import check


@dataclass(frozen=True)
class Rescored:
    """A stored run with the scores that its outputs have today.

    Attributes:
        differing: scores with another value than the stored one, by name: that and today's.
        renewed: how many more are not stored yet, or have another signature.
        metrics: with today's scores.
        outputs: with today's counts.
    """

    name: str
    path: Path
    differing: dict[str, tuple[float, float]]
    renewed: int
    metrics: dict[str, Any]
    outputs: StoredOutputs

    def write(self) -> None:
        """Put today's scores in the place of the stored ones."""
        write_outputs(self.path, self.outputs)  # first: the bootstrap compares their counts with the metrics
        write_text(self.path, in_lines(self.metrics))


def rescore(profile: str) -> list[Rescored]:
    """Score the stored outputs of a profile's runs anew, of tasks that write texts; nothing is written.

    Scores that no text decides (losses, exact match) stay. So does all else: curves, heads, provenance.

    Raises:
        ConfigError: no such profile.
        DataError: the data cannot be had, outputs are missing or of another number than the references, or the
            references are not those of the run.
    """
    configs = (config for config in Runs(profile).all() if type(TASKS[config.kind]).score_lines is not Task.score_lines)
    return [_rescored(config, path, profile) for path, config in stored_files(profile, configs).items()]


def _rescored(config: RunConfig, path: Path, profile: str) -> Rescored:
    stored, task, outputs = RunResult.read(path, profile), TASKS[config.kind], read_outputs(path, profile)
    run = Run(config, run_folder(config), task.load(config.data), nn.Identity(), {})  # no model is needed
    if differs := _other_references(stored, run):
        raise DataError(f"{path}: {differs}, so the references are not this run's; {remedy(path, profile)}")
    try:
        scores = task.score_lines(run, list(outputs.test), outputs.tokens)
        for name, other in (task.further_tests(run) | {BEST: run, AVERAGE: run}).items():
            scores |= _further_scores(stored, outputs, name, other)
    except DataError as error:
        raise DataError(f"{path.with_name(FILE)}: {error}; {remedy(path, profile)}") from None
    metrics = read_json(path)
    kept = metrics["scores"]
    changed = [name for name, score in scores.items() if kept.get(name) != score]
    values = {name: (kept[name]["value"], scores[name]["value"]) for name in changed if name in kept}
    differing = {name: pair for name, pair in values.items() if not math.isclose(*pair)}
    if changed and (counts := task.sentence_counts(run, list(outputs.test))) is not None:
        outputs = outputs.model_copy(update={"counts": [tuple(row) for row in counts.tolist()]})
    in_order = {name: scores.get(name, score) for name, score in kept.items()} | scores
    renewed = len(changed) - len(differing)
    return Rescored(stored.name, path, differing, renewed, metrics | {"scores": in_order}, outputs)


def _further_scores(stored: RunResult, outputs: StoredOutputs, name: str, run: Run) -> dict[str, Score]:
    """The scores of other parameters' outputs, or of a further test set's, as far as the run has them.

    The outputs of the best epoch are those of the test set where that epoch is the last one.
    """
    compared = (run.task.test_score_name, *run.task.also_compared)
    if not stored.scores.keys() >= {f"{score}_{name}" for score in compared}:
        return {}
    lines = outputs.test
    if searched := stored.more_outputs.get(name):
        if name not in outputs.more:
            raise DataError(f"more.{name}: missing")
        # The name of a run leaves out what further sets hold; the folder that each was searched in has it.
        held, now = Path(searched).parent.name, run.folder.name
        if name not in OF_PARAMETERS and held != now:
            raise DataError(f"of a further test set {held}, expected {now} by the content of its files")
        lines = outputs.more[name]
    scores = run.task.score_lines(run, list(lines))
    *_, what = stored.scores[f"{compared[0]}_{name}"].signature.rpartition("; ")
    return named({score: scores[score] for score in compared}, name, what)


def _other_references(stored: RunResult, run: Run) -> str | None:
    """Why the data are not those of a stored run, in words; None where they are.

    Of a run from before the checksums of its data were kept, what was counted in its corpus is compared.
    """
    if (content := stored.data.content) is not None:
        now = content_key(run.config.data)
        return None if content == now else f"data.content is {content}, expected {now} by the checksums of its data"
    return corpus_difference(stored.data, check(DataStatistics, run.corpus.statistics))
