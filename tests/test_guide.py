"""The examples in docs/guide.md work as they are printed."""

import re
import shutil
from pathlib import Path

import headdiv

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")


def blocks(language: str, first: str = "") -> list[str]:
    """The examples in a language that begin with ``first``."""
    return [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if text.startswith(first)]


def test_what_python_trains_is_stored(finished):
    shutil.rmtree(finished.home / "results")
    (snippet,) = blocks("python")
    exec(snippet.replace('"quick"', '"tiny"'))
    frame = headdiv.runs_frame("tiny")
    assert set(frame["variant"]) == {"direct-8"}
    assert "bleu" in set(frame["score"])
