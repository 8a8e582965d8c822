"""The examples in docs/guide.md work as they are printed."""

import re
import shutil
from pathlib import Path

import headdiv
from headdiv.companion.experiments.profiles import Runs
from headdiv.methods import METHODS
from headdiv.methods.options import OPTIONS

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")


def blocks(language: str, first: str = "") -> list[str]:
    """The examples in a language that begin with ``first``."""
    return [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if text.startswith(first)]


def test_what_python_trains_is_stored(finished):
    shutil.rmtree(finished.home / "results")
    (snippet,) = blocks("python")
    exec(snippet.replace('"quick"', '"tiny"'))
    frame = headdiv.companion.runs_frame("tiny")
    assert set(frame["variant"]) == {"direct-8"}
    assert "bleu" in set(frame["score"])


def test_the_profiles_can_be_read_and_the_method_of_ones_own_trains(project, monkeypatch):
    for known in (METHODS, OPTIONS):  # other tests do not know the method
        monkeypatch.setattr(known, "_added", dict(known._added))
    text, own = blocks("yaml", "title:")
    project.write_config("text", text)
    assert [config.variant for config in Runs("text").all()] == ["baseline", "direct-8"]
    shutil.copy(Path(__file__).with_name("own_method.py"), project.home)
    project.write_config("own", own)
    run = headdiv.companion.train(headdiv.companion.run_config("own", "deacon/translation", "mine", seed=1))
    assert len(run.record["curve"]) == 2
