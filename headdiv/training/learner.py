"""One optimiser step: schedule, loss, gradient, clipping, the method's update, the optimiser's update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headdiv.analysis.similarity import Observed
from headdiv.core import distributed
from headdiv.core.errors import DivergenceError, TrainingError
from headdiv.methods.base import Method
from headdiv.training.config import OPTIMISERS, TrainerConfig
from headdiv.training.method_steps import MethodSteps


@dataclass(frozen=True)
class Losses:
    """Sums over the predictions of one batch."""

    loss: Tensor  # nats, as trained on, with gradient
    nll: Tensor  # nats, without label smoothing
    correct: Tensor
    count: int  # predictions, the number that means are taken over
    tokens: int  # that went through the decoder, for speed


# Called with the model (wrapped, with several ranks) and a batch. A tensor holds the loss of each prediction
# (``reduction="none"``) and of nothing else, since all of its elements are counted, or is a scalar: their mean.
Loss = Callable[[Any, Any], Tensor | Losses]


@dataclass(frozen=True)
class StepSums:
    """Sums over the batches of one or several steps, on all ranks."""

    batches: int = 0
    count: int = 0  # predictions
    tokens: int = 0  # that went through the decoder; 0 where the loss is a plain tensor
    loss: float = 0.0  # nats, as trained on
    nll: float = 0.0  # nats, without label smoothing
    correct: int = 0
    auxiliary: float = 0.0  # what the method added to the loss

    def __add__(self, other: StepSums) -> StepSums:
        return StepSums(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Learner:
    """A model with its loss, its optimiser, and its method's share in the training.

    Raises:
        TrainingError: see `MethodSteps`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        method: Method | None,
        config: TrainerConfig,
        observe: Callable[[], Iterator[Observed]] | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.loss, self.config = model, loss, config
        self.method_steps = MethodSteps(model, method, observe, seed)
        own_ids = {id(parameter) for parameter in self.method_steps.own_parameters}
        self.parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in own_ids]
        name, options = config.optimiser_options()
        self.optimiser = OPTIMISERS[name](self.parameters, lr=config.learning_rate, **options)
        self.device = self.parameters[0].device
        # Adds up the ranks' gradients during the backward pass.
        self.forward = DistributedDataParallel(model) if distributed.world() > 1 else model

    @property
    def method(self) -> Method:
        """The model's, the plain `Method` where it has none."""
        return self.method_steps.method

    def step(self, batches: Sequence[Any], number: int, steps: int) -> StepSums:
        """Learn from one batch, or from several whose gradients are added up.

        The loss of several is the mean over all of their predictions; what the method adds is computed per batch and
        weighted by its predictions. Batch normalisation sees one batch at a time.

        Args:
            batches: what the loss takes; with several ranks, this one's share of each.
            number: of this step, from 1.
            steps: in the whole training.

        Raises:
            DivergenceError: the loss or the gradient is not finite; the parameters are as they were.
        """
        config = self.config
        for group in self.optimiser.param_groups:
            group["lr"] = config.learning_rate * rate_factor(config, number, steps)
        progress = min((number - 1) / steps, 1.0)  # of more batches than were planned, the last are at the end
        summed, results = len(batches) > 1, []
        self.model.zero_grad()
        for index, batch in enumerate(batches, start=1):
            more_follow = index < len(batches) and isinstance(self.forward, DistributedDataParallel)
            with self.forward.no_sync() if more_follow else contextlib.nullcontext():  # ranks meet once a step
                results.append(self.backward(batch, progress, summed))
        counts, tokens, values = zip(*results, strict=True)
        if summed:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= sum(counts)
        self.method_steps.freeze(progress)
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip_norm or math.inf)
        own_parameters = [parameter for parameter in self.method_steps.own_parameters if parameter.requires_grad]
        norm = norm + nn.utils.get_total_norm([p.grad for p in own_parameters if p.grad is not None])
        # The step itself waits for a GPU here alone; methods may wait too.
        *totals, gradient_norm = torch.cat([torch.stack(values).sum(0), norm[None]]).tolist()
        all_tokens, loss, nll, correct, auxiliary = distributed.total_numbers(sum(tokens), *totals)
        auxiliary /= distributed.world()
        sums = StepSums(len(batches), sum(counts), int(all_tokens), loss, nll, int(correct), auxiliary)
        must_be_finite("loss", sums.loss, number)
        must_be_finite("loss that the method adds", sums.auxiliary, number)
        must_be_finite("norm of the gradient", gradient_norm, number)
        if own_parameters and all(parameter.grad is None for parameter in own_parameters):
            raise TrainingError(
                "the method's parameters have no gradient; expected a loss that depends on all attention"
            )
        self.method_steps.update(progress)
        self.optimiser.step()
        return sums

    def backward(self, batch: Any, progress: float, summed: bool) -> tuple[int, int, Tensor]:
        """Add a batch's gradient: of the mean over its predictions, or ``summed`` over them.

        Returns:
            Predictions on all ranks, tokens on this one, and its (4,): loss, nll, correct and what the method adds.
        """
        half = self.config.precision == "bfloat16"
        precision = torch.autocast(self.device.type, torch.bfloat16) if half else contextlib.nullcontext()
        with precision, self.method_steps.records() as records:
            losses = loss = self.loss(self.forward, batch)
        if isinstance(loss, Tensor):  # of each prediction, or a scalar: it does not say which are correct
            total = loss.sum()
            losses = Losses(total, total.detach(), total.new_zeros(()), count=loss.numel(), tokens=0)
        if not isinstance(losses, Losses):
            raise TypeError(f"loss: found {losses!r:.80}, expected a function that returns a tensor, or Losses")
        count = int(distributed.total_numbers(losses.count)[0])
        if not count:
            raise TrainingError("a batch has no prediction; expected one at least, on one of the ranks")
        if isinstance(loss, Tensor) and not loss.dim() and self.method.counts_predictions():
            raise TrainingError(
                "the loss is a scalar, and the method weighs a loss of its own by the number of predictions; "
                "expected the loss of each prediction (reduction='none')"
            )
        if not records and self.method.required_records() != "nothing":
            raise TrainingError(
                "the method's loss is on heads, and none ran for this batch; expected a function that calls the model"
            )
        added = self.method_steps.added(records, progress, count)
        # DistributedDataParallel takes the mean over the ranks, and this is the mean over all predictions.
        loss = losses.loss * (distributed.world() / count)
        loss = loss if added is None else loss + added
        (loss * count if summed else loss).backward()
        auxiliary = losses.nll.new_zeros(()) if added is None else added
        return count, losses.tokens, torch.stack([losses.loss, losses.nll, losses.correct, auxiliary]).detach()


def rate_factor(config: TrainerConfig, step: int, steps: int) -> float:
    """What the learning rate is multiplied by at ``step`` (from 1) of ``steps``: 1 at its peak."""
    warmup = max(config.warmup_steps, 1)
    if step < warmup:
        return step / warmup
    if config.schedule == "inverse_sqrt":
        return (warmup / step) ** 0.5
    if config.schedule == "linear":
        return max(0.0, (steps - step + 1) / max(steps - warmup + 1, 1))
    return 1.0


def must_be_finite(what: str, value: float, step: int) -> None:
    """Raise the DivergenceError that says what is not finite, and what may help."""
    if not math.isfinite(value):
        raise DivergenceError(
            f"the {what} is {value} at step {step}; nothing was recorded (try a smaller learning_rate or clip_norm)"
        )
