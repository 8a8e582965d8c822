"""What the papers report, as it is printed there."""

import copy
import json
import re

import pytest
from faulty import exactly

from headdiv.companion.data.readers.documents import SLIMPAJAMA
from headdiv.companion.experiments.catalogue import figure_entry, figures_of_paper
from headdiv.companion.experiments.papers import FOLDER, data_table_of, load_paper, task_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.core.errors import ConfigError, DataError
from headdiv.methods import METHODS, check_method
from headdiv.nn.sizes import LMConfig, ModelConfig

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
    swept = {config.variant for config in Runs("diversity").all()}
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
    sums = [round(sum(column), 2) for column in zip(*TABLE_2.values(), strict=True)]
    assert sums == [100.0, 299.78, 100.0, 320.42]  # the last line of the paper's table
    assert data_table_of("deacon/translation") is None


@pytest.mark.parametrize(
    ("name", "task", "variant", "message"),
    [
        ("my-paper", "translation", "one", "papers/my-paper.yaml: a paper's name is made of small letters"),
        ("deacon", "translation", "one", "papers/deacon.yaml: headdiv has a paper 'deacon'; expected another name"),
        ("mine", "my_task", "one", "/papers/mine.yaml, line 3: tasks.my_task: a task's name is made of small letters"),
        ("mine", "task", "a_b", "tasks.task.variants.a_b: a variant's name is made of letters, digits and hyphens"),
    ],
)
def test_names_of_ones_own_papers_are_names_of_folders(folder, name, task, variant, message):
    rows = {row: {"label": row, "method": {"name": "baseline"}} for row in ("baseline", variant)}
    about = {"kind": "translation", "table": "Table 1", "title": "t", "columns": {}, "variants": rows}
    path = folder / "papers" / f"{name}.yaml"
    path.parent.mkdir()
    path.write_text(f"title: t\ncitation: c\ntasks: {json.dumps({task: about})}\n")
    with pytest.raises(ConfigError) as found:
        load_paper(name)
    assert message in str(found.value)


ROW = {"label": "r", "method": {"name": "baseline"}}
TABLE = {"table": "Table 1", "title": "t", "columns": {"bleu": {"label": "BLEU", "unit": "", "digits": 1}}}
OWN = {
    "title": "t",
    "citation": "c",
    "tasks": {
        "translation": TABLE | {"variants": {"baseline": ROW, "direct-8": ROW}},
        "text": TABLE | {"kind": "lm", "variants": {"baseline": ROW}},
    },
    "tables": {"my_text": TABLE | {"task": "text", "rows": {"C4": {"bleu": 1.0}}}},
    "figures": {"one": {"kind": "swaps", "task": "translation", "caption": "c"}},
}


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        ("tasks.text.variants.baseline", ROW | {"method": {"m": 2}},
         "tasks.text.variants.baseline.method.name: is missing"),
        ("tasks.text.variants.baseline.reported", {"blue": 3.0}, "reported.blue: unknown column 'blue'; did you"),
        ("tasks.translation.contrasts", [{"what": "w", "variant": "direct8", "against": "baseline"}],
         "contrasts.0.variant: unknown variant 'direct8'; did you mean 'direct-8'?"),
        ("tasks.translation.contrasts", [{"what": "w", "variant": "direct-8", "against": "baseline"}],
         "tasks.translation.columns.validation_nll: is missing; contrasts asks for it"),
        ("tables.my_text.task", "translation",
         "tables.my_text.task: 'translation' reads no text with sources; expected a task that has data.mixture"),
        ("tables.my_text.rows.C4", {"blue": 3.0}, "tables.my_text.rows.C4.blue: unknown column 'blue'"),
        ("tables", {"text": OWN["tables"]["my_text"]}, "tables.text: the task of this name has a table; expected"),
        ("tables", {"my/text": OWN["tables"]["my_text"]}, "tables.my/text: its name is made of letters, digits"),
        ("figures.one.task", "translatoin", "figures.one.task: unknown task 'translatoin'; did you mean"),
        ("figures.one.kind", "swap", "figures.one.kind: unknown kind 'swap'; did you mean 'swaps'?"),
        ("figures.one.variants", ["direct8"], "figures.one.variants.0: unknown variant 'direct8'"),
        ("figures.one.against", ["basline"], "figures.one.against.0: unknown variant 'basline'"),
        ("figures.one.beside", ["txet"], "figures.one.beside.0: unknown task 'txet'; did you mean 'text'?"),
        ("figures.one.caption", "", "figures.one.caption: is missing; the kind 'swaps' has none of its own"),
        ("figures.one", {"kind": "bleu", "task": "text"}, "figures.one.options.split: is missing"),
        ("figures.one", {"kind": "alphas", "task": "text"},
         "figures.one.variants: found 0, a figure of kind 'alphas' has 1"),
        ("figures.one", {"kind": "alphas", "task": "text", "variants": ["baseline"]},
         "figures.one.options.how: is missing; the caption of its kind names it"),
    ],
)  # fmt: skip
def test_a_name_in_ones_own_paper_that_nothing_has_is_refused(folder, at, value, message):
    paper = copy.deepcopy(OWN)
    within, (*above, last) = paper, at.split(".")
    for key in above:
        within = within[key]
    within[last] = value
    path = folder / "papers" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(json.dumps(OWN))
    assert load_paper("mine").tables["my_text"].task == "text"
    path = path.rename(folder / "papers" / "other.yaml")
    path.write_text(json.dumps(paper))
    with pytest.raises(ConfigError, match=rf"\A{path}, line 1: .*{re.escape(message)}"):
        load_paper("other")


def test_a_paper_that_cannot_be_read_stops_only_what_names_it(folder, caplog):
    path = folder / "papers" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("title: half a file\n")
    (folder / "papers" / "my-notes.yaml").write_text("")
    assert load_paper("deacon").title
    assert figure_entry("deacon_figure6").paper == "deacon"
    assert not caplog.messages
    for call in (lambda: load_paper("mine"), lambda: figure_entry("mine_task_curves")):
        with pytest.raises(ConfigError, match=rf"{path}, line 1: citation: is missing"):
            call()
    with pytest.raises(DataError, match="'deacon_figure7' is not known; did you mean 'deacon_figure6'"):
        figure_entry("deacon_figure7")
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        f"{path}, line 1",
        str(path.with_name("my-notes.yaml")),
    ]


def test_figures_of_a_task_that_nothing_registered_are_refused(folder):
    (folder / "papers").mkdir()
    (folder / "papers" / "mine.yaml").write_text(json.dumps(OWN).replace('"lm"', '"lmm"'))
    with pytest.raises(ConfigError, match=r"papers/mine.yaml: tasks.text.kind: unknown task 'lmm'; did you mean 'lm'"):
        figures_of_paper("mine")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_paper("decon"), "paper 'decon' is not known; did you mean 'deacon'?"),
        (lambda: load_paper("zzz"), f"paper 'zzz' is not known; known here: {', '.join(PAPERS)}"),
        (lambda: task_of("deacon"), "found 'deacon', expected <paper>/<task>"),
        (lambda: task_of("deacon/zzz"),
         "task 'zzz' of deacon is not known; known here: dissection, lm, qa, regulariser, summarisation, translation"),
        (lambda: data_table_of("decon/sources"), "paper 'decon' is not known; did you mean 'deacon'?"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(call, message):
    with exactly(message, ConfigError):
        call()
