"""The tasks, by the name that experiments use: ``deacon/translation`` is the paper's, the task is shared."""

from __future__ import annotations

from typing import Any

from headdiv.companion.tasks.base import Task
from headdiv.companion.tasks.lm import LanguageModelling
from headdiv.companion.tasks.mlm import MaskedLanguageModelling
from headdiv.companion.tasks.qa import QuestionAnswering
from headdiv.companion.tasks.summarisation import Summarisation
from headdiv.companion.tasks.translation import Translation

TASKS: dict[str, Task[Any]] = {
    task.name: task
    for task in (Translation(), Summarisation(), QuestionAnswering(), LanguageModelling(), MaskedLanguageModelling())
}
