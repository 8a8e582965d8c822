"""Tables from metrics written by hand: numbers, rounding, what is said above and below them."""

import math

import pandas as pd
import pytest
from markdown_it import MarkdownIt
from reported import metrics, put, store_all, write_profile

from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report import formats, tables
from headdiv.companion.report.result_tables import UNTIMED
from headdiv.companion.report.table_data import BESIDE, TableData

EXPERIMENT = "deacon/translation"


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p")


@pytest.fixture
def recorded(project, profile):
    """Two seeds of the baseline and of Direct-8, one run of a variant that the paper does not have."""
    store_all(
        "p",
        metrics("own", 1, parameters=1500),
        metrics("direct-8", 1, parameters=1100, bleu=10.0, chrf=40.0),
        metrics("direct-8", 2, parameters=1100, bleu=13.0, chrf=42.0),
        metrics("baseline", 1, bleu=20.0),
        metrics("baseline", 2, bleu=21.0),
    )
    return project


# ---- numbers


@pytest.mark.parametrize(
    ("value", "digits", "sd", "text"),
    [
        (5373616, 0, None, "5,373,616"),
        (11.5, 1, 2.1213, "11.5 ± 2.1"),
        (1.0, 4, 0.0, "1.0000"),  # equal in all seeds
        (2.0, 1, 0.0061, "2.0 ± 0.006"),
        (0.0, 2, None, "0.00"),
        (-1.24e-8, 1, 3e-9, "−1.2e-08 ± 3.0e-09"),
        (-0.0042, 2, None, "−0.0042"),
        (math.nan, 2, 1.0, "–"),
    ],
)
def test_numbers_have_the_papers_decimals_unless_nothing_would_be_left(value, digits, sd, text):
    assert formats.as_printed(value, digits, sd) == text


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [(0.0114, 0.0110, "+0.0114 ± 0.0110"), (0.0110, 0.0114, "+0.011 ± 0.011"), (-0.02, math.nan, "−0.020")],
)
def test_a_difference_has_the_decimals_that_show_its_verdict(mean, half, text):
    assert formats.signed(mean, 3, half) == text


@pytest.mark.parametrize(
    ("values", "digits", "decimals"),
    [
        ([31.6, 32.2], 1, 1),
        ([0.27, 1.05, 41.0], 0, 2),
        ([0.0, 0.04], 2, 3),
        ([5370112, 3], 0, 0),  # counts
        ([math.nan], 2, 2),
    ],
)
def test_a_column_keeps_two_significant_digits(values, digits, decimals):
    assert formats.enough_digits(values, digits) == decimals


@pytest.mark.parametrize(
    ("value", "sd", "text"),
    [
        (22551525.6, None, "22,551,526"),
        (1234.56, None, "1,235"),
        (0.0123456, 0.00123, "0.01235 ± 0.00123"),
        (0.0, None, "0.000"),
        (math.nan, None, "–"),
    ],
)
def test_other_numbers_have_four_significant_digits(value, sd, text):
    assert formats.significant(value, sd) == text


# ---- results


@pytest.mark.parametrize("table", [EXPERIMENT, "deacon/dissection"])
def test_epochs_are_those_of_all_seeds(project, table):
    """With ``train.patience`` seeds end at different ones."""
    write_profile(project, "p", table.partition("/")[2])
    put(*(metrics("baseline", seed, experiment=table, epochs=epochs) for seed, epochs in ((1, 2), (2, 5))))
    assert list(tables.table_data("p", table).numbers["epochs"]) == [3.5]


def test_training_examples_are_those_that_were_learnt_from(project):
    run = metrics("baseline", 1)
    run["config"]["train"] |= {"share": 0.1}
    store.record(run, "p")
    assert tables.table_data("p", EXPERIMENT).numbers["training_examples"].tolist() == [2900]


def test_without_a_baseline_there_is_no_share_of_it(project):
    store.record(metrics("direct-8", 1), "p")
    data = tables.table_data("p", EXPERIMENT)
    assert data.numbers["parameters_of_base"].isna().all()
    assert data.tables[BESIDE]["Parameters of base (%)"].tolist() == ["–"]


