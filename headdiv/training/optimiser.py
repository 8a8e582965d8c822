"""One optimiser step: schedule, loss, gradient, clipping, the method's own update, Adam."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headdiv.core import distributed
from headdiv.core.errors import TrainingError
from headdiv.methods.base import Method
from headdiv.nn.attention import HeadRecord, record_heads
from headdiv.nn.losses import Losses
from headdiv.training.config import TrainConfig


@dataclass(frozen=True)
class StepSums:
    """Of one step, over its batch on all ranks."""

    count: int  # predictions
    tokens: int  # that went through the decoder
    loss: float  # nats, as trained on
    nll: float  # nats, without label smoothing
    correct: int
    auxiliary: float  # what the method added to the loss


class HasLoss(Protocol):
    """What is learnt: a `headdiv.tasks.base.Task`, or anything with a loss."""

    def loss(self, model: Callable[[Any], Tensor], weight: Tensor, batch: Any, smoothing: float = 0.0) -> Losses:
        """What the model makes of a batch; ``weight`` is its output weight."""


class Learner:
    """A model with its optimiser, and its method's share in the training."""

    def __init__(self, task: HasLoss, model: nn.Module, method: Method, config: TrainConfig) -> None:
        self.task = task
        self.own, self.required = method.own_parameters(model), method.required_records()
        own = {id(parameter) for parameter in self.own}
        self.model, self.method, self.config = model, method, config
        self.parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in own]
        self.optimiser = torch.optim.AdamW(
            self.parameters,
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=True,  # one pass over memory
        )
        # Adds the ranks' gradients up while the backward pass goes on.
        self.forward = DistributedDataParallel(model) if distributed.world() > 1 else model

    def step(self, batch: Any, number: int, steps: int) -> StepSums:
        """Learn from one batch.

        Args:
            batch: of the task; with several ranks, this one's share of it.
            number: of this step, from 1.
            steps: in the whole training.

        Raises:
            TrainingError: the loss or the gradient is not finite; the parameters are as they were.
        """
        config, weight = self.config, self.model.output_weight
        for group in self.optimiser.param_groups:
            group["lr"] = config.learning_rate * rate_factor(config, number, steps)
        progress, records = (number - 1) / steps, list[HeadRecord]()
        with contextlib.ExitStack() as open_while:
            open_while.enter_context(
                torch.autocast(weight.device.type, torch.bfloat16, enabled=config.precision == "bfloat16")
            )
            if self.required != "nothing":
                records = open_while.enter_context(record_heads(self.model, weights=self.required == "weights"))
            losses = self.task.loss(self.forward, weight, batch, config.label_smoothing)
        count = int(distributed.total_numbers(losses.count)[0])
        added = self.method.aux_loss(self.model, records, progress, count)
        sums = _sums(losses, added)
        must_be_finite("loss", sums.loss, number)
        must_be_finite("loss that the method adds", sums.auxiliary, number)
        for parameter in self.model.parameters():
            parameter.grad = None
        # DistributedDataParallel takes the mean over the ranks, and this is the mean over all predictions.
        loss = losses.loss * (distributed.world() / count)
        (loss if added is None else loss + added).backward()
        for parameter in self.method.frozen_parameters(self.model, progress):
            parameter.grad = None
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip_norm or math.inf)
        norm = norm + nn.utils.get_total_norm([parameter.grad for parameter in self.own])
        must_be_finite("norm of the gradient", norm.item(), number)
        self.method.after_backward(self.model, progress)
        self.optimiser.step()
        return sums


def _sums(losses: Losses, added: Tensor | None) -> StepSums:
    numbers = (losses.count, losses.tokens, losses.loss.item(), losses.nll.item(), int(losses.correct))
    own = 0.0 if added is None else added.item() / distributed.world()
    count, tokens, loss, nll, correct, auxiliary = distributed.total_numbers(*numbers, own)
    return StepSums(int(count), int(tokens), loss, nll, int(correct), auxiliary)


def rate_factor(config: TrainConfig, step: int, steps: int) -> float:
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
    """Raise the TrainingError that says what is not finite, and what may help."""
    if not math.isfinite(value):
        raise TrainingError(
            f"the {what} is {value} at step {step}; nothing was recorded "
            "(try a smaller train.learning_rate or train.clip_norm)"
        )
