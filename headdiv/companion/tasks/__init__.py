"""The tasks, by the name that experiments use: ``deacon/translation`` is the paper's, the task is shared.

`headdiv.companion.tasks.specs` describes them without torch; what trains and scores them is imported when it is
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headdiv.companion.tasks.base import Task

CLASSES = {  # module here and class
    "translation": ("translation", "Translation"),
    "summarisation": ("summarisation", "Summarisation"),
    "qa": ("qa", "QuestionAnswering"),
    "lm": ("lm", "LanguageModelling"),
    "mlm": ("mlm", "MaskedLanguageModelling"),
}


class _Tasks(Mapping[str, "Task[Any]"]):
    """The tasks by name; names are there at once, a task once its module has been imported, and torch with it."""

    def __init__(self) -> None:
        self._made: dict[str, Task[Any]] = {}

    def __getitem__(self, name: str) -> Task[Any]:
        if name not in self._made:
            module, cls = CLASSES[name]
            self._made[name] = getattr(import_module(f"{__name__}.{module}"), cls)()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


TASKS = _Tasks()
