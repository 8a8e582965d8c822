"""What the papers report, as it is printed there."""

import inspect
import re

import pytest
import torch
from examples import sparse
from faulty import fails

from headdiv.companion.data.readers.documents import SLIMPAJAMA
from headdiv.companion.experiments.papers import FOLDER, data_table_of, load_paper, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.models.sizes import LMConfig, ModelConfig
from headdiv.companion.models.transformer import Transformer, count_parameters
from headdiv.companion.report.figures import figure_entry, figures_of_paper
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import HeaddivError
from headdiv.methods import METHODS, check_method, make_method

NO_PAPERS = {"head-scale", "orthogonality", "hsic"}  # rows of the dissection, and of the profile diversity
PAPERS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LABELS = {"baseline": "Baseline Transformer", "direct": "Direct", "average": "Average", "nonlinear": "Non-Linear"}

# DEACON's tables, typed from the paper's text: columns, then rows.
PRINTED = {
    "translation": (
        "Table 3",
        ["parameters", "training_loss", "validation_accuracy", "bleu", "parameters_of_base"],
        {
            "baseline": (5370112, 0.8211, 68.63, 28.4, 100.00),
            "direct-8": (5373616, 0.8031, 69.75, 28.9, 100.07),
            "direct-3": (5127586, 0.9887, 68.30, 28.3, 95.48),
            "average-8": (4992688, 0.8255, 67.78, 28.1, 92.97),
            "average-3": (4984738, 1.1382, 63.70, 26.8, 92.82),
            "nonlinear-8": (5372800, 0.9916, 68.02, 28.2, 100.05),
            "nonlinear-3": (5125690, 0.8689, 67.68, 28.1, 95.45),
        },
    ),
    "summarisation": (
        "Table 4",
        ["parameters", "training_loss", "rouge1", "rouge2", "rougeL"],
        {
            "baseline": (5370112, 3.245, 32.45, 11.78, 25.67),
            "direct-8": (5373616, 3.187, 33.12, 12.05, 26.21),
            "direct-3": (5127586, 3.356, 32.38, 11.72, 25.59),
            "average-8": (4992688, 3.278, 32.01, 11.56, 25.33),
            "average-3": (4984738, 3.512, 30.87, 11.02, 24.45),
            "nonlinear-8": (5372800, 3.298, 32.23, 11.69, 25.48),
            "nonlinear-3": (5125690, 3.321, 32.09, 11.63, 25.37),
        },
    ),
    "qa": (
        "Table 5",
        ["parameters", "training_loss", "em", "f1", "parameters_of_base"],
        {
            "baseline": (5370112, 2.876, 67.89, 77.45, 100.00),
            "direct-8": (5373616, 2.812, 68.73, 78.21, 100.07),
            "direct-3": (5127586, 2.934, 67.65, 77.18, 95.48),
            "average-8": (4992688, 2.901, 67.42, 76.95, 92.97),
            "average-3": (4984738, 3.087, 65.78, 75.32, 92.82),
            "nonlinear-8": (5372800, 2.889, 67.98, 77.56, 100.05),
            "nonlinear-3": (5125690, 2.923, 67.54, 77.09, 95.45),
        },
    ),
    "lm": (
        "Table 6",
        ["parameters", "perplexity", "training_days", "inference_ms", "convergence_epoch"],
        {
            "baseline": (354818048, 9.86, 8.5, 41, 2.7),
            "direct-16": (354850816, 9.41, 8.8, 42, 2.3),
            "direct-8": (354023424, 9.57, 8.0, 37, 2.5),
            "average-16": (354588672, 9.63, 8.6, 40, 2.6),
            "average-8": (353761280, 9.98, 7.8, 36, 2.9),
            "nonlinear-16": (354899968, 9.52, 9.0, 44, 2.4),
            "nonlinear-8": (354072576, 9.61, 8.2, 39, 2.6),
        },
    ),
}
TABLE_2 = {
    "CommonCrawl": (67.0, 200.82, 66.99, 214.72),
    "C4": (15.0, 44.98, 15.00, 48.06),
    "GitHub": (4.5, 13.51, 4.51, 14.42),
    "Books": (4.5, 13.49, 4.50, 14.39),
    "Wikipedia": (4.5, 13.50, 4.50, 14.41),
    "ArXiv": (2.5, 7.49, 2.50, 8.01),
    "StackExchange": (2.0, 5.99, 2.00, 6.41),
}


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


@pytest.mark.parametrize("name", PRINTED)
def test_a_table_of_deacon(name):
    table, columns, rows = PRINTED[name]
    task = task_of(f"deacon/{name}")
    assert task.table == table
    assert list(task.columns) == columns
    assert all(list(row.reported) == columns for row in task.variants.values())
    assert {variant: tuple(row.reported.values()) for variant, row in task.variants.items()} == rows
    for variant, row in task.variants.items():
        architecture, _, m = variant.partition("-")
        assert row.label == f"{LABELS[architecture]}-{m}".rstrip("-")
        expected = {"name": "deacon", "architecture": architecture, "m": int(m)} if m else {"name": "baseline"}
        assert row.method == expected