def test_a_cautious_profile_has_no_verdict_before_all_runs_are_there(project):
    write_profile(project, "c", "translation", variants=["baseline", "direct-8"])
    path = project.home / "config" / "c.yaml"
    path.write_text("cautious: true\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    runs = [metrics(variant, seed) for variant in ("baseline", "direct-8") for seed in (1, 2)]
    put(*runs[:3], profile="c")
    note = "Not judged yet: 3 of 4 runs are stored."
    assert note in tables.table_data("c", EXPERIMENT).remarks
    put(runs[3], profile="c")
    assert note not in tables.table_data("c", EXPERIMENT).remarks


def test_where_the_model_is_not_the_papers_the_table_says_which_its_numbers_are_of(recorded):
    assert Runs("p").planned(EXPERIMENT)[0].model.d_model < 256
    assert "are of its own model: d = 256, 2 + 2 layers." in tables.table_data("p", EXPERIMENT).markdown()


@pytest.mark.parametrize("load", [2.0, 0.1])
def test_times_are_shown_of_a_quiet_machine_alone(load):
    """As a method's speed they would else be that of whatever ran beside it."""
    runs = [metrics(variant, seed, task="lm") for variant in ("baseline", "direct-8") for seed in (1, 2)]
    for run in runs:
        run["cost"]["other_load"] = load
    put(*runs)
    data = tables.table_data("p", "deacon/lm")
    shown = {name for table in data.tables.values() for name in table}
    times = {f"{name} time{unit}" for name, units in {"Training": ("", " (days)"), "Inference": ("", " (ms)")}.items()
             for unit in units} | {"Tokens/s", "Training (s)"}  # fmt: skip
    assert shown & times == (times if load < 1 else set())
    assert (UNTIMED in data.notes, "Training time" in data.signatures) == (load > 1, load < 1)
    assert not any("Not measured" in note for note in data.notes)
    assert "training_days" in data.numbers  # for programs as it was measured
    assert {"Perplexity", "Convergence epoch"} <= shown


# ---- as text


HOSTILE = (
    "</title><img src=x onerror='hostile()'>", "[link](javascript:hostile)", "![a](b.txt)",
    "```{include} secret.txt\n```", "{raw}`html <b id=hostile></b>`", "| a | b |\n|---|---|",
    "*emphasis* `code` $x_{$", "\\input{secret} % & # _ ^ ~", "\x1b[31mred\x00", "&lt;b&gt; <x@y.example>",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_title_that_is_code_elsewhere_stays_text(text):
    frame = pd.DataFrame([[text, "1"]], columns=["Architecture", text])
    table = TableData("Table 1", text, text, frame, {text: frame}, {"BLEU": text}, [text], [text])
    tokens = MarkdownIt("commonmark").enable("table").parse(table.markdown())
    kinds = {token.type for token in [*tokens, *(child for token in tokens for child in token.children or ())]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "fence"}
    assert [token.type for token in tokens].count("tr_open") == 2


def test_a_score_measured_in_two_ways_has_both(recorded):
    run = metrics("direct-8", 1)
    run["scores"]["training_loss"]["signature"] = "mean over the steps of epoch 2, dropout 0.3"
    put(run)
    lines = tables.table_data("p", EXPERIMENT).markdown().splitlines()
    signatures = "how training_loss is made or mean over the steps of the best epoch, dropout 0.3"
    assert f"- Training loss: {signatures}" in lines


def test_an_audit_without_counts_of_a_paper_has_our_own_alone(monkeypatch):
    unprinted = dict.fromkeys(("at_paper_sizes", "paper", "follows"))
    monkeypatch.setattr(tables, "audit", lambda *_: {"moa-8-8": {"parameters": 2_531_200, **unprinted}})
    assert tables.parameter_table("p", "moa/translation").to_dict("list") == {"parameters": [2_531_200]}
