"""The training loop: epochs, checkpoints, the learning curve, and a method's hooks, for any model."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headdiv.analysis.similarity import Observed
from headdiv.core import distributed, progress
from headdiv.core.errors import TrainingError
from headdiv.core.settings import check
from headdiv.methods.base import Method
from headdiv.training import checkpoints
from headdiv.training.batch_streams import Batches, BatchStream, IterableBatchStream
from headdiv.training.config import TrainerConfig
from headdiv.training.learner import Learner, Loss, StepSums, must_be_finite
from headdiv.training.method_steps import forget_interrupted_step

NO_VALIDATION = "patience: expected the argument 'validate', a function whose numbers have 'validation_nll'"


Log = Callable[[Mapping[str, float], int], None]  # of numbers by name, and the steps done


@dataclass
class TrainerState:
    """How far training has come, and what it has measured; JSON in checkpoints."""

    step: int = 0  # optimiser steps done
    # One point for each finished epoch: "epoch", "steps", "training_loss", …, "method": what its hook returned.
    curve: list[dict[str, Any]] = field(default_factory=list)
    epoch: StepSums = field(default_factory=StepSums)  # of the current epoch
    seconds: float = 0.0  # of training proper, including earlier attempts
    tokens: int = 0  # that went through the decoder; 0 where the loss is a plain tensor
    stream: dict[str, Any] = field(default_factory=dict)  # position among the batches


class Trainer:
    """Trains a model with one of headdiv's methods: no task, profile or paper is needed.

    Args:
        model: on the device where it is to be trained; a method acts on the attention modules in it that the method
            built (`headdiv.MultiheadAttention`).
        batches: a list, data loader or other iterable with a length, iterated again in every epoch, or a function of
            the epoch (from 0) that returns one, see `IterableBatchStream`; or a `BatchStream`.
        loss: called with the model and a batch (tensors moved to the model's device); returns the loss of each
            prediction as a tensor (``reduction="none"``), a scalar for their mean, or `Losses`. Every element of the
            tensor counts as a prediction, so leave padded targets out: ``losses[targets != padding]``.
        method: from `headdiv.make_method`, the one that built the model's attention; None: the model has none.
        config: optimiser, schedule, clipping, precision; see `TrainerConfig`.
        folder: where checkpoints are written. Interrupted training resumes from there to the same result; finished
            training is not repeated; other data than before are not noticed. None: no checkpoints.
        validate: called with the model in evaluation mode after every epoch; its numbers go into the curve. Where
            ``validation_nll`` is among them, the parameters of the epoch with the lowest one are kept: `best`.
        measure: called after it, also in evaluation mode; what it returns (JSON) goes into the curve as it is.
        observe: yields what the heads do with held-out batches, for methods that choose heads by that.
        log: called with numbers by name and the steps done, on the first rank: after every ``log_every`` steps with the
            mean training_loss over them, auxiliary_loss if there is one, and learning_rate; after every epoch with its
            numbers. ``wandb.log`` fits, ``mlflow.log_metrics``, and the ``log_metrics`` of Lightning's loggers.
        log_every: steps, 1 or more.
        seed: for dropout and anything else that draws from torch's generator; None leaves the generator as it is.
        name: of the training run in messages.
        **options: keys of ``config``: epochs, optimiser (a class of `torch.optim`: name or {name, options}), ….

    Raises:
        ConfigError: an unknown option, or a wrong value.
        TrainingError: ``batches`` have no length; another method built the model's attention, or the method finds none;
            ``observe`` is missing, and the method needs it; or ``validate`` is, and ``patience`` needs it.
        ValueError: ``log_every`` is below 1.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Batches | BatchStream,
        loss: Loss,
        *,
        method: Method | None = None,
        config: TrainerConfig | None = None,
        folder: Path | str | None = None,
        validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
        measure: Callable[[nn.Module], Mapping[str, Any]] | None = None,
        observe: Callable[[], Iterator[Observed]] | None = None,
        log: Log | None = None,
        log_every: int = 50,
        seed: int | None = None,
        name: str = "training",
        **options: Any,
    ) -> None:
        config = config or TrainerConfig()
        self.config = check(type(config), config.model_dump() | options) if options else config
        if log_every < 1:
            raise ValueError(f"log_every: found {log_every}, expected 1 or more")
        self.model, self.name, self.seed = model, name, seed
        self.folder = Path(folder) if folder else None
        self.validate, self.measure = validate, measure
        self.log, self.log_every = log, log_every
        self._unlogged = StepSums()
        self.stream = batches if isinstance(batches, BatchStream) else IterableBatchStream(batches)
        self.learner = Learner(model, loss, method, self.config, observe, seed or 0)
        if self.config.patience and not validate:
            raise TrainingError(NO_VALIDATION)
        # Random batches differ in number from epoch to epoch by a handful at most; the first stands for all.
        self.steps = math.ceil(self.stream.batches(0) / self.config.accumulate) * self.config.epochs
        self.state = TrainerState()
        self._within_step = False  # whether a step was begun but not finished
        self.best: dict[str, torch.Tensor] | None = None  # the model's state after its best epoch, in main memory
        self._recent: list[dict[str, torch.Tensor]] = []  # and after the epochs that `average` is taken over

    def run(self, until: int | None = None) -> TrainerState:
        """Train to the end, from the newest checkpoint if there is one, and return what was measured.

        With ``patience`` it may end earlier, and the model then has the parameters of its best epoch. It is left in
        evaluation mode.

        Args:
            until: epochs after which to stop, as if training were interrupted: schedule and method are those for all of
                the configuration's epochs, and the next call continues to the same result (without a folder, if nothing
                else draws from torch's generator in between). None: the end.

        Raises:
            DivergenceError: loss, gradient or a validation score is not finite; the last checkpoint stays.
            TrainingError: there are no batches; ``validate`` gives no validation_nll, and ``patience`` needs it; the
                folder holds a training run with other settings; or an earlier call was interrupted within an epoch, and
                there is no checkpoint to resume from.
        """
        last = self.config.epochs if until is None else min(until, self.config.epochs)
        if self.seed is not None and not self.state.curve:
            torch.manual_seed(self.seed + 1000 * distributed.rank())  # ranks drop different values
        resumed = self._restore()
        if not resumed and (self._within_step or self.state.epoch.batches):
            raise TrainingError(
                f"{self.name}: was interrupted within epoch {len(self.state.curve) + 1}, and part of it is done; "
                "expected a new model and Trainer, or the argument 'folder', from whose checkpoints a training goes on"
            )
        self._within_step = False
        for number in range(len(self.state.curve), last):
            if self._out_of_patience(self.state.curve):
                break
            if resumed and distributed.is_first():
                progress.message(f"{self.name}: going on from step {self.state.step}")
            resumed = False
            name = f"epoch {number + 1}/{self.config.epochs}"
            try:
                self._train_epoch(number, name)
                self._finish_epoch(number, name)
                self._save()
            except TrainingError as error:
                raise type(error)(f"{self.name}, {name}: {error}") from None
        ended = len(self.state.curve) == self.config.epochs or self._out_of_patience(self.state.curve)
        if self.config.patience and ended and self.best is not None:
            self.model.load_state_dict(self.best)
        self.model.eval()  # as the last validation leaves it, even where nothing was left to train
        return self.state

    def _train_epoch(self, number: int, name: str) -> None:
        """Take the remaining steps of an epoch, with checkpoints in between."""
        self.model.train()
        state, last_saved = self.state, time.monotonic()
        batches, expected = self.stream.epoch(number), self.stream.batches(number)
        with progress.bar(expected, name, state.epoch.batches) as advance:
            while True:
                began, self._within_step = time.perf_counter(), True
                # No more than remain: asked for more, a stream begins its next epoch before this step is done.
                remaining = max(expected - state.epoch.batches, 1)
                count = min(remaining, self.config.accumulate)
                step_batches = [on_device(batch, self.learner.device) for batch in itertools.islice(batches, count)]
                if not step_batches:
                    self._within_step = False
                    break
                sums = self.learner.step(step_batches, state.step + 1, self.steps)
                state.seconds += time.perf_counter() - began
                state.step += 1
                state.tokens += sums.tokens
                state.epoch += sums
                self._within_step = False
                self._report(sums)
                for _ in step_batches:
                    advance(f"loss {sums.loss / sums.count:.3f}")
                due = time.monotonic() - last_saved > self.config.checkpoint_seconds
                if distributed.agreed(due):
                    self._save()
                    last_saved = time.monotonic()

    def _report(self, sums: StepSums) -> None:
        """Every ``log_every`` steps, call `log` with means over them."""
        self._unlogged += sums
        if self.log is None or not distributed.is_first() or self.state.step % self.log_every:
            return
        unlogged, self._unlogged = self._unlogged, StepSums()
        rate = float(self.learner.optimiser.param_groups[0]["lr"])
        numbers = {"training_loss": unlogged.loss / unlogged.count, "learning_rate": rate}
        if unlogged.auxiliary:
            numbers["auxiliary_loss"] = unlogged.auxiliary / unlogged.batches
        self.log(numbers, self.state.step)

    def _finish_epoch(self, number: int, name: str) -> None:
        """Validate, let the method act between two epochs, and add a point to the curve."""
        state, sums = self.state, self.state.epoch
        if not sums.batches:
            raise TrainingError("batches: found none; expected an iterable that can be read again in every epoch")
        point: dict[str, Any] = {"epoch": number + 1, "steps": state.step, "training_loss": sums.loss / sums.count}
        if sums.tokens:  # a plain tensor does not say which predictions are correct
            point |= {"training_nll": sums.nll / sums.count, "training_accuracy": 100 * sums.correct / sums.count}
        if sums.auxiliary:
            point["auxiliary_loss"] = sums.auxiliary / sums.batches
        self.model.eval()
        with torch.no_grad():
            validation = self.validate(self.model) if self.validate else {}
            measures = self.measure(self.model) if self.measure else {}
        point |= json.loads(json.dumps(dict(measures)))  # the types that it has when read from a checkpoint
        if self.config.patience and "validation_nll" not in validation:
            raise TrainingError(NO_VALIDATION)
        scores = {key: float(value) for key, value in validation.items()}
        for key, value in scores.items():
            must_be_finite(key.replace("_", " "), value, state.step)
        point |= scores
        best = distributed.agreed(best_epoch([*state.curve, point]) == number + 1)
        if best or self.config.average:
            validated = checkpoints.copied(self.model)  # before the method changes it
            self.best = validated if best else self.best
            self._recent = [*self._recent, validated][-self.config.average :] if self.config.average else []
        if number + 1 < self.config.epochs and not self._out_of_patience([*state.curve, point]):
            history = [earlier.get("method", {}) for earlier in state.curve]
            steps, epochs = self.learner.method_steps, self.config.epochs
            if record := steps.between_epochs(self.learner.optimiser, number + 1, epochs, history):
                point["method"] = record
        state.curve.append(point)
        state.epoch = StepSums()
        if distributed.is_first():
            score_text = "".join(f", {key.replace('_', ' ')} {value:.4f}" for key, value in scores.items())
            speed = f"{state.tokens / state.seconds:,.0f} tokens/s" if state.tokens else f"{state.seconds:.1f} s"
            progress.message(f"{self.name} {name}: training loss {point['training_loss']:.4f}{score_text}, {speed}")
            if self.log:
                self.log({key: value for key, value in point.items() if isinstance(value, int | float)}, state.step)

    def _out_of_patience(self, curve: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a curve has gone as many epochs without a better one as `TrainerConfig.patience` allows."""
        patience = self.config.patience
        return patience is not None and distributed.agreed(len(curve) - best_epoch(curve) >= patience)

    def average(self) -> dict[str, torch.Tensor] | None:
        """The mean of the model's states after the last `TrainerConfig.average` epochs; None without averaging.

        Batch normalisation's running statistics are averaged too, not measured anew.
        """
        return checkpoints.averaged(self._recent) if self._recent else None

    @property
    def kept_epoch(self) -> int:
        """The epoch of `best`, from 1; 0 where none was kept."""
        return best_epoch(self.state.curve) if self.best is not None else 0

    def _save(self) -> None:
        if self.folder:
            self.state.stream = self.stream.state()
            state, model, optimiser = asdict(self.state), self.model, self.learner.optimiser
            checkpoints.save(
                self.folder, self.state.step, model, optimiser, state, self._settings(), self.best, self._recent
            )

    def _settings(self) -> dict[str, Any]:
        """What determines a training run, besides its model and data; JSON."""
        method = self.learner.method
        options = {"name": type(method).__name__, **method.options.model_dump(mode="json")}
        settings = self.config.model_dump(mode="json", exclude={*self.config.of_no_effect})
        return {**settings, "seed": self.seed, "method": options}

    def _restore(self) -> bool:
        """Load the newest checkpoint; returns whether there is one."""
        if not self.folder:
            return False
        checkpoint = checkpoints.restore(self.folder, self.model, self.learner.optimiser, self._settings())
        if not checkpoint:
            return False
        stored, self.best, self._recent = checkpoint
        self.state, self._unlogged = TrainerState(**stored | {"epoch": StepSums(**stored["epoch"])}), StepSums()
        forget_interrupted_step(self.model)
        self.stream.restore(self.state.stream)
        return True


def best_epoch(curve: Sequence[Mapping[str, Any]]) -> int:
    """The epoch, from 1, with the lowest validation loss; of equal ones, the first; 0 where none was measured."""
    losses = [point.get("validation_nll", math.inf) for point in curve]
    return 1 + losses.index(min(losses)) if min(losses, default=math.inf) < math.inf else 0


def on_device(batch: Any, device: torch.device) -> Any:
    """The batch with everything in it that has a ``to`` on the device; lists, tuples and mappings too."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: on_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        moved = [on_device(value, device) for value in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch
