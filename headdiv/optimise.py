"""One optimiser step: schedule, loss, gradient, clipping, the method's own update, Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from headdiv.config import TrainConfig
from headdiv.data.batches import Batch
from headdiv.errors import TrainingError
from headdiv.losses import linear_cross_entropy
from headdiv.methods.base import Method
from headdiv.model import Transformer


@dataclass(frozen=True)
class Sums:
    """Of one step, over the target tokens of its batch."""

    tokens: int
    loss: float  # nats, as trained on
    nll: float  # nats, without label smoothing
    correct: int


class Learner:
    """A model with its optimiser, and its method's share in the training."""

    def __init__(self, model: Transformer, method: Method, config: TrainConfig) -> None:
        self.own = method.own_parameters(model)
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

    def step(self, batch: Batch, number: int, steps: int) -> Sums:
        """Learn from one batch.

        Args:
            batch: sentence pairs.
            number: of this step, from 1.
            steps: in the whole training.

        Raises:
            TrainingError: the loss or the gradient is not finite; the parameters are as they were.
        """
        config, device = self.config, batch.source.device
        for group in self.optimiser.param_groups:
            group["lr"] = config.learning_rate * rate_factor(config, number, steps)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            hidden = self.model(batch)
            loss, nll, correct = linear_cross_entropy(
                hidden, self.model.output_embedding.weight, batch.target_out, config.label_smoothing
            )
        tokens = len(batch.target_out)
        sums = Sums(tokens, loss.item(), nll.item(), int(correct))
        must_be_finite("loss", sums.loss, number)
        for parameter in self.model.parameters():
            parameter.grad = None
        (loss / tokens).backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, config.clip_norm or math.inf)
        norm = norm + nn.utils.get_total_norm([parameter.grad for parameter in self.own])
        must_be_finite("norm of the gradient", norm.item(), number)
        self.method.after_backward(self.model, progress=(number - 1) / steps)
        self.optimiser.step()
        return sums


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
