"""Whether stored runs belong to their profile, have learnt anything, and score today what they scored then.

Snakemake reruns what it has made itself once settings, data or code change; of a clone's stored runs it knows no
configuration. Stored outputs are scored again without a model: a measure may have been corrected, or a package changed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch import nn

from headdiv.companion import paths
from headdiv.companion.commands import remedy
from headdiv.companion.experiments.evaluation import named
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import (
    DECIDING,
    OF_VARIANT,
    with_results,
)
from headdiv.companion.experiments.run_result import (
    OUTPUTS,
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
from headdiv.core.errors import ConfigError, DataError, HeaddivError, NotStoredError
from headdiv.core.files import in_lines, read_json, write_text


def check_profile(profile: str, with_scores: bool = True, write: bool = False) -> Iterator[str]:
    """Check a profile's stored runs; yields what is worth knowing, a sentence each.

    Args:
        profile: its name or path.
        with_scores: score the outputs of tasks that write texts again, which reads the data.
        write: replace the stored scores by today's.

    Raises:
        HeaddivError: runs that are not the profile's, that have learnt nothing, or that score otherwise today.
    """
    if problems := [*outdated(profile), *changed_content(profile)]:
        raise HeaddivError("\n".join(problems))
    differing = 0
    for run, scores in (rescore(profile, write) if with_scores else {}).items():
        differing += len(scores)
        for score, (stored, current) in scores.items():
            yield f"{run}: {score} is stored as {stored:.4f}, and {current:.4f} today"
    if problems := failures(profile):
        raise HeaddivError("\n".join(problems))
    if differing and not write:
        raise HeaddivError(f"{differing} scores of stored outputs are others today; --write keeps today's")
    known = [variant for section in Runs(profile).profile.experiments.values() for variant in section.unlearned]
    but = f" (but those of {', '.join(known)})" if known else ""
    learnt = "has learnt: its loss fell, and validation beats frequencies alone"
    yield f"Every stored run is the profile's, and each{but} {learnt}."


# ---- settings, data and code


def outdated(profile: str, experiment: str | None = None) -> list[str]:
    """One sentence for each stored run of a profile, or of its experiment, whose configuration is no longer its own."""
    runs = [RunResult.read(file, profile) for file in stored_files(profile, Runs(profile).planned(experiment))]
    return list(outdated_among(profile, runs).values())


def outdated_among(profile: str, runs: Iterable[RunIdentity]) -> dict[str, str]:
    """The sentences of `outdated` about these runs of a profile, by the run's name."""
    sentences, profile_runs, file = {}, Runs(profile), paths.profile_file(profile)
    for run in runs:
        path = metrics_path(profile, run.experiment, run.variant, run.seed).with_name(f"{run.noun}.json")
        try:
            config = profile_runs.config(run.experiment, run.variant, run.seed).model_dump(mode="json")
        except (ConfigError, NotStoredError) as error:  # of the latter: its arm is not tuned yet
            sentences[run.name] = f"{path}: {error}"
            continue
        if mismatch := difference(run.config.sections(), config, OF_VARIANT):
            sentences[run.name] = f"{path}: {mismatch} in {file}; {remedy(path, profile, run.command)}"
    return sentences


def refuse_outdated(profile: str, experiment: str | None = None) -> None:
    """Raise a DataError with the first sentence of `outdated`, if there is one."""
    if sentences := outdated(profile, experiment):
        raise DataError(sentences[0])


