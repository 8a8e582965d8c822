"""Notebooks as steps of the pipeline."""

import json

import pytest
from faulty import exactly, fails

from headdiv.companion.experiments.notebooks import execute
from headdiv.core import progress
from headdiv.core.errors import ConfigError, HeaddivError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # `execute` sets both; taken back at the end
    monkeypatch.setenv(progress.PLAIN, "")
    return tmp_path


def write(folder, *cells):
    """A notebook of a cell with parameters and these cells of code."""
    code = {"cell_type": "code", "execution_count": None, "outputs": []}
    tags = [{"tags": ["parameters"]}, *({} for _ in cells)]
    cells = [code | {"metadata": tag, "source": text} for tag, text in zip(tags, ["a = 1", *cells], strict=True)]
    path = folder / "some.ipynb"
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    path.write_text(json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}))
    return path


def outputs(path):
    cells = json.loads(path.read_text())["cells"]
    return ["".join(part["text"]) for cell in cells for part in cell.get("outputs", []) if "text" in part]


def test_a_notebook_that_is_not_there_is_named(tmp_path):
    with exactly(f"{tmp_path}/a.ipynb: no such notebook"):
        execute(tmp_path / "a.ipynb", tmp_path / "b.ipynb", {}, tmp_path / "scratch")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "text", "[]", "{}", '{"cells": 3}', '{"nbformat": 4, "cells": [3]}'])
def test_a_file_that_is_no_notebook_is_named(folder, content):
    notebook = folder / "some.ipynb"
    notebook.write_text(content)
    with fails(f"{notebook}: expected a notebook in Jupyter's format, found something else ("):
        execute(notebook, folder / "run.ipynb", {}, folder / "scratch")
    assert [path.name for path in folder.iterdir()] == ["some.ipynb"]


@pytest.mark.parametrize("name", ["b", "import os; a", "a = 1\nimport os\na", ""])
def test_a_parameter_that_the_notebook_does_not_declare_is_refused(folder, name):
    notebook = write(folder, "b = 2")
    with fails(f"{notebook}: no parameter {name!r}", ConfigError):
        execute(notebook, folder / "run.ipynb", {"a": 2, name: 1}, folder / "scratch")
    assert [path.name for path in folder.iterdir()] == ["some.ipynb"]


@pytest.mark.slow
def test_an_executed_notebook_is_kept_whole(folder):
    notebook = write(folder, "import os\nprint(a, os.getcwd())", "print(os.environ['HEADDIV_PROGRESS'])")
    before = notebook.read_bytes()
    output, scratch = folder / "results" / "run.ipynb", folder / "scratch"
    execute(notebook, output, {"a": "3.10"}, scratch)
    assert outputs(output) == [f"3.10 {folder}\n", "plain\n"]
    assert notebook.read_bytes() == before
    assert [path.name for path in output.parent.iterdir()] == ["run.ipynb"]
    assert list(scratch.iterdir()) == []


SLOW_TO_SAY_WHAT_IT_IS = """
import time
handlers = get_ipython().kernel.shell_handlers
answer = handlers["kernel_info_request"]
async def slow(*message):
    await answer(*message)
    time.sleep(1)
handlers["kernel_info_request"] = slow
"""


@pytest.mark.slow
def test_a_kernel_that_is_busy_when_it_is_ended_calls_that_no_error(folder, capfd):
    execute(write(folder, SLOW_TO_SAY_WHAT_IT_IS), folder / "run.ipynb", {}, folder / "scratch")
    assert "KeyboardInterrupt" not in capfd.readouterr().err


@pytest.mark.slow
def test_a_failing_cell_leaves_the_earlier_output_and_the_copy(folder):
    notebook = write(folder, "print('fine')", "raise ValueError('no such thing')", "print('not reached')")
    output, scratch = folder / "results" / "run.ipynb", folder / "scratch"
    output.parent.mkdir()
    output.write_text("earlier")
    with pytest.raises(HeaddivError) as found:
        execute(notebook, output, {}, scratch)
    copy = scratch / "some.ipynb"
    assert str(found.value) == f"{notebook}, cell 3: ValueError: no such thing (the copy is {copy})"
    assert output.read_text() == "earlier"
    assert [path.name for path in output.parent.iterdir()] == ["run.ipynb"]
    assert "fine\n" in outputs(copy)
    assert "not reached\n" not in outputs(copy)


@pytest.mark.slow
def test_a_kernel_that_dies_is_one_sentence_too(folder):
    notebook = write(folder, "import os\nos._exit(9)  # as when memory runs out")
    with exactly(f"{notebook}: the kernel died (the copy is {folder / 'scratch' / 'some.ipynb'})", HeaddivError):
        execute(notebook, folder / "run.ipynb", {}, folder / "scratch")
    assert not (folder / "run.ipynb").exists()
