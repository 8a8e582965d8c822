"""The tasks, by the name that experiments use: ``deacon/translation`` is the paper's, the task is shared.

A task from outside is added by `headdiv.register`; nothing here needs a change.
"""

from __future__ import annotations

from typing import Any

from headdiv.core.registry import Registry
from headdiv.tasks.base import Task
from headdiv.tasks.lm import LanguageModelling
from headdiv.tasks.mlm import MaskedLanguageModelling
from headdiv.tasks.qa import QuestionAnswering
from headdiv.tasks.summarisation import Summarisation
from headdiv.tasks.translation import Translation

_BUILTIN = (Translation(), Summarisation(), QuestionAnswering(), LanguageModelling(), MaskedLanguageModelling())
TASKS: Registry[Task[Any]] = Registry("headdiv.tasks", {task.name: task for task in _BUILTIN})
