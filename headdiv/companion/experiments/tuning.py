"""Tuning: trains the settings of an arm by successive halving, from what is stored of it, and keeps the choice.

An arm is a variant that its profile tunes (`headdiv.companion.experiments.profile_file`). A setting's training is that
of a run of the experiment with this setting and a tuning seed: planned for all of its epochs (schedule, progress of the
method), it is stopped after a rung and goes on from its checkpoint to the next. What it measured is stored among the
results, since ``work/`` is not kept: a tuning that is repeated, or was killed, trains only what is not stored. An epoch
that is stored is never replaced: a training whose checkpoints are lost may be repeated on another processor, which
rounds differently. Validation loss alone decides; nothing is computed on the test set.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import ConfigDict, Field

from headdiv.companion import paths
from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.profile_file import Setting, Tune
from headdiv.companion.experiments.running import choose_device, discard_checkpoints, train_until
from headdiv.companion.provenance import commit, origin, provenance
from headdiv.companion.tasks.run_config import RunConfig, content_of, run_name
from headdiv.core import progress
from headdiv.core.errors import ConfigError, DataError, DivergenceError, TrainingError
from headdiv.core.files import read_json, short_hash, write_json
from headdiv.core.settings import Settings, check

MEASURED = ("epoch", "steps", "training_loss", "validation_nll")  # of a point of a curve


class Origin(Settings):
    """Where a training was done: two of them may round differently."""

    commit: str | None
    processor: str


class Training(Settings):
    """What is stored of the training of a setting with a seed, in a file that has its run's name.

    Attributes:
        epochs: after which it was stopped; the curve is shorter where it ended or diverged before.
        curve: by epoch, `MEASURED`.
        seconds: of training.
        diverged: the sentence about it, if it diverged.
        origins: where it was trained.
    """

    model_config = ConfigDict(extra="ignore")  # older files have more keys

    run: str
    setting: Setting
    seed: int
    epochs: int = 0
    curve: list[dict[str, float]] = Field(default_factory=list)
    seconds: float = 0.0
    diverged: str | None = None
    origins: list[Origin] = Field(default_factory=list)

    def losses(self, epochs: int) -> list[float]:
        """The validation loss after each of the first epochs."""
        return [point["validation_nll"] for point in self.curve[:epochs]]

    def lowest(self, epochs: int) -> float:
        """The lowest validation loss of the first epochs, which a rung is judged by; infinite where it diverged."""
        return math.inf if self.diverged and len(self.curve) < epochs else min(self.losses(epochs))


class Tried(Settings):
    """The result of one setting of an arm.

    Attributes:
        setting: by dotted key.
        curves: validation loss after each epoch, by seed.
        losses: by rung, as far as it got: the lowest of a curve up to there, mean over seeds; None: it diverged.
        fell_out: epochs of the rung after which it was not trained further; None: it is the choice.
    """

    setting: Setting
    curves: dict[int, list[float]]
    losses: list[float | None]
    fell_out: int | None


class Choice(Settings):
    """The content of ``choice.json``: what was tried for an arm, and what was chosen.

    Attributes:
        key: that of the arm (`Arm.key`) it was made for.
        content: of the data it was made with, and of a method of one's own (`content_of`), which a plan of stored
            results need not have; None for choices that were made before it was kept.
        seconds: of training, in all.
        origins: of the trainings, each once; `provenance` is that of the last step.
    """

    format: int = 1
    experiment: str
    arm: str
    key: str
    content: str | None = None
    seeds: list[int]
    rungs: list[int]
    keep: list[int]
    tried: list[Tried]
    seconds: float
    origins: list[Origin]
    provenance: dict[str, Any]

    @property
    def chosen(self) -> Tried:
        """The setting that survived."""
        return next(tried for tried in self.tried if tried.fell_out is None)


@dataclass(frozen=True)
class Arm:
    """A variant that is tuned.

    Attributes:
        profile: its name or path, as commands take it.
        tune: the section of the profile.
        settings: those that are tried, in order.
        configs: a run with each, of any seed.
    """

    profile: str
    tune: Tune
    settings: list[Setting]
    configs: list[RunConfig]

    @property
    def name(self) -> str:
        """ "deacon/translation direct-8"."""
        return f"{self.configs[0].experiment} {self.configs[0].variant}"

    @property
    def choice_file(self) -> Path:
        """``results/<profile>/<paper>/<task>/tune/<variant>/choice.json``, beside its trainings."""
        config = self.configs[0]
        return paths.results(self.profile) / config.experiment / "tune" / config.variant / "choice.json"

    def config(self, number: int, seed: int) -> RunConfig:
        """The run with a setting, counted from 0, and a seed."""
        return self.configs[number].model_copy(update={"seed": seed})

    @cached_property
    def key(self) -> str:
        """Changes with all settings that decide the choice."""
        hashes = [self.config(number, seed).hash for number in range(len(self.configs)) for seed in self.tune.seeds]
        content = [self.tune.rungs, self.tune.keep, hashes]
        if self.tune.seeds_per_rung:
            content.append(self.tune.seeds_per_rung)
        return short_hash(content)

    @property
    def choice(self) -> Choice | None:
        """What was chosen; None where it has not been tuned, or with other settings, rungs or seeds.

        Raises:
            DataError: its file is damaged.
        """
        if not self.choice_file.is_file():
            return None
        with self.reading():
            content = read_json(self.choice_file)
            if isinstance(content, dict) and content.get("key") != self.key:
                return None
            return check(Choice, content, (str(self.choice_file),))

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Errors of reading a file that was stored of it, as DataErrors that say what makes the file anew."""
        try:
            yield
        except (ConfigError, DataError) as error:
            raise DataError(f"{error}; remove it, and `{self.command}` makes it anew") from None

    @property
    def command(self) -> str:
        """The command that tunes it."""
        config = self.configs[0]
        return headdiv_command("tune", config.experiment, "--profile", self.profile, "--arm", config.variant)

    @property
    def untuned(self) -> str:
        """The sentence about an arm without a choice."""
        reason = "was made for other settings" if self.choice_file.is_file() else "is not there"
        return f"{self.name}: not tuned yet, {self.choice_file} {reason}; `{self.command}` tunes it"

    def tuned(self, seed: int) -> RunConfig | None:
        """Its run with the chosen setting; None before there is one."""
        choice = self.choice
        return None if choice is None else self.config(choice.tried.index(choice.chosen), seed)


