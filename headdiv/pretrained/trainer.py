"""Methods in training with transformers: a mixin for its `Trainer`.

trainer = headdiv.pretrained.Trainer(model=model, args=…, train_dataset=…, method={"name": "disagreement", …})

Losses on the heads are added, what a method puts into the model is inserted, and its update takes place before clipping
and the optimiser's step, once per step whatever the gradient accumulation.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core import distributed
from headdiv.methods.base import Method
from headdiv.methods.registry import make_method
from headdiv.pretrained.attached import transformers
from headdiv.pretrained.insertion import insert, inserted_method
from headdiv.pretrained.padding import before_the_end
from headdiv.training.method_steps import MethodSteps


class BetweenEpochs:
    """Events for transformers' callbacks: what a method does between two epochs, after validation.

    What it returns is kept in the training's log, with checkpoints, under ``method``.
    """

    def __init__(self, steps: MethodSteps) -> None:
        self.steps = steps

    def on_epoch_begin(self, args: Any, state: Any, control: Any, *, optimizer: Any, **_: Any) -> None:
        """For every epoch but the first."""
        ended = math.floor((state.epoch or 0) + 1e-6)  # the part of a resumed epoch does not count
        history = [entry["method"] for entry in state.log_history if "method" in entry]
        acts = type(self.steps.method).after_epoch is not Method.after_epoch
        if acts and len(history) < ended:
            done = self.steps.between_epochs(optimizer, ended, state.num_train_epochs, history)
            state.log_history.append({"epoch": float(ended), "step": state.global_step, "method": done})


class HeadTraining:
    """Mixin for `transformers.Trainer` and its subclasses, before them in the bases.

    Args:
        method: or its options; inserted into the model unless it is already there.
        observe: yields what the heads do with held-out batches, for methods that choose heads by that between epochs.
        args: of the trainer.
        options: of the trainer.
    """

    def __init__(
        self,
        *args: Any,
        method: Method | Mapping[str, Any],
        observe: Callable[[], Iterator[Observed]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._observe = observe
        steps = self._put_into(self.model, method if isinstance(method, Method) else make_method(method))
        self._between_epochs = _made("EpochCallback", BetweenEpochs, "TrainerCallback")(steps)
        self.add_callback(self._between_epochs)
        self.added, self.steps_added = 0.0, 0  # to the loss since it was last logged, and by how many steps

    def _put_into(self, model: nn.Module, method: Method) -> MethodSteps:
        self.head_method = inserted(model, method)
        return MethodSteps(model, self.head_method, self._observe, self.args.seed)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """The trainer's, from ``model_init``: each further model that training begins with has its own method."""
        model = super().call_model_init(trial)
        if (method := getattr(self, "head_method", None)) is not None:
            self._between_epochs.steps = self._put_into(model, type(method)(method.options))
        return model

    @property
    def progress(self) -> float:
        """Fraction of the training that is done, 0 to 1."""
        return self.state.global_step / max(self.state.max_steps, 1)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> Any:
        """The trainer's own loss, plus in training what the method adds."""
        options |= {"return_outputs": True, "num_items_in_batch": num_items_in_batch}
        steps, learns = self._between_epochs.steps, self.model.training and torch.is_grad_enabled()
        if learns:
            count = self._predictions(inputs, num_items_in_batch)
            share = self._share(inputs, num_items_in_batch, count)  # before the trainer takes labels out
        inputs = self._with_mask(inputs)
        with steps.records() if learns else contextlib.nullcontext([]) as records:
            loss, outputs = super().compute_loss(model, inputs, **options)
        if learns:
            added = steps.added(records, self.progress, count)
            if added is not None:
                added = added * share
                loss = loss + added
                summed = num_items_in_batch is not None and self.model_accepts_loss_kwargs
                mean = not summed and self.compute_loss_func is None  # the trainer's, over the batches of a step
                self.added += added.detach() / (self.current_gradient_accumulation_steps if mean else 1)
        return (loss, outputs) if return_outputs else loss

    def _with_mask(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """With a decoder's mask where the trainer removes the labels, which say where its input ends."""
        labels, taken = inputs.get("labels"), self.label_smoother is not None or self.compute_loss_func is not None
        read, mask = inputs.get("decoder_input_ids"), inputs.get("decoder_attention_mask")
        if not taken or labels is None or read is None or mask is not None or labels.shape != read.shape:
            return inputs
        return {**inputs, "decoder_attention_mask": before_the_end(labels).long()}

    def _share(self, inputs: dict[str, Any], num_items: Tensor | int | None, count: int) -> float:
        """This batch's share in a step's sum: 1, unless the trainer sums the losses of several over all predictions.

        A method that divides by the step's predictions has already taken its share.
        """
        if num_items is None or not self.model_accepts_loss_kwargs or self.head_method.counts_predictions():
            return 1.0
        return self._predictions(inputs, None) / count

    def _predictions(self, inputs: dict[str, Any], num_items: Tensor | int | None) -> int:
        """How many the loss is a mean over, on all ranks: labels that count, or examples."""
        if num_items is not None and self.model_accepts_loss_kwargs:
            return int(num_items) * (1 if self.args.average_tokens_across_devices else distributed.world())
        return predictions(inputs, getattr(self, "_loss_shifts_labels", False)) * distributed.world()

    def training_step(self, *args: Any, **options: Any) -> Tensor:
        """The trainer's step and, after the last backward pass of a step, the method's update."""
        loss = super().training_step(*args, **options)
        if self.accelerator.sync_gradients:
            self.steps_added += 1
            self._between_epochs.steps.update(self.progress)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """With ``auxiliary_loss``, the mean of what was added in the steps since the last time."""
        if "loss" in logs and self.steps_added:
            if self.added:
                logs["auxiliary_loss"] = float(self.added) / self.steps_added
            self.added, self.steps_added = 0.0, 0
        super().log(logs, *args, **options)


def predictions(inputs: Mapping[str, Any], shifted: bool = False) -> int:
    """How many the loss of a batch is a mean over: labels that count (``shifted``: but for each first), or examples."""
    labels = inputs.get("labels")
    tokens = labels is not None and labels.dim() > 1 and not labels.is_floating_point()
    count = int((labels[..., int(shifted) :] != -100).sum()) if tokens else len(next(iter(inputs.values())))
    return max(count, 1)


def inserted(model: nn.Module, method: Method | Mapping[str, Any]) -> Method:
    """The method, in the model: inserted unless already there."""
    made = method if isinstance(method, Method) else make_method(method)
    found = inserted_method(model)
    there = type(found) is type(made) and found.options == made.options
    return made if there else insert(model, made)


def _made(name: str, hooks: type, base: str) -> type:
    """A transformers class with ours before it."""
    return type(name, (hooks, getattr(transformers(), base)), {"__module__": __name__})


def __getattr__(name: str) -> type:
    """``Trainer`` and ``Seq2SeqTrainer``: transformers' own with the mixin, made when first asked for."""
    if name not in ("Trainer", "Seq2SeqTrainer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _made(name, HeadTraining, name)
    return made
