"""What a method needs from a training loop other than headdiv's, each part separately."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core.errors import TrainingError
from headdiv.methods.base import EpochEnd, Method, refuse_no_attention
from headdiv.nn.records import HeadRecord, record_heads
from headdiv.training.learner import must_be_method, refuse_another_method


class MethodSteps:
    """A method's share in the training of a model.

    Args:
        model: with the method's attention in it; without wrappers such as DistributedDataParallel.
        method: the one that built the attention or was inserted.
        observe: yields what the heads do with held-out batches, for methods that choose heads by that.
        seed: for what the method draws between epochs.

    Raises:
        TrainingError: the model has another method or no attention that the method is for, or ``observe`` is
            missing.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        observe: Callable[[], Iterator[Observed]] | None = None,
        seed: int = 0,
    ) -> None:
        must_be_method(method)
        refuse_another_method(model, method)
        refuse_no_attention(method.options, model)
        self.model, self.method, self.seed = model, method, seed
        if method.options.observes_heads and observe is None:
            nothing_to_observe()
        self.observe = observe or nothing_to_observe

    @contextlib.contextmanager
    def records(self) -> Iterator[list[HeadRecord]]:
        """Around a forward pass in training: the records that the method needs."""
        required = self.method.required_records()
        if required == "nothing":
            yield []
            return
        with record_heads(self.model, weights=required == "weights") as records:
            yield records

    def added(self, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """What is added to the loss of a batch: see `Method.aux_loss`; None where the heads it needs have not run."""
        if not records and self.method.required_records() != "nothing":
            return None
        return self.method.aux_loss(self.model, records, progress, count)

    def update(self, progress: float) -> None:
        """Once per step, with all gradients in place, before the optimiser's step; without any, nothing is learnt."""
        own = [parameter for parameter in self.method.own_parameters(self.model) if parameter.requires_grad]
        if all(parameter.grad is None for parameter in own or self.model.parameters()):
            forget_interrupted_step(self.model)
            return
        for parameter in self.method.frozen_parameters(self.model, progress):
            parameter.grad = None
        self.method.before_optimizer_step(self.model, progress)

    def between_epochs(
        self, optimiser: torch.optim.Optimizer, epoch: int, epochs: int, history: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """After validation, where another epoch follows.

        Args:
            optimiser: the loop's.
            epoch: the one that has just ended, from 1.
            epochs: in the whole training.
            history: what this returned after the earlier epochs.
        """
        end = EpochEnd(self.model, optimiser, epoch, epochs, self.seed, history, self.observe)
        return self.method.after_epoch(end)


def forget_interrupted_step(model: nn.Module) -> None:
    """Drop what a step that was not taken has left outside the parameters."""
    for module in model.modules():
        if callable(forget := getattr(module, "forget_interrupted_step", None)):
            forget()


def nothing_to_observe() -> Iterator[Observed]:
    """In place of ``observe`` where it is not given."""
    raise TrainingError(
        "the method chooses heads by what they do; expected a function that yields it, such as "
        "lambda: headdiv.ModelHeads(model).observed(batches), as the argument 'observe'"
    )
