"""A method in a trainer of transformers whose class cannot be changed.

trainer = transformers.Trainer(model, args, callbacks=[headdiv.integrations.transformers_callback(model, method)])
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core import distributed
from headdiv.core.errors import ConfigError, TrainingError
from headdiv.methods.base import Method
from headdiv.nn.records import HeadRecord
from headdiv.pretrained.attached import transformers
from headdiv.pretrained.trainer import BetweenEpochs, inserted, predictions
from headdiv.training.method_steps import MethodSteps


class TransformersHooks(BetweenEpochs):
    """What `transformers_callback` gives, by the names of transformers' events.

    The same parameters as with `headdiv.pretrained.Trainer`, as long as gradients are not clipped: there the update
    comes before clipping, here after it, and gradients of what the method trains itself are left out of the norm.

    Args:
        model: the trainer's; the method is inserted unless it is there.
        method: or its options.
        observe: yields what the heads do with held-out batches, for methods that choose heads by it.

    Raises:
        ConfigError: see `headdiv.insert`; or, when training begins, there are several processes.
        TrainingError: at a step: the model has not computed the loss itself.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method | Mapping[str, Any],
        observe: Callable[[], Iterator[Observed]] | None = None,
    ) -> None:
        super().__init__(MethodSteps(model, inserted(model, method), observe))
        self.model = model
        self.progress, self.opened = 0.0, contextlib.ExitStack()
        self.records: list[HeadRecord] = []
        self.hooks: list[Any] = []
        self.kept: dict[nn.Parameter, Tensor] = {}  # gradients that clipping does not see
        self.with_loss: set[bool] = set()  # whether the passes of this step that the method adds to had one

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add to the loss of the model's forward passes from now on."""
        if distributed.world() > 1:
            raise ConfigError("transformers_callback: expected one process, or headdiv.pretrained.Trainer for several")
        self.on_train_end(args, state, control)
        begin = self.model.register_forward_pre_hook(self._open)
        end = self.model.register_forward_hook(self._close, with_kwargs=True, always_call=True)
        own = [p for p in self.steps.method.own_parameters(self.model) if p.requires_grad]  # the user may freeze some
        self.hooks = [begin, end, *(p.register_post_accumulate_grad_hook(self._keep) for p in own)]

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the model alone."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note how far the training is."""
        self.progress = state.global_step / max(state.max_steps, 1)

    def _open(self, model: nn.Module, _: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self.records = self.opened.enter_context(self.steps.records())

    def _close(self, model: nn.Module, _: Any, given: dict[str, Any], output: Any) -> Any:
        self.opened.close()
        records, self.records = self.records, []
        if not model.training or not torch.is_grad_enabled() or output is None:  # None: the pass has failed
            return output
        in_step = given.get("num_items_in_batch")
        count, own = predictions(given), predictions(given) if in_step is None else int(in_step)
        added = self.steps.added(records, self.progress, own)
        if added is None:
            return output
        self.with_loss.add(getattr(output, "loss", None) is not None)
        if getattr(output, "loss", None) is None:  # perhaps a pass that only renews statistics
            return output
        share = 1.0 if in_step is None or self.steps.method.counts_predictions() else count / own
        output.loss = output.loss + added * share
        return output

    def _keep(self, parameter: nn.Parameter) -> None:
        before = self.kept.get(parameter)
        self.kept[parameter] = parameter.grad if before is None else before + parameter.grad
        parameter.grad = None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The method's update."""
        if self.with_loss == {False}:
            raise TrainingError(
                "the model computes no loss that the method's could be added to; expected labels in its inputs, or "
                "headdiv.pretrained.Trainer"
            )
        for parameter, gradient in self.kept.items():
            parameter.grad = gradient
        self.kept, self.with_loss = {}, set()
        self.steps.update(self.progress)


def transformers_callback(model: nn.Module, method: Method | Mapping[str, Any], **options: Any) -> Any:
    """transformers' callback with `TransformersHooks`, whose arguments these are; raises as it does."""
    bases = TransformersHooks, transformers().TrainerCallback
    return type("TransformersCallback", bases, {"__module__": __name__})(model, method, **options)
