"""Whether what is stored belongs to its profile, has learnt anything, and scores today what it scored then.

Snakemake makes runs anew whose settings, data or code have changed, where it has made them before; of a clone's stored
runs it knows no configuration. Stored outputs are scored anew without a model: a measure may have been corrected, or a
package changed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from headdiv.companion import paths
from headdiv.companion.commands import remedy
from headdiv.companion.data.cache import content_key
from headdiv.companion.experiments.evaluation import named
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import (
    DECIDING,
    OF_VARIANT,
    corpus_difference,
    with_results,
)
from headdiv.companion.experiments.run_result import (
    OUTPUTS,
    DataStatistics,
    RunIdentity,
    RunResult,
    StoredOutputs,
    metrics_path,
    read_outputs,
    stored_files,
    write_outputs,
)
from headdiv.companion.experiments.running import run_folder
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import AVERAGE, BEST, OF_PARAMETERS, Run, Score, Task
from headdiv.companion.tasks.run_config import RunConfig, content_of, difference, run_name
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError, DataError, HeaddivError
from headdiv.core.files import in_lines, read_json, write_text
from headdiv.core.settings import check


def check_profile(profile: str, with_scores: bool = True, write: bool = False) -> Iterator[str]:
    """Check a profile's stored runs; what is worth knowing, a sentence each.

    Args:
        profile: its name or path.
        with_scores: score the outputs of tasks that write texts anew, which reads the data.
        write: put today's scores in the place of the stored ones.

    Raises:
        HeaddivError: runs that are not the profile's, that have learnt nothing, or that score otherwise today.
    """
    if wrong := [*outdated(profile), *of_other_content(profile)]:
        raise HeaddivError("\n".join(wrong))
    others = 0
    for run in rescore(profile) if with_scores else ():
        others += len(run.differing)
        for score, (stored, now) in run.differing.items():
            yield f"{run.name}: {score} is stored as {stored:.4f}, and {now:.4f} today"
        if write:
            run.write()
    if wrong := failures(profile):
        raise HeaddivError("\n".join(wrong))
    if others and not write:
        raise HeaddivError(f"{others} scores of stored outputs are others today; --write keeps today's")
    yield "Every stored run is the profile's and has learnt: its loss fell, and validation beats frequencies alone."


# ---- settings, data and code


def outdated(profile: str, experiment: str | None = None) -> list[str]:
    """One sentence for each stored run of a profile, or of its experiment, whose configuration is no longer its own."""
    runs = [RunResult.read(file, profile) for file in stored_files(profile, Runs(profile).planned(experiment))]
    return list(outdated_among(profile, runs).values())


def outdated_among(profile: str, runs: Iterable[RunIdentity]) -> dict[str, str]:
    """The sentences of `outdated` about these runs of a profile, by the run's name."""
    sentences, known, file = {}, Runs(profile), paths.profile_file(profile)
    for run in runs:
        path = metrics_path(profile, run.experiment, run.variant, run.seed).with_name(f"{run.noun}.json")
        try:
            config = known.config(run.experiment, run.variant, run.seed).model_dump(mode="json")
        except ConfigError as error:  # its arm is not tuned yet
            sentences[run.name] = f"{path}: {error}"
            continue
        if differs := difference(run.config.sections(), config, OF_VARIANT):
            sentences[run.name] = f"{path}: {differs} in {file}; {remedy(path, profile, run.command)}"
    return sentences


def refuse_outdated(profile: str, experiment: str | None = None) -> None:
    """Raise a DataError with the first sentence of `outdated`, if there is one."""
    if sentences := outdated(profile, experiment):
        raise DataError(sentences[0])


def of_other_content(profile: str) -> list[str]:
    """One sentence for each choice and run of a profile whose data files, or own method's code, have changed since.

    Of settings that differ `outdated` says it. Nothing is said where files of the data are not here, and of runs from
    before some of today's settings, whose name can no longer be worked out.
    """
    known, sentences = Runs(profile), []
    for arm in (arm for arms in known.arms.values() for arm in arms.values()):
        with contextlib.suppress(ConfigError, DataError):
            if (choice := arm.choice) and choice.content not in (None, now := content_of(arm.configs[0])):
                what = f"content is {choice.content}, expected {now} by the checksums of the profile's data and plugins"
                sentences.append(f"{arm.choice_file}: {what}; `{arm.command}` makes it anew")
    for path, planned in stored_files(profile, known.configs()).items():
        run = RunResult.read(path, profile)
        config = planned.model_copy(update={"threads": run.provenance.threads})
        theirs, ours = run.config.sections(), config.model_dump(mode="json")
        later_keys = any(
            ours[section].keys() - theirs[section].keys() - {*TrainConfig.of_no_effect} for section in DECIDING
        )
        if later_keys or difference(theirs, ours, DECIDING):
            continue
        with contextlib.suppress(ConfigError, DataError):
            if (name := run_name(config)) != run.hash:
                expected = f"expected {name} by the checksums of the profile's data and plugins"
                sentences.append(f"{path}: hash is {run.hash}, {expected}; {remedy(path, profile, run.command)}")
    return sentences


# ---- learning


def failures(profile: str) -> list[str]:
    """One sentence for each stored run of a profile that diverged or learnt nothing (`RunResult.failures`)."""
    runs = (run for runs in with_results(profile).values() for run in runs)
    return [f"{run.name}: {sentence}" for run in runs for sentence in run.failures()]


# ---- what stored outputs score today


@dataclass(frozen=True)
class Rescored:
    """A stored run with the scores that its outputs have today.

    Attributes:
        differing: scores with another value than the stored one, by name: that and today's.
        changed: whether anything is other than what is stored, if only a signature.
        metrics: with today's scores.
        outputs: with today's counts.
    """

    name: str
    path: Path
    differing: dict[str, tuple[float, float]]
    changed: bool
    metrics: dict[str, Any]
    outputs: StoredOutputs

    def write(self) -> None:
        """Put today's scores in the place of the stored ones, where they are others."""
        if self.changed:
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
    configs = (
        config for config in Runs(profile).configs() if type(TASKS[config.kind]).score_lines is not Task.score_lines
    )
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
        raise DataError(f"{path.with_name(OUTPUTS)}: {error}; {remedy(path, profile)}") from None
    metrics = read_json(path)
    kept = metrics["scores"]
    changed = [name for name, score in scores.items() if kept.get(name) != score]
    values = {name: (kept[name]["value"], scores[name]["value"]) for name in changed if name in kept}
    # torchtext's BLEU is in float32, whose last digits are the processor's
    differing = {name: pair for name, pair in values.items() if not math.isclose(*pair, rel_tol=1e-6)}
    if changed and (counts := task.sentence_counts(run, list(outputs.test))) is not None:
        outputs = outputs.model_copy(update={"counts": [tuple(row) for row in counts.tolist()]})
    in_order = {name: scores.get(name, score) for name, score in kept.items()} | scores
    return Rescored(stored.name, path, differing, bool(changed), metrics | {"scores": in_order}, outputs)


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