def tune(arm: Arm) -> Choice:
    """An arm's choice: the stored one, if it is for this data; else train what is not stored, choose, and store it.

    Raises:
        DataError: a file that is stored of it is damaged.
        TrainingError: all settings diverge.
    """
    choice = arm.choice
    if choice is None or choice.content not in (None, content_of(arm.configs[0])):
        choice = _choose(arm)
        write_json(arm.choice_file, choice.model_dump(mode="json"))
    for number in range(len(arm.settings)):
        for seed in arm.tune.seeds:
            discard_checkpoints(arm.config(number, seed))
    return choice


def _choose(arm: Arm) -> Choice:
    """Train what is not stored of an arm, and choose."""
    alive = list(range(len(arm.settings)))
    trainings: dict[int, list[Training]] = {}  # of each setting, by seed
    losses: dict[int, list[float]] = {number: [] for number in alive}
    fell_out: dict[int, int] = {}
    for rung, keep, seeds in zip(arm.tune.rungs, arm.tune.keep, arm.tune.rung_seeds, strict=True):
        for number in alive:
            trainings[number] = [_training(arm, number, seed, rung) for seed in seeds]
            losses[number].append(mean(training.lowest(rung) for training in trainings[number]))
        kept = sorted(alive, key=lambda number: (losses[number][-1], number))[:keep]
        fell_out |= {number: rung for number in alive if number not in kept}
        alive = sorted(kept)
        numbers = ", ".join(str(number + 1) for number in alive)
        progress.message(f"{arm.name}: left after epoch {rung}, of {len(losses)} settings: {numbers}")
    if math.isinf(losses[alive[0]][-1]):
        raise TrainingError(f"{arm.name}: every setting diverged with one seed at least; expected one that does not")
    tried = [
        Tried(
            setting=setting,
            curves={
                training.seed: training.losses(fell_out.get(number, arm.tune.rungs[-1]))
                for training in trainings[number]
            },
            losses=[None if math.isinf(loss) else loss for loss in losses[number]],
            fell_out=fell_out.get(number),
        )
        for number, setting in enumerate(arm.settings)
    ]
    all_trainings = [training for by_seed in trainings.values() for training in by_seed]
    return Choice(
        experiment=arm.configs[0].experiment,
        arm=arm.configs[0].variant,
        key=arm.key,
        content=content_of(arm.configs[0]),
        seeds=arm.tune.seeds,
        rungs=arm.tune.rungs,
        keep=arm.tune.keep,
        tried=tried,
        seconds=sum(training.seconds for training in all_trainings),
        origins=list(dict.fromkeys(place for training in all_trainings for place in training.origins)),
        provenance=provenance(arm.configs[0].threads, choose_device()),
    )


def _training(arm: Arm, number: int, seed: int, epochs: int) -> Training:
    """The training of a setting with a seed: the stored one, trained further where that is shorter."""
    config, setting = arm.config(number, seed), arm.settings[number]
    path = arm.choice_file.with_name(f"{run_name(config)}.json")
    stored = Training(run=run_name(config), setting=setting, seed=seed)
    if path.is_file():
        with arm.reading():
            stored = check(Training, read_json(path), (str(path),))
    if stored.epochs >= epochs or len(stored.curve) < stored.epochs:
        return stored
    progress.message(f"{arm.name}, setting {number + 1}: {setting}")
    current = Origin(commit=commit(), processor=origin(choose_device()))
    changes: dict[str, Any] = {"epochs": epochs, "origins": list(dict.fromkeys([*stored.origins, current]))}
    try:
        state = train_until(config, epochs)
        points = [{key: point[key] for key in MEASURED} for point in state.curve[len(stored.curve) : epochs]]
        changes |= {"curve": stored.curve + points, "seconds": state.seconds}
    except DivergenceError as error:
        changes["diverged"] = str(error)
        progress.message(f"{config.label}: diverged")
    training = stored.model_copy(update=changes)
    write_json(path, training.model_dump(mode="json"))
    return training