def changed_content(profile: str) -> list[str]:
    """One sentence for each choice and run of a profile whose data files, or own method's code, have changed since.

    Settings that differ are left to `outdated`. Nothing is said where files of the data are not here, nor of runs from
    before some of today's settings, whose name can no longer be worked out.
    """
    runs, sentences = Runs(profile), []
    for arm in (arm for arms in runs.arms.values() for arm in arms.values()):
        with contextlib.suppress(ConfigError, DataError):
            choice = arm.choice
            if choice is None or choice.content is None:
                continue
            content = content_of(arm.configs[0])
            if choice.content != content:
                expected = f"expected {content} by the checksums of the profile's data and plugins"
                sentences.append(
                    f"{arm.choice_file}: content is {choice.content}, {expected}; `{arm.command}` makes it anew"
                )
    for path, planned in stored_files(profile, runs.configs()).items():
        run = RunResult.read(path, profile)
        config = planned.model_copy(update={"threads": run.provenance.threads})
        stored, current = run.config.sections(), config.model_dump(mode="json")
        later_keys = any(
            current[section].keys() - stored[section].keys() - {*TrainConfig.of_no_effect} for section in DECIDING
        )
        if later_keys or difference(stored, current, DECIDING):
            continue
        with contextlib.suppress(ConfigError, DataError):
            if (name := run_name(config)) != run.hash:
                expected = f"expected {name} by the checksums of the profile's data and plugins"
                sentences.append(f"{path}: hash is {run.hash}, {expected}; {remedy(path, profile, run.command)}")
    return sentences


# ---- learning


def failures(profile: str) -> list[str]:
    """One sentence for each stored run of a profile that diverged or learnt nothing, and is not known for it."""
    experiments = Runs(profile).profile.experiments
    return [
        f"{run.name}: {sentence}"
        for experiment, runs in with_results(profile).items()
        for run in runs
        if run.variant not in experiments[experiment].unlearned
        for sentence in run.failures()
    ]


# ---- what stored outputs score today


def rescore(profile: str, write: bool = False) -> dict[str, dict[str, tuple[float, float]]]:
    """Score the stored outputs of a profile's runs again, for tasks that write texts.

    Scores that no text decides (losses, exact match) stay. So does all else: curves, heads, provenance. That the data
    are those of the runs is not checked here but by `changed_content`.

    Args:
        profile: its name or path.
        write: replace the stored scores by today's, also where a signature alone differs.

    Returns:
        By run, the scores with another value than the stored one, by name: that and today's.

    Raises:
        ConfigError: no such profile.
        DataError: the data cannot be had, or outputs are missing or not as many as the references.
    """
    configs = (
        config for config in Runs(profile).configs() if type(TASKS[config.kind]).score_lines is not Task.score_lines
    )
    files = stored_files(profile, configs)
    return {config.label: _rescore(config, path, profile, write) for path, config in files.items()}


def _rescore(config: RunConfig, path: Path, profile: str, write: bool) -> dict[str, tuple[float, float]]:
    stored, task, outputs = RunResult.read(path, profile), TASKS[config.kind], read_outputs(path, profile)
    run = Run(config, run_folder(config), task.load(config.data), nn.Identity(), {})  # no model is needed
    try:
        scores = task.score_lines(run, list(outputs.test), outputs.tokens)
        for name, other in (task.further_tests(run) | {BEST: run, AVERAGE: run}).items():
            scores |= _further_scores(stored, outputs, name, other)
    except DataError as error:
        raise DataError(f"{path.with_name(OUTPUTS)}: {error}; {remedy(path, profile)}") from None
    metrics = read_json(path)
    old_scores = metrics["scores"]
    changed = [name for name, score in scores.items() if old_scores.get(name) != score]
    if write and changed:
        counts = task.sentence_counts(run, list(outputs.test))
        if counts is not None:
            outputs = outputs.model_copy(update={"counts": [tuple(row) for row in counts.tolist()]})
        write_outputs(path, outputs)  # first: the bootstrap compares their counts with the metrics
        in_order = {name: scores.get(name, score) for name, score in old_scores.items()} | scores
        write_text(path, in_lines(metrics | {"scores": in_order}))
    values = {name: (old_scores[name]["value"], scores[name]["value"]) for name in changed if name in old_scores}
    # torchtext's BLEU is in float32, whose last digits depend on the processor
    return {name: pair for name, pair in values.items() if not math.isclose(*pair, rel_tol=1e-6)}


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
        stored_name, current_name = Path(searched).parent.name, run.folder.name
        if name not in OF_PARAMETERS and stored_name != current_name:
            raise DataError(f"of a further test set {stored_name}, expected {current_name} by the content of its files")
        lines = outputs.more[name]
    scores = run.task.score_lines(run, list(lines))
    *_, note = stored.scores[f"{compared[0]}_{name}"].signature.rpartition("; ")
    return named({score: scores[score] for score in compared}, name, note)
