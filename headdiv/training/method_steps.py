"""A method's share in the training of a model, for any loop.

with steps.records() as records:
    loss = …  # of a batch
added = steps.added(records, progress, count)
(loss if added is None else loss + added).backward()
steps.freeze(progress)  # before the gradient's norm is taken
…
steps.update(progress)
optimiser.step()
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core.errors import TrainingError
from headdiv.methods.base import EpochEnd, Method
from headdiv.methods.combined import refuse_no_attention
from headdiv.nn.records import HeadRecord, attention_modules, record_heads
from headdiv.nn.sizes import ATTENTION_KINDS


class MethodSteps:
    """What a method does in a training, each part separately; ``progress`` is the part of the training done, 0 to 1.

    Args:
        model: with the method's attention in it; without wrappers such as DistributedDataParallel.
        method: the one that built the attention or was inserted; None: the model has none.
        observe: yields what the heads do with held-out batches, for methods that choose heads by that.
        seed: for what the method draws between epochs.

    Attributes:
        own_parameters: those that the method trains itself.

    Raises:
        TrainingError: the model has another method or no attention that the method is for, or ``observe`` is
            missing.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method | None,
        observe: Callable[[], Iterator[Observed]] | None = None,
        seed: int = 0,
    ) -> None:
        _refuse_another_method(model, method)
        self.model, self.method, self.seed = model, method or Method(), seed
        refuse_no_attention(self.method, model)
        self.own_parameters = self.method.own_parameters(model)
        if self.method.options.observes_heads and observe is None:
            _refuse_missing_observe()
        self.observe = observe or _refuse_missing_observe

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

    def freeze(self, progress: float) -> None:
        """With all gradients in place: take away those of parameters that this step leaves as they are."""
        for parameter in self.method.frozen_parameters(self.model, progress):
            parameter.grad = None

    def update(self, progress: float) -> None:
        """Once per step, with all gradients in place, before the optimiser's step; without any, nothing is learnt."""
        trained = [parameter for parameter in self.own_parameters if parameter.requires_grad]
        if all(parameter.grad is None for parameter in trained or self.model.parameters()):
            forget_interrupted_step(self.model)
            return
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


def _refuse_missing_observe() -> Iterator[Observed]:
    """What ``observe`` is where it was not given: raise a TrainingError."""
    raise TrainingError(
        "the method chooses heads by what they do; expected a function that yields it, such as "
        "lambda: headdiv.ModelHeads(model).observed(batches), as the argument 'observe'"
    )


def _refuse_another_method(model: nn.Module, method: Method | None) -> None:
    """Raise a TrainingError where the method that built the model's attention is not this one.

    Among methods that leave attention as it is and only add to the loss, another may be given, but not none.
    """
    if not isinstance(method, Method | None):
        raise TypeError(f"method: found {method!r:.80}, expected a method that headdiv.make_method returns")
    builders = [module.method for module in attention_modules(model) if isinstance(module.method, Method)]
    others = [builder for builder in builders if not _equal(builder, method)]
    if method is None or not _changes_attention(method) or len(others) < len(builders):
        others = [other for other in others if type(other) is not Method]
        if method is not None:
            others = [other for other in others if _changes_attention(other)]
    if others:
        raise TrainingError(
            f"method: {others[0]} is in the model's attention, found {method or 'no method'}; expected the same"
        )


def _equal(method: Method, other: Method | None) -> bool:
    return type(method) is type(other) and method.options == other.options


def _changes_attention(method: Method) -> bool:
    return any(method.options.hooks_for(kind) for kind in ATTENTION_KINDS)