def test_table_2_of_deacon():
    table = data_table_of("deacon/sources")
    assert (table.table, table.task) == ("Table 2", "lm")
    assert {source: tuple(row.values()) for source, row in table.rows.items()} == TABLE_2
    assert list(table.rows) == list(SLIMPAJAMA)
    assert all(list(row) == list(table.columns) for row in table.rows.values())
    assert data_table_of("deacon/translation") is None


NAME, VARIANT, FILE = "[a-z0-9]+", "[A-Za-z0-9-]+", "[A-Za-z0-9_-]+"  # folders, files, wildcards of the Snakefile


@pytest.mark.parametrize("name", PAPERS)
def test_what_a_paper_names_is_there(name):
    paper = load_paper(name)
    for task, content in paper.tasks.items():
        assert re.fullmatch(NAME, task)
        assert (content.kind or task) in TASKS
        assert all(re.fullmatch(VARIANT, variant) for variant in content.variants)
        assert {one for row in content.contrasts for one in (row.variant, row.against)} <= set(content.variants)
        assert "bleu" in content.columns or not content.compares_outputs
        assert {"validation_nll", content.primary} & content.columns.keys() or not content.contrasts
        assert {content.primary} - {""} <= content.columns.keys()
    for table, content in paper.tables.items():
        assert re.fullmatch(FILE, table)
        assert table not in paper.tasks  # which has a table of its own
        assert "mixture" in TASKS[paper.tasks[content.task].kind or content.task].Data.model_fields
    for figure, content in paper.figures.items():
        assert re.fullmatch(FILE, figure)
        assert {*content.variants, *content.against} <= set(paper.tasks[content.task].variants)
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


# ---- homeostasis: counts and tables


GROUPS = {
    "B": sparse("rfb-kwta", "dropout"),
    "C": sparse("dropout", "dropout"),
    "D": sparse("smart", "smart"),
    "E": sparse("rfb-kwta", "smart"),
}


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


# Table 3, typed from the paper's text: group, then (Q_Att, Q_BO, s, BLEU).
TABLE_3 = {
    "small": {
        "A": [(None, None, None, 0.2727)],
        "B": [(256, None, 0.5, 0.2926), (256, None, 0.7, 0.2898), (256, None, 0.8, 0.3025), (256, None, 0.9, 0.2967)],
    },
    "base": {
        "A": [(None, None, None, 0.2768)],
        "B": [(256, None, 0.5, 0.2848), (256, None, 0.7, 0.2918), (256, None, 0.8, 0.2888), (256, None, 0.9, 0.3046)],
        "C": [(None, None, None, 0.3007)],
        "D": [(256, 1, 0.9, 0.2942), (256, 16, 0.9, 0.3062), (256, 256, 0.9, 0.2948), (256, 1024, 0.9, 0.2854)],
    },
    "big": {
        "A": [(None, None, None, 0.2751)],
        "B": [(256, None, 0.5, 0.2863), (256, None, 0.7, 0.2858), (256, None, 0.8, 0.2913), (256, None, 0.9, 0.2927)],
        "E": [(256, 1, 0.9, 0.2891), (256, 4, 0.9, 0.2913), (256, 16, 0.9, 0.2941), (256, 512, 0.9, 0.2868)],
    },
}


@pytest.mark.parametrize("size", TABLE_3)
def test_table_3(size):
    found = {}
    for row in task_of(f"homeostasis/{size}").variants.values():
        group, method = row.label[1], row.method
        expected = GROUPS[group] if group != "A" else {"name": "baseline", "attention": "none", "block": "none"}
        assert method.get("attention", "none") == expected["attention"]
        assert method.get("block", "none") == expected["block"]
        if "s_bo" in method:
            assert method["s_bo"] == method["s_att"]
        settings = (method.get("q_att"), method.get("q_bo"), method.get("s_att"))
        found.setdefault(group, []).append((*settings, round(row.reported["bleu"] / 100, 4)))
    assert found == TABLE_3[size]


def test_tables_1_and_2():
    rows = task_of("homeostasis/memorisation").variants
    assert {name: tuple(row.reported.values()) for name, row in rows.items()} == {
        "baseline": (95.4, 32.5, 0.705),
        "kwta-20": (96.5, 28.4, 0.728),
        "kwta-50": (97.4, 31.0, 0.743),
    }
    assert [row.method.get("s_att") for row in rows.values()] == [None, 0.2, 0.5]
    tasks = load_paper("homeostasis").tasks
    assert {task.kind for task in tasks.values()} == {"translation"}
    keys = ("d_model", "heads", "d_ff", "encoder_layers", "decoder_layers", "dropout")
    assert {name: tuple(task.sizes.model[key] for key in keys) for name, task in tasks.items()} == {
        "memorisation": (256, 4, 1024, 6, 6, 0.1),
        "small": (256, 4, 1024, 6, 6, 0.1),
        "base": (512, 8, 2048, 6, 6, 0.1),
        "big": (1024, 16, 4096, 6, 6, 0.1),
    }
