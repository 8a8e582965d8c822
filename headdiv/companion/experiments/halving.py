"""Tuning: trains the settings of an arm by successive halving, from what is stored of it, and keeps the choice.

A setting's training is that of a run of the experiment with this setting and a tuning seed: all of its epochs are
before it (schedule, progress of the method), it is stopped after a rung and goes on from its checkpoint to the next.
What it measured is stored among the results, since ``work/`` is not kept: a tuning that is repeated, or was killed,
trains only what is not stored. An epoch that is stored is never replaced: a training whose checkpoints are lost may be
repeated on another processor, which rounds differently. Validation loss alone decides; nothing is computed on the test
set.
"""

from __future__ import annotations

import math
from statistics import mean

from pydantic import ConfigDict, Field

from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import note_owner
from headdiv.companion.experiments.running import choose_device, discard_checkpoints, train_until
from headdiv.companion.experiments.tuning import Arm, Choice, Origin, Setting, Tried
from headdiv.companion.provenance import commit, origin, provenance
from headdiv.companion.tasks.run_config import content_of, run_name
from headdiv.core import progress
from headdiv.core.errors import ConfigError, DivergenceError, TrainingError
from headdiv.core.files import read_json, write_json
from headdiv.core.settings import Settings, check, nearest

MEASURED = ("epoch", "steps", "training_loss", "validation_nll")  # of a point of a curve


class Training(Settings):
    """What is stored of the training of a setting with a seed, in a file that has its run's name.

    Attributes:
        epochs: after which it was stopped; the curve is shorter where it ended or diverged before.
        curve: by epoch, `MEASURED`.
        seconds: of training.
        diverged: the sentence about it, where it has.
        origins: where it was trained.
    """

    model_config = ConfigDict(extra="ignore")  # files of before have more

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


def tune(profile: str, experiment: str, variant: str | None = None) -> list[Choice]:
    """Tune the arms of an experiment, or one of them, as far as that has not been done; the choices.

    Raises:
        ConfigError: the profile has no such experiment, or no such arm.
        TrainingError: all settings of an arm diverge.
    """
    runs = Runs(profile)
    runs.planned(experiment)
    if runs.profile.ranks > 1:
        raise ConfigError(f"profile {runs.name}: ranks: tuning trains in one process, expected 1 beside 'tune'")
    arms = runs.arms.get(experiment, {})
    if not arms:
        raise ConfigError(f"profile {runs.name}: {experiment} has no section 'tune', expected one where arms are tuned")
    if variant not in (None, *arms):
        raise ConfigError(f"profile {runs.name}: {experiment} has no arm {variant!r}{nearest(variant, list(arms))}")
    return [tune_arm(arm) for name, arm in arms.items() if variant in (None, name)]


def tune_arm(arm: Arm) -> Choice:
    """An arm's choice: that which is stored for this data, or train what is not stored, choose, and keep the choice."""
    choice = arm.choice
    if choice is None or choice.content not in (None, content_of(arm.configs[0])):
        choice = _choose(arm)
        note_owner(arm.profile)
        write_json(arm.choice_file, choice.model_dump(mode="json"))
    for number in range(len(arm.settings)):
        for seed in arm.tune.seeds:
            discard_checkpoints(arm.config(number, seed))
    return choice


def _choose(arm: Arm) -> Choice:
    """Train what is not stored of an arm, and choose."""
    tune, name, alive = arm.tune, f"{arm.experiment} {arm.variant}", list(range(len(arm.settings)))
    trainings: dict[int, list[Training]] = {}  # of each setting, by seed
    losses: dict[int, list[float]] = {number: [] for number in alive}
    fell_out: dict[int, int] = {}
    for rung, keep, seeds in zip(tune.rungs, tune.keep, tune.rung_seeds, strict=True):
        for number in alive:
            trainings[number] = [_training(arm, number, seed, rung) for seed in seeds]
            losses[number].append(mean(training.lowest(rung) for training in trainings[number]))
        kept = sorted(alive, key=lambda number: (losses[number][-1], number))[:keep]
        fell_out |= {number: rung for number in alive if number not in kept}
        alive = sorted(kept)
        left = ", ".join(str(number + 1) for number in alive)
        progress.message(f"{name}: left after epoch {rung}, of {len(losses)} settings: {left}")
    if math.isinf(losses[alive[0]][-1]):
        raise TrainingError(f"{name}: every setting diverged with one seed at least; expected one that can be trained")
    every = [training for of_setting in trainings.values() for training in of_setting]
    return Choice(
        experiment=arm.experiment,
        arm=arm.variant,
        key=arm.key,
        content=content_of(arm.configs[0]),
        seeds=tune.seeds,
        rungs=tune.rungs,
        keep=tune.keep,
        tried=[
            Tried(
                setting=arm.settings[number],
                curves={each.seed: each.losses(fell_out.get(number, tune.rungs[-1])) for each in trainings[number]},
                losses=[None if math.isinf(loss) else loss for loss in losses[number]],
                fell_out=fell_out.get(number),
            )
            for number in losses
        ],
        seconds=sum(training.seconds for training in every),
        origins=list(dict.fromkeys(where for training in every for where in training.origins)),
        provenance=provenance(arm.configs[0].threads, choose_device()),
    )


def _training(arm: Arm, number: int, seed: int, epochs: int) -> Training:
    """The training of a setting with a seed: the stored one, trained further where that is shorter."""
    config, setting = arm.config(number, seed), arm.settings[number]
    path = arm.choice_file.with_name(f"{run_name(config)}.json")
    stored = Training(run=run_name(config), setting=setting, seed=seed)
    if path.is_file():
        stored = check(Training, read_json(path))
    if stored.epochs >= epochs or len(stored.curve) < stored.epochs:
        return stored
    progress.message(f"{arm.experiment} {arm.variant}, setting {number + 1}: {setting}")
    here = Origin(commit=commit(), processor=origin(choose_device()))
    further = {"epochs": epochs, "origins": list(dict.fromkeys([*stored.origins, here]))}
    try:
        state = train_until(config, epochs)
        points = [{key: point[key] for key in MEASURED} for point in state.curve[len(stored.curve) : epochs]]
        further |= {"curve": stored.curve + points, "seconds": state.seconds}
    except DivergenceError as error:
        further["diverged"] = str(error)
        progress.message(f"{config.label}: diverged")
    training = stored.model_copy(update=further)
    write_json(path, training.model_dump(mode="json"))
    return training
