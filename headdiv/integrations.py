"""Methods in Lightning's training; `headdiv.pretrained.Trainer` is transformers' own trainer with a method.

trainer = lightning.Trainer(callbacks=[headdiv.integrations.lightning_callback(method)])
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from headdiv.analysis.similarity import Observed
from headdiv.core import distributed
from headdiv.core.errors import ConfigError
from headdiv.methods.base import Method
from headdiv.training.method_steps import MethodSteps

__all__ = ["LightningHooks", "lightning_callback"]


class LightningHooks:
    """What `lightning_callback` gives, by the names of Lightning's hooks.

    The method's loss is added to what ``training_step`` returns, and logged as ``auxiliary_loss``; its update comes
    before clipping and the optimiser's step, once a step whatever the gradient accumulation; between two epochs it acts
    after validation. A parameter that the method trains itself may be given to the optimiser: it has no gradient there.

    Args:
        method: in the module's attention: `headdiv.MultiheadAttention`, or `headdiv.insert` in its ``__init__``.
        count: of a batch, how many predictions its loss is a mean over; needed where the method weighs by them.
        observe: yields what the heads do with held-out batches, for methods that choose heads by it.
        seed: of what the method draws between epochs.

    Raises:
        ConfigError: ``count`` is missing.
        TrainingError: when training begins: see `MethodSteps`.
    """

    def __init__(
        self,
        method: Method,
        *,
        count: Callable[[Any], int] | None = None,
        observe: Callable[[], Iterator[Observed]] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if count is None and method.counts_predictions():
            raise ConfigError(
                f"{method!r} weighs its loss by the number of predictions; expected the argument 'count', a function "
                "of a batch"
            )
        self.method, self.count, self.observe, self.seed = method, count, observe, seed
        self.history: list[dict[str, Any]] = []
        self.steps: MethodSteps | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the model, and add to its ``training_step``."""
        self.steps = MethodSteps(pl_module, self.method, self.observe, self.seed)
        pl_module.training_step = partial(self._training_step, trainer, pl_module, pl_module.training_step)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave the module as it was."""
        vars(pl_module).pop("training_step", None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave the module as it was."""
        self.on_fit_end(trainer, pl_module)

    def _training_step(
        self, trainer: Any, pl_module: Any, original: Callable[..., Any], batch: Any, *args: Any, **options: Any
    ) -> Any:
        with self.steps.records() as records:
            returned = original(batch, *args, **options)
        loss = returned["loss"] if isinstance(returned, dict) else returned
        if not isinstance(loss, Tensor):  # None: Lightning skips the batch
            return returned
        count = self.count(batch) if self.count else 1
        added = self.steps.added(records, _progress(trainer), int(distributed.total_numbers(count)[0]))
        if added is None:
            return returned
        pl_module.log("auxiliary_loss", added.detach())
        return {**returned, "loss": loss + added} if isinstance(returned, dict) else loss + added

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The method's update; Lightning clips afterwards."""
        self.steps.update(_progress(trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Let the method act where another epoch follows."""
        epoch, epochs = trainer.current_epoch + 1, trainer.max_epochs
        if epochs < 0:  # of a training that ends by its number of steps, if at all
            steps = max(trainer.global_step, 1)
            epochs = math.ceil(min(epoch * trainer.estimated_stepping_batches / steps, sys.maxsize))
        if epoch < epochs:
            optimiser = trainer.optimizers[0]
            self.history.append(self.steps.between_epochs(optimiser, epoch, epochs, list(self.history)))

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        self.history = list(state_dict["history"])


def _progress(trainer: Any) -> float:
    # Lightning counts the steps of every optimiser.
    return min(trainer.global_step / max(trainer.estimated_stepping_batches, 1), 1.0)


def lightning_callback(method: Method, **options: Any) -> Any:
    """Lightning's Callback with `LightningHooks`, whose arguments these are; raises as it does.

    Of ``lightning`` and ``pytorch_lightning``, the one that is installed.
    """
    package = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
    callback = importlib.import_module(package).Callback
    return type("LightningCallback", (LightningHooks, callback), {"__module__": __name__})(method, **options)
