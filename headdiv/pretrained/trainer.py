"""Methods in training with transformers: a mixin for its `Trainer`.

trainer = headdiv.pretrained.Trainer(model=model, args=…, train_dataset=…, method={"name": "disagreement", …})

Losses on the heads are added, what a method puts into the model is inserted, and its update takes place before clipping
and the optimiser's step, once per step whatever the gradient accumulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core import distributed
from headdiv.methods.base import Method
from headdiv.methods.registry import make_method
from headdiv.pretrained.insertion import insert, inserted_method
from headdiv.pretrained.padding import before_the_end
from headdiv.training.method_steps import MethodSteps


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
        self._insert_method(self.model, method if isinstance(method, Method) else make_method(method))
        self.add_callback(_BetweenEpochs(self))
        self.added, self.steps_added = 0.0, 0  # to the loss since it was last logged, and by how many steps

    def _insert_method(self, model: nn.Module, method: Method) -> None:
        inserted = inserted_method(model)
        if type(inserted) is not type(method) or inserted.options != method.options:
            insert(model, method)
        self.head_method = method
        self.method_steps = MethodSteps(model, method, self._observe, self.args.seed)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        """The trainer's, from ``model_init``: each further model that training begins with has its own method."""
        model = super().call_model_init(trial)
        if hasattr(self, "head_method"):
            self._insert_method(model, type(self.head_method)(self.head_method.options))
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
        inputs = self._with_mask(inputs)
        if not self.model.training or not torch.is_grad_enabled():
            loss, outputs = super().compute_loss(model, inputs, **options)
            return (loss, outputs) if return_outputs else loss
        ranks = distributed.world()
        batch_count = predictions(inputs, getattr(self, "_loss_shifts_labels", False)) * ranks
        count = batch_count
        summed = num_items_in_batch is not None and self.model_accepts_loss_kwargs  # over all batches of a step
        if summed:
            count = int(num_items_in_batch) * (1 if self.args.average_tokens_across_devices else ranks)
        with self.method_steps.records() as records:
            loss, outputs = super().compute_loss(model, inputs, **options)
        added = self.method_steps.added(records, self.progress, count)
        if added is not None:
            if summed and not self.head_method.counts_predictions():  # one that does has divided by the step's already
                added = added * (batch_count / count)
            loss = loss + added
            averaged = not summed and self.compute_loss_func is None  # by the trainer, over the batches of a step
            self.added += added.detach() / (self.current_gradient_accumulation_steps if averaged else 1)
        return (loss, outputs) if return_outputs else loss

    def _with_mask(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """With a decoder's mask where the trainer removes the labels, which say where the decoder's input ends."""
        names = ("labels", "decoder_input_ids", "decoder_attention_mask")
        labels, decoder_ids, mask = (inputs.get(name) for name in names)
        labels_removed = self.label_smoother is not None or self.compute_loss_func is not None
        if not labels_removed or labels is None or decoder_ids is None or mask is not None:
            return inputs
        if labels.shape != decoder_ids.shape:
            return inputs
        return {**inputs, "decoder_attention_mask": before_the_end(labels).long()}

    def training_step(self, *args: Any, **options: Any) -> Tensor:
        """The trainer's step and, after the last backward pass of a step, the method's update."""
        loss = super().training_step(*args, **options)
        if self.accelerator.sync_gradients:
            self.steps_added += 1
            self.method_steps.update(self.progress)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Log ``auxiliary_loss`` too: the mean of what was added in the steps since the last time."""
        if "loss" in logs and self.steps_added:
            if self.added:
                logs["auxiliary_loss"] = float(self.added) / self.steps_added
            self.added, self.steps_added = 0.0, 0
        super().log(logs, *args, **options)


class _BetweenEpochs(transformers.TrainerCallback):
    """Lets the method act between two epochs, after validation.

    What it returns is kept in the training's log, with checkpoints, under ``method``.
    """

    def __init__(self, trainer: HeadTraining) -> None:
        self.trainer = trainer

    def on_epoch_begin(self, args: Any, state: Any, control: Any, *, optimizer: Any, **_: Any) -> None:
        """Let the method act before every epoch but the first."""
        steps = self.trainer.method_steps
        epochs_done = math.floor((state.epoch or 0) + 1e-6)  # the part of a resumed epoch does not count
        history = [entry["method"] for entry in state.log_history if "method" in entry]
        acts = type(steps.method).after_epoch is not Method.after_epoch
        if acts and len(history) < epochs_done:
            record = steps.between_epochs(optimizer, epochs_done, state.num_train_epochs, history)
            state.log_history.append({"epoch": float(epochs_done), "step": state.global_step, "method": record})


class Trainer(HeadTraining, transformers.Trainer):
    """transformers' own, with a method."""


class Seq2SeqTrainer(HeadTraining, transformers.Seq2SeqTrainer):
    """transformers' own, with a method."""


def predictions(inputs: Mapping[str, Any], shifted: bool = False) -> int:
    """How many labels (``shifted``: without the first of each row) or examples the loss of a batch is a mean over."""
    labels = inputs.get("labels")
    tokens = labels is not None and labels.dim() > 1 and not labels.is_floating_point()
    count = int((labels[..., int(shifted) :] != -100).sum()) if tokens else len(next(iter(inputs.values())))
    return max(count, 1)
