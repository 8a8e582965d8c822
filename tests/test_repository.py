"""Rules for the whole repository: sizes, circles of imports, safe loading, notebooks without logic or outputs."""

import ast
import json
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from tracked import ROOT, git_files

import headdiv
from headdiv.companion.experiments.papers import load_paper
from headdiv.companion.pipeline import run_notebook
from headdiv.companion.report.show import DIAGRAMS

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


@cache
def tree_of(path):
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def trees():
    """Every piece of Python in the repository as (where, syntax tree)."""
    for path in PYTHON_FILES:
        yield relative(path), tree_of(path)
    for path in NOTEBOOKS:
        for number, source in enumerate(code_cells(path), start=1):
            yield f"{relative(path)}, code cell {number}", ast.parse(source)


# --- files ---


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


# --- imports (the layers are a contract in pyproject.toml, checked by `make lint`) ---


def imported_modules(path):
    """The files in headdiv/ that a module needs when it is imported: what its functions import comes later."""
    for node in tree_of(path).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headdiv"):
            for alias in node.names:
                module = ROOT / node.module.replace(".", "/")
                files = (module / f"{alias.name}.py", module.with_suffix(".py"), module / "__init__.py")
                yield next(file for file in files if file.is_file())


def test_no_modules_import_each_other_in_a_circle():
    graph = {path: {*imported_modules(path)} - {path, ROOT / "headdiv" / "__init__.py"} for path in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


# --- safe loading ---


def test_torch_load_always_says_weights_only():
    for where, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "attr", "") == "load"
                and ast.unparse(node.func) == "torch.load"
            ):
                keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert keywords.get("weights_only") == "True", f"{where}, line {node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == "torch":
                assert "load" not in {alias.name for alias in node.names}, f"{where}: write torch.load in full"


def test_nothing_imports_pickle():
    for where, tree in trees():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {name.partition(".")[0] for name in names}
            assert not roots & {"pickle", "_pickle", "cloudpickle", "dill"}, f"{where}, line {node.lineno}"


# --- notebooks ---


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_notebook_is_committed_without_outputs(path):
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"], start=1):
        if cell["cell_type"] == "code":
            where = f"{relative(path)}, cell {number}: run `make format`, which clears notebooks"
            assert cell["outputs"] == [], where
            assert cell["execution_count"] is None, where


RUN_NOTEBOOKS = [path for path in NOTEBOOKS if path.parent.name == "runs"]


@pytest.mark.parametrize("path", RUN_NOTEBOOKS, ids=relative)
def test_run_notebook_holds_no_logic(path):
    logic = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While)
    for number, source in enumerate(code_cells(path), start=1):
        for node in ast.walk(ast.parse(source)):
            assert not isinstance(node, logic), (
                f"{relative(path)}, code cell {number}: {type(node).__name__} belongs in headdiv/"
            )


# The literal code of an equation stands in a function; a check that the library computes the same follows.
@pytest.mark.parametrize("path", sorted({*NOTEBOOKS} - {*RUN_NOTEBOOKS}), ids=relative)
def test_literal_code_in_a_notebook_is_checked(path):
    cells = code_cells(path)
    functions = [node.name for cell in cells for node in ast.parse(cell).body if isinstance(node, ast.FunctionDef)]
    checks = "\n".join(cell for cell in cells if "assert_close(" in cell)
    unchecked = [name for name in functions if name.endswith("_literal") and name not in checks]
    assert not unchecked, f"{relative(path)}: no assert_close of {', '.join(unchecked)}"


@pytest.mark.parametrize("paper", [path.stem for path in sorted(DIAGRAMS.glob("*.svg"))])
def test_a_companion_shows_its_idea_and_checks_its_equations(paper):
    cells = code_cells(ROOT / "notebooks" / f"{paper}.ipynb")
    assert any(f'companion.show_diagram("{paper}")' in cell for cell in cells)
    assert sum("assert_close(" in cell for cell in cells) >= 4


def test_every_kind_of_task_of_a_paper_has_a_run_notebook_and_a_place_in_the_companion():
    for paper in sorted({path.stem.partition("_")[0] for path in RUN_NOTEBOOKS}):
        tasks = load_paper(paper).tasks
        assert {relative(path) for path in RUN_NOTEBOOKS if path.stem.startswith(f"{paper}_")} == {
            run_notebook(f"{paper}/{task}") for task in tasks
        }
        companion = "\n".join(code_cells(ROOT / "notebooks" / f"{paper}.ipynb"))
        for table in (*tasks, *load_paper(paper).tables):
            assert f'companion.show_table(profile, "{paper}/{table}")' in companion


# What every run notebook calls, in this order; what its paper is about comes between heads and record.
RUN_CALLS = (
    *("run_config", "show_data", "show_lengths", "train", "show_training", "show_architecture", "evaluate"),
    *("show_scores", "show_examples", "show_heads", "record"),
)


@pytest.mark.parametrize("path", RUN_NOTEBOOKS, ids=relative)
def test_a_run_notebook_shows_data_model_training_scores_and_heads_of_its_own_experiment(path):
    parameters, *cells = code_cells(path)
    assert [line.split(" =")[0] for line in parameters.splitlines()] == ["profile", "experiment", "variant", "seed"]
    for experiment in re.findall(r'"(\w+/\w+)"', parameters):
        assert run_notebook(experiment) == relative(path)
    assert "config = companion.run_config(profile, experiment, variant, seed)" in cells[0]
    calls = re.findall(r"companion\.(\w+)\(", "\n".join(cells))
    assert [name for name in calls if name != "show_method"] == [*RUN_CALLS]
    about_losses = path.stem.startswith("dpp_")  # its picture is that of the heads
    assert ("show_method" in calls) != about_losses


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_a_notebook_has_parameters_and_calls_public_names_only(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["metadata"].get("tags") for cell in cells if cell["metadata"].get("tags")] == [["parameters"]]
    for source in code_cells(path):
        for node in ast.walk(ast.parse(source)):
            for name, package in (("headdiv", headdiv), ("companion", headdiv.companion)):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name:
                    assert node.attr in package.__all__, f"{relative(path)}: {name}.{node.attr}"


@pytest.mark.parametrize("path", git_files("results/*/companions/*.ipynb"), ids=relative)
def test_a_stored_companion_names_no_path_of_the_machine_that_ran_it(path):
    ran = json.loads(path.read_text(encoding="utf-8"))["metadata"]["papermill"]
    assert not [ran[key] for key in ("input_path", "output_path") if Path(ran[key]).is_absolute()]
