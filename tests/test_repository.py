"""Rules for the whole repository: sizes of files, notebooks without outputs that call what there is."""

import ast
import json
from pathlib import Path

import pytest
from tracked import ROOT, git_files

import headdiv
from headdiv import companion

MIB = 1024 * 1024  # bytes


PYTHON_FILES = git_files("*.py", untracked=True)
MODULES = [path for path in PYTHON_FILES if path.is_relative_to(ROOT / "headdiv")]
NOTEBOOKS = git_files("notebooks/*.ipynb", untracked=True)


def relative(path):
    return path.relative_to(ROOT).as_posix()


def code_cells(notebook):
    """The code of each code cell, without the lines that only IPython understands."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return [
        "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))
        for source in sources
    ]


def test_no_tracked_file_over_one_mebibyte():
    """5 of a trained model."""
    models = ROOT / "data" / "models"
    most = {path: MIB * (5 if path.parent == models else 1) for path in git_files()}
    large = {relative(path): path.stat().st_size for path, limit in most.items() if path.stat().st_size > limit}
    assert large == {}, f"bytes of tracked files over {MIB}: {large}"


def test_no_python_file_over_400_lines():
    """450 of a test."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PYTHON_FILES}
    long = {relative(path): lines for path, lines in lengths.items() if lines > (400 if path in MODULES else 450)}
    assert long == {}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_notebook_is_committed_without_outputs(path):
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], start=1):
        if cell["cell_type"] == "code":
            where = f"{relative(path)}, cell {number}: run `make format`, which clears notebooks"
            assert cell["outputs"] == [], where
            assert cell["execution_count"] is None, where


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_a_notebook_has_parameters_and_calls_public_names_only(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["metadata"].get("tags") for cell in cells if cell["metadata"].get("tags")] == [["parameters"]]
    for source in code_cells(path):
        for node in ast.walk(ast.parse(source)):
            for name, package in (("headdiv", headdiv), ("companion", companion)):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name:
                    assert node.attr in package.__all__, f"{relative(path)}: {name}.{node.attr}"


@pytest.mark.parametrize("path", git_files("results/*/companions/*.ipynb"), ids=relative)
def test_a_stored_companion_names_no_path_of_the_machine_that_ran_it(path):
    ran = json.loads(path.read_text(encoding="utf-8"))["metadata"]["papermill"]
    assert not [ran[key] for key in ("input_path", "output_path") if Path(ran[key]).is_absolute()]
