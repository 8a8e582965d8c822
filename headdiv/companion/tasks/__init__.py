"""The tasks, by the name that experiments use: ``deacon/translation`` is the paper's, the task is shared.

`headdiv.companion.tasks.specs` describes them without torch; what trains and scores them is imported when it is
asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headdiv.companion.tasks.base import Task

CLASSES = {  # each in the module of its task's name
    "translation": "Translation",
    "summarisation": "Summarisation",
    "qa": "QuestionAnswering",
    "lm": "LanguageModelling",
    "mlm": "MaskedLanguageModelling",
}


class _Tasks(dict[str, "Task[Any]"]):
    """The tasks by name, each made when it is first asked for, since its module imports torch: names are `CLASSES`."""

    def __missing__(self, name: str) -> Task[Any]:
        cls = CLASSES[name]
        self[name] = getattr(import_module(f"{__name__}.{name}"), cls)()
        return self[name]


TASKS = _Tasks()
