"""The examples in docs/guide.md work as they are printed."""

import linecache
import re
import shutil
from pathlib import Path

import pytest
from test_repository import code_cells

import headdiv
from headdiv.companion.experiments.profiles import Runs

YOUR_METHOD = Path(__file__).parents[1] / "notebooks" / "your_method.ipynb"
GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8")


def blocks(language: str, first: str = "") -> list[str]:
    """The examples in a language that begin with ``first``."""
    return [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if text.startswith(first)]


def test_what_python_trains_is_stored(finished):
    shutil.rmtree(finished.home / "results")
    (snippet,) = blocks("python", "from headdiv import companion\n\nconfig =")
    exec(snippet.replace('"quick"', '"tiny"'))
    frame = headdiv.companion.runs("tiny")
    assert set(frame["variant"]) == {"direct-8"}
    assert frame["bleu"].notna().all()


@pytest.mark.usefixtures("own_methods")
def test_the_profiles_can_be_read_and_the_method_of_ones_own_trains(project):
    french, text, own = blocks("yaml", "title:")
    project.write_config("french", french)
    assert len([*Runs("french").configs()]) == 9
    project.write_config("text", text)
    assert [config.variant for config in Runs("text").configs()] == ["baseline", "direct-8"]
    shutil.copy(Path(__file__).with_name("own_method.py"), project.home)
    project.write_config("own", own)
    run = headdiv.companion.train(headdiv.companion.run_config("own", "deacon/translation", "mine", seed=1))
    assert len(run.record["curve"]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("own_methods")
def test_your_method_is_trained_and_stands_beside_the_baseline(project, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "\n".join(code_cells(YOUR_METHOD)).replace("epochs = 4", "epochs = 1")
    monkeypatch.setitem(linecache.cache, "<cell>", (len(code), None, code.splitlines(keepends=True), "<cell>"))
    names = {"__name__": "notebook"}
    exec(compile(code, "<cell>", "exec"), names)
    frame = headdiv.companion.runs(names["profile"])
    assert set(frame["variant"]) == {"baseline", "repulsion"}
    assert frame["validation_nll"].nunique() == 2
    lines = code.split("class Repulsion")[1].split("headdiv.register")[0].strip().splitlines()
    assert len([line for line in lines if line.strip()]) <= 20
