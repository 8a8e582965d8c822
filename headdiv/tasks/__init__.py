"""The tasks, by the name that experiments use: ``deacon/translation`` is the paper's, the task is shared."""

from __future__ import annotations

from typing import Any

from headdiv.tasks.base import Task
from headdiv.tasks.lm import LanguageModelling
from headdiv.tasks.mlm import MaskedLanguageModelling
from headdiv.tasks.qa import QuestionAnswering
from headdiv.tasks.seq2seq import Summarisation, Translation

TASKS: dict[str, Task[Any]] = {
    "translation": Translation(),
    "summarisation": Summarisation(),
    "qa": QuestionAnswering(),
    "lm": LanguageModelling(),
    "mlm": MaskedLanguageModelling(),
}
