"""What the papers report, as it is printed there."""

import inspect
import re

import pytest
import torch
from faulty import fails

from headdiv.companion.experiments.papers import FOLDER, load_paper, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.models.sizes import LMConfig, ModelConfig
from headdiv.companion.models.transformer import Transformer, count_parameters
from headdiv.companion.report.figures import figure_entry, figures_of_paper
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import HeaddivError
from headdiv.methods import METHODS, check_method, make_method

NO_PAPERS = {"head-scale", "orthogonality", "hsic"}  # rows of the dissection, and of the profile diversity
PAPERS = sorted(path.stem for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_loads(name):
    paper = load_paper(name)
    assert paper.title
    assert paper.tasks
    for kind, task in paper.tasks.items():
        model = LMConfig if (task.kind or kind) in ("lm", "mlm") else ModelConfig
        own = task.sizes.model if task.sizes else {"encoder_layers": 6, "decoder_layers": 6} if name != "deacon" else {}
        assert task.variants
        for variant, row in task.variants.items():
            assert set(row.reported) <= set(task.columns), variant
            sizes = model(**(own if model is ModelConfig or task.sizes else {}) | row.model)
            assert check_method(row.method, sizes)["name"] == row.method["name"]
    for table in paper.tables.values():
        assert table.task in paper.tasks
        for source, row in table.rows.items():
            assert set(row) <= set(table.columns), source


def test_the_projects_own_comparison_reports_nothing_and_has_every_method():
    rows = task_of("headtohead/translation").variants
    assert all(row.reported == row.model == {} for row in rows.values())
    assert {row.method["name"] for row in rows.values()} == set(METHODS) - NO_PAPERS
    swept = {config.variant for config in Runs("diversity").configs()}
    labels = [task_of("headtohead/translation").label(variant) for variant in swept | set(rows)]
    assert len(set(labels)) == len(labels) == len(set(labels) - swept)


NAME, VARIANT, FILE = "[a-z0-9]+", "[A-Za-z0-9-]+", "[A-Za-z0-9_-]+"  # folders, files, wildcards of the Snakefile


@pytest.mark.parametrize("name", PAPERS)
def test_what_a_paper_names_is_there(name):
    paper = load_paper(name)
    for task, content in paper.tasks.items():
        assert re.fullmatch(NAME, task)
        assert (content.kind or task) in TASKS
        assert all(re.fullmatch(VARIANT, variant) for variant in content.variants)
        assert {variant for row in content.contrasts for variant in (row.variant, row.against)} <= set(content.variants)
        assert "bleu" in content.columns or not content.compares_outputs
        assert {"validation_nll", content.primary} & content.columns.keys() or not content.contrasts
        assert {content.primary} - {""} <= content.columns.keys()
    for table, content in paper.tables.items():
        assert re.fullmatch(FILE, table)
        assert table not in paper.tasks  # which has a table of its own
        assert "mixture" in TASKS[paper.tasks[content.task].kind or content.task].Data.model_fields
    for figure, content in paper.figures.items():
        assert re.fullmatch(FILE, figure)
        assert set(content.variants) <= set(paper.tasks[content.task].variants)
        assert set(content.beside) <= set(paper.tasks)
    for entry in figures_of_paper(name).values():
        inspect.signature(entry.draw).bind("quick", entry, **entry.options)
        assert entry.caption


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_paper("decon"), "paper 'decon' is not known; did you mean 'deacon'?"),
        (lambda: task_of("deacon"), "found 'deacon', expected <paper>/<task>"),
        (lambda: task_of("deacon/zzz"), "task 'zzz' of deacon is not known; known here: dissection, lm, qa, "),
        (lambda: figure_entry("deacon_figure7"), "'deacon_figure7' is not known; did you mean 'deacon_figure6'?"),
        (lambda: figure_entry("deacon_curves", Runs("quick")), "known; did you mean 'deacon_qa_curves'?"),
    ],
)
def test_what_is_not_there_is_named(call, message):
    with fails(message, HeaddivError):
        call()


@pytest.mark.parametrize(
    ("size", "count", "millions"),
    [("small", 23_125_760, 23.1), ("base", 68_271_616, 68.3), ("big", 224_623_616, 224.6)],
)
def test_the_counts_of_table_1(size, count, millions):
    """They follow from vocabularies that keep every word, and biases everywhere; no mechanism has parameters."""
    task = task_of(f"homeostasis/{size}")
    config = ModelConfig(**task.sizes.model)
    for variant in {variant.method.get("attention"): variant for variant in task.variants.values()}.values():
        with torch.device("meta"):
            model = Transformer(config, *task.sizes.vocabulary, make_method(check_method(variant.method, config)))
        assert count_parameters(model) == count
    assert round(count / 1e6, 1) == millions == task.variants["baseline"].reported["parameters"] / 1e6
