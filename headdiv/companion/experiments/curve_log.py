"""The numbers of each epoch for programs that draw them while a model is trained."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Callback = Callable[[Mapping[str, Any]], None]  # is given each point of the curve


@contextlib.contextmanager
def tensorboard_log(folder: Path) -> Iterator[Callback]:
    """Write the numbers of each epoch to ``folder``, over the steps done; `tensorboard --logdir` shows them.

    Raises:
        ModuleNotFoundError: tensorboard is not installed.
    """
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:

        def log(point: Mapping[str, Any]) -> None:
            for name, value in point.items():
                if isinstance(value, (int, float)) and name not in ("epoch", "steps"):
                    writer.add_scalar(name, value, point["steps"])
            writer.flush()

        yield log
