"""Methods in the training of transformers: a mixin for its `Trainer`.

trainer = headdiv.pretrained.Trainer(model=model, args=…, train_dataset=…, method={"name": "disagreement", …})

Losses on the heads are added, what a method puts into the model is inserted, its own update takes place in front of
clipping and the optimiser's step, once a step whatever the gradient accumulation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from headdiv.core import distributed
from headdiv.methods.base import Method
from headdiv.methods.registry import make_method
from headdiv.nn.attention import record_heads
from headdiv.pretrained.attached import transformers
from headdiv.pretrained.insertion import insert, inserted_method


class HeadTraining:
    """Mixin for `transformers.Trainer` and its subclasses, in front of them.

    Args:
        method: or its options; inserted into the model unless that has it already.
        args: of the trainer.
        options: of the trainer.
    """

    def __init__(self, *args: Any, method: Method | Mapping[str, Any], **options: Any) -> None:
        super().__init__(*args, **options)
        made = method if isinstance(method, Method) else make_method(method)
        found = inserted_method(self.model)
        there = type(found) is type(made) and found.options == made.options
        self.head_method = made if there else insert(self.model, made)
        self.added, self.steps_added = 0.0, 0  # to the loss since it was logged last, and by how many steps

    @property
    def progress(self) -> float:
        """Share of the training that is done, 0 to 1."""
        return self.state.global_step / max(self.state.max_steps, 1)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
        **options: Any,
    ) -> Any:
        """The trainer's own loss, and in training what the method adds."""
        options |= {"return_outputs": True, "num_items_in_batch": num_items_in_batch}
        required = self.head_method.required_records() if self.model.training else "nothing"
        count = self._predictions(inputs, num_items_in_batch)
        with contextlib.ExitStack() as stack:
            records = []
            if required != "nothing":
                records = stack.enter_context(record_heads(self.model, required == "weights"))
            loss, outputs = super().compute_loss(model, inputs, **options)
        if self.model.training:
            added = self.head_method.aux_loss(self.model, records, self.progress, count)
            if added is not None:
                added = added * self._share(inputs, num_items_in_batch, count)
                loss = loss + added
                summed = num_items_in_batch is not None and self.model_accepts_loss_kwargs
                mean = not summed and self.compute_loss_func is None  # the trainer's, over the batches of a step
                self.added += added.item() / (self.current_gradient_accumulation_steps if mean else 1)
        return (loss, outputs) if return_outputs else loss

    def _share(self, inputs: dict[str, Any], num_items: Tensor | int | None, count: int) -> float:
        """Of this batch in what a step adds up: 1, unless the trainer sums the losses of several over all predictions.

        A method that divides by the step's predictions has taken its share already.
        """
        if num_items is None or not self.model_accepts_loss_kwargs or self.head_method.counts_predictions():
            return 1.0
        return self._predictions(inputs, None) / count

    def _predictions(self, inputs: dict[str, Any], num_items: Tensor | int | None) -> int:
        """What the loss is a mean over, on all ranks: labels that count, or examples."""
        if num_items is not None and self.model_accepts_loss_kwargs:
            return int(num_items) * (1 if self.args.average_tokens_across_devices else distributed.world())
        labels = inputs.get("labels")
        tokens = labels is not None and labels.dim() > 1 and not labels.is_floating_point()
        count = int((labels != -100).sum()) if tokens else len(next(iter(inputs.values())))
        return max(count, 1) * distributed.world()

    def training_step(self, *args: Any, **options: Any) -> Tensor:
        """The trainer's, and after the last backward pass of a step the method's update."""
        loss = super().training_step(*args, **options)
        if self.accelerator.sync_gradients:
            self.steps_added += 1
            for parameter in self.head_method.frozen_parameters(self.model, self.progress):
                parameter.grad = None
            self.head_method.after_backward(self.model, self.progress)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """With ``auxiliary_loss``, the mean of what the steps since the last time added."""
        if "loss" in logs and self.steps_added:
            if self.added:
                logs["auxiliary_loss"] = self.added / self.steps_added
            self.added, self.steps_added = 0.0, 0
        super().log(logs, *args, **options)


def __getattr__(name: str) -> type:
    """``Trainer`` and ``Seq2SeqTrainer``: transformers' own with the mixin, made when first asked for."""
    if name not in ("Trainer", "Seq2SeqTrainer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = type(name, (HeadTraining, getattr(transformers(), name)), {"__module__": __name__})
    globals()[name] = made
    return made
