"""What is stored of a run's outputs beside its metrics: one compressed file, enough to score and compare them anew."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from headdiv.companion.commands import remedy
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import parse_json, replacing
from headdiv.core.settings import check

FILE = "outputs.json.xz"
Outputs = list[Any] | dict[str, Any]  # in the test set's order, or by the name of each example


class StoredOutputs(BaseModel):
    """The content of ``outputs.json.xz``.

    Attributes:
        test: outputs of the test set: translations, summaries, answers; [] for a task without.
        tokens: the words of each before they were joined; None where they are the text's.
        counts: of a translation, what BLEU needs of each sentence (`headdiv.companion.tasks.bleu.sentence_counts`).
        more: other outputs by name: "best", "average", further test sets.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    test: Outputs = Field(default_factory=list)
    tokens: list[list[str]] | None = None
    counts: list[tuple[int, int, int, int, int, int, int, int, int, int]] | None = Field(None, min_length=1)
    more: dict[str, Outputs] = Field(default_factory=dict)


def write_outputs(metrics: Path, outputs: StoredOutputs) -> None:
    """Write a run's outputs beside its metrics: the same bytes for the same outputs."""
    text = json.dumps(outputs.model_dump(exclude_none=True), ensure_ascii=False, separators=(",", ":"))
    with replacing(metrics.with_name(FILE)) as temporary:
        temporary.write_bytes(lzma.compress(text.encode()))


def read_outputs(metrics: Path, profile: str | None = None) -> StoredOutputs:
    """The outputs beside a run's metrics.

    Raises:
        DataError: the file is missing or damaged; the sentence has the command that makes it anew.
    """
    path = metrics.with_name(FILE)
    try:
        return check(StoredOutputs, parse_json(lzma.decompress(path.read_bytes()).decode(), path))
    except FileNotFoundError:
        raise DataError(f"{path}: missing; {remedy(path, profile)}") from None
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, ConfigError, DataError) as error:
        raise DataError(f"{path}: damaged ({error}); {remedy(path, profile)}") from None
