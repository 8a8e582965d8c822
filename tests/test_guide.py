"""The examples in docs/guide.md work as they are printed."""

import re
import shutil
from pathlib import Path

import yaml
from conftest import TINY

import headdiv
from headdiv.companion.experiments.profiles import Runs

GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")


def blocks(language: str, first: str = "") -> list[str]:
    """The examples in a language that begin with ``first``."""
    return [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if text.startswith(first)]


def test_what_python_trains_is_stored(finished):
    shutil.rmtree(finished.home / "results")
    (snippet,) = blocks("python", "import headdiv\n\nconfig =")
    exec(snippet.replace('"quick"', '"tiny"'))
    frame = headdiv.companion.runs_frame("tiny")
    assert set(frame["variant"]) == {"direct-8"}
    assert "bleu" in set(frame["score"])


def test_the_profile_and_the_paper_of_ones_own_can_be_read(project):
    text, paper = blocks("yaml", "title:")
    project.write_config("text", text)
    assert [config.variant for config in Runs("text").all()] == ["baseline", "direct-8"]
    path = project.home / "papers" / "mirror.yaml"
    path.parent.mkdir()
    path.write_text(paper, encoding="utf-8")
    experiment = {key: value for key, value in next(iter(TINY["experiments"].values())).items() if key != "variants"}
    project.write_config("own", yaml.safe_dump(TINY | {"experiments": {"mirror/translation": experiment}}))
    assert [config.variant for config in Runs("own").all()] == ["baseline", "two"]
