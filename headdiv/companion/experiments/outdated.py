"""Stored runs whose configuration, data or code is no longer the profile's.

Snakemake makes such runs anew where it has made them before; of a clone's stored runs it knows no configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from headdiv.companion import paths
from headdiv.companion.commands import remedy
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import DECIDING, OF_VARIANT, difference
from headdiv.companion.experiments.run_result import RunIdentity, RunResult, metrics_path, stored_files
from headdiv.companion.tasks.run_config import OF_NO_EFFECT, content_of, has_name, run_name
from headdiv.core.errors import ConfigError, DataError


def outdated(profile: str, experiment: str | None = None) -> list[str]:
    """One sentence for each stored run of a profile, or of its experiment, whose configuration is no longer its own."""
    runs = [RunResult.read(file, profile) for file in stored_files(profile, Runs(profile).planned(experiment))]
    return list(outdated_among(profile, runs).values())


def outdated_among(profile: str, runs: Iterable[RunIdentity]) -> dict[str, str]:
    """The sentences of `outdated` about these runs of a profile, by the run's name."""
    found, known, file = {}, Runs(profile), paths.profile_file(profile)
    for run in runs:
        path = metrics_path(profile, run.experiment, run.variant, run.seed).with_name(f"{run.noun}.json")
        if (arm := known.arm_of(run)) and not arm.choice:
            found[run.name] = f"{path}: {arm.untuned}"
            continue
        config = known.one(run.experiment, run.variant, run.seed).model_dump(mode="json")
        if differs := difference(run.config.sections(), config, OF_VARIANT):
            found[run.name] = f"{path}: {differs} in {file}; {remedy(path, profile, run.command)}"
    return found


def of_other_content(profile: str) -> list[str]:
    """One sentence for each choice and run of a profile whose data files, or own method's code, have changed since.

    Of settings that differ `outdated` says it. Nothing is said where files of the data are not here, and of runs from
    before some of today's settings, whose name can no longer be worked out.
    """
    known, found = Runs(profile), []
    for arm in (arm for arms in known.arms.values() for arm in arms.values()):
        with contextlib.suppress(ConfigError, DataError):
            if (choice := arm.choice) and choice.content not in (None, now := content_of(arm.configs[0])):
                what = f"content is {choice.content}, expected {now} by the checksums of the profile's data and plugins"
                found.append(f"{arm.choice_file}: {what}; `{arm.command}` makes it anew")
    for path, planned in stored_files(profile, known.all()).items():
        run = RunResult.read(path, profile)
        config = planned.model_copy(update={"threads": run.provenance.threads})
        theirs, ours = run.config.sections(), config.model_dump(mode="json")
        if difference(theirs, ours, DECIDING) or any(
            ours[section].keys() - theirs[section].keys() - {*OF_NO_EFFECT} for section in DECIDING
        ):
            continue
        with contextlib.suppress(ConfigError, DataError):
            if not has_name(config, run.hash):
                expected = f"expected {run_name(config)} by the checksums of the profile's data and plugins"
                found.append(f"{path}: hash is {run.hash}, {expected}; {remedy(path, profile, run.command)}")
    return found


def refuse_outdated(profile: str, experiment: str | None = None) -> None:
    """Raise a DataError with the first sentence of `outdated`, if there is one."""
    if found := outdated(profile, experiment):
        raise DataError(found[0])
