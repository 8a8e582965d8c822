"""Tuning: trains the settings of an arm by successive halving, from what is stored of it, and keeps the choice.

A setting's training is that of a run of the experiment with this setting and a tuning seed: all of its epochs are
before it (schedule, progress of the method), it is stopped after a rung and goes on from its checkpoint to the next.
What it measured is stored among the results, since ``work/`` is not kept: a tuning that is repeated, or was killed,
trains only what is not stored, to the same numbers. The loss that decided at a rung is never replaced: a training whose
checkpoints are lost may be repeated on another processor, which rounds differently. Validation loss alone decides;
nothing is computed on the test set.
"""

from __future__ import annotations

import math
from statistics import mean

from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import note_owner
from headdiv.companion.experiments.running import choose_device, discard_checkpoints, train_until
from headdiv.companion.experiments.tuning import FORMAT, Arm, Choice, Origin, Setting, Tried, read_stored
from headdiv.companion.provenance import commit, origin, provenance
from headdiv.companion.tasks.run_config import RunConfig, content_of, run_name
from headdiv.core import progress
from headdiv.core.errors import ConfigError, DivergenceError, TrainingError
from headdiv.core.files import write_json
from headdiv.core.settings import Settings, nearest

MEASURED = ("epoch", "steps", "training_loss", "validation_nll")  # of a point of a curve


class Judged(Settings):
    """What a rung was decided by.

    Attributes:
        epochs: of the rung.
        loss: the lowest validation loss of these epochs; None: it diverged within them.
        origin: of the training up to there.
    """

    epochs: int
    loss: float | None
    origin: Origin


class Training(Settings):
    """What is stored of the training of a setting with a seed.

    Attributes:
        run: its name (`run_name`), which is the file's as well.
        epochs: after which it was stopped; the curve is shorter where it ended or diverged before.
        curve: by epoch, `MEASURED`.
        judged: by rung, written once, even where the curve is later trained anew.
        seconds: of training.
        diverged: the sentence about it, where it has.
    """

    format: int
    run: str
    setting: Setting
    seed: int
    epochs: int
    curve: list[dict[str, float]]
    seconds: float
    diverged: str | None
    judged: list[Judged]

    def has(self, epochs: int) -> bool:
        """Whether all is there that a training of so many epochs gives."""
        return self.epochs >= epochs or len(self.curve) < self.epochs

    def losses(self, epochs: int) -> list[float]:
        """The validation loss after each of the first epochs."""
        return [point["validation_nll"] for point in self.curve[:epochs]]

    def lowest(self, epochs: int) -> float:
        """The lowest validation loss of the first epochs, which a rung is judged by; infinite where it diverged."""
        found = next((judged.loss for judged in self.judged if judged.epochs == epochs), None)
        return math.inf if found is None else found

    def judge(self, epochs: int, origin: Origin) -> Training:
        """With a rung's loss, if it has none of it yet."""
        if any(judged.epochs == epochs for judged in self.judged):
            return self
        loss = None if self.diverged and len(self.curve) < epochs else min(self.losses(epochs))
        judged = [*self.judged, Judged(epochs=epochs, loss=loss, origin=origin)]
        return self.model_copy(update={"judged": sorted(judged, key=lambda one: one.epochs)})


def tune(profile: str, experiment: str, variant: str | None = None) -> list[Choice]:
    """Tune the arms of an experiment, or one of them, as far as that has not been done; the choices.

    Raises:
        ConfigError: the profile has no such experiment, or no such arm.
        TrainingError: all settings of an arm diverge.
    """
    runs = Runs(profile)
    runs.planned(experiment)
    if runs.profile.ranks > 1:
        raise ConfigError(
            f"profile {runs.name}: ranks: tuning trains in one process, expected 1 where an experiment has a section "
            f"'tune', found {runs.profile.ranks}"
        )
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
    for number in range(len(arm.settings)):
        for seed in arm.tune.seeds:
            discard_checkpoints(arm.config(number, seed))
    return choice


def _choose(arm: Arm) -> Choice:
    """Train what is not stored of an arm, choose, and keep the choice."""
    tune, alive = arm.tune, list(range(len(arm.settings)))
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
        progress.message(f"{arm.experiment} {arm.variant}: left after epoch {rung}, of {len(losses)} settings: {left}")
    if math.isinf(losses[alive[0]][-1]):
        name = f"{arm.experiment} {arm.variant}"
        raise TrainingError(f"{name}: every setting diverged with one seed at least; expected one that can be trained")
    choice = Choice(
        format=FORMAT,
        experiment=arm.experiment,
        arm=arm.variant,
        key=arm.key,
        content=content_of(arm.configs[0]),
        seeds=tune.seeds,
        rungs=tune.rungs,
        keep=tune.keep,
        tried=[_tried(arm, number, trainings[number], losses[number], fell_out.get(number)) for number in losses],
        seconds=sum(training.seconds for group in trainings.values() for training in group),
        origins=list(dict.fromkeys(one.origin for of in trainings.values() for each in of for one in each.judged)),
        provenance=provenance(arm.configs[0].threads, choose_device()),
    )
    note_owner(arm.profile)
    write_json(arm.choice_file, choice.model_dump(mode="json"))
    return choice


def _tried(arm: Arm, number: int, trainings: list[Training], losses: list[float], fell_out: int | None) -> Tried:
    """What came out, without what a training has beyond the rung after which its setting was eliminated."""
    until = fell_out or arm.tune.rungs[-1]
    return Tried(
        setting=arm.settings[number],
        curves={training.seed: training.losses(until) for training in trainings},
        losses=[None if math.isinf(loss) else loss for loss in losses],
        fell_out=fell_out,
    )


def _training(arm: Arm, number: int, seed: int, epochs: int) -> Training:
    """The training of a setting with a seed: the stored one, or further trained where that is shorter."""
    config = arm.config(number, seed)
    name = run_name(config)
    path = arm.folder / f"{name}.json"
    before = read_stored(Training, path, run=name)
    if before and before.has(epochs):
        training = before.judge(epochs, before.judged[-1].origin)
    else:
        progress.message(f"{arm.experiment} {arm.variant}, setting {number + 1}: {arm.settings[number]}")
        training = _trained(config, arm.settings[number], epochs, before)
    if training is not before:
        write_json(path, training.model_dump(mode="json"))
    return training


def _trained(config: RunConfig, setting: Setting, epochs: int, before: Training | None) -> Training:
    """A training's first epochs; what decided at earlier rungs is kept from ``before``."""
    curve, seconds, diverged = before.curve if before else [], before.seconds if before else 0.0, None
    try:
        state = train_until(config, epochs)
        curve, seconds = state.curve, state.seconds
    except DivergenceError as error:
        diverged = str(error)
        progress.message(f"{config.label}: diverged")
    training = Training(
        format=FORMAT,
        run=run_name(config),
        setting=setting,
        seed=config.seed,
        epochs=epochs,
        curve=[{key: point[key] for key in MEASURED} for point in curve[:epochs]],
        seconds=seconds,
        diverged=diverged,
        judged=before.judged if before else [],
    )
    if before and training.losses(before.epochs) != before.losses(before.epochs):
        progress.message(
            f"{config.label}: trained anew, and not to the same numbers as before (another processor or commit); "
            f"what was decided after epoch {before.judged[-1].epochs} stays"
        )
    return training.judge(epochs, Origin(commit=commit(), processor=origin(choose_device())))
