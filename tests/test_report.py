"""Tables, figures and the report, from metrics written by hand and from those of a tiny run."""

import math
import re
import statistics
from html.parser import HTMLParser

import pandas as pd
import pytest
from conftest import EXPERIMENT
from matplotlib.figure import Figure

from headdiv.errors import ConfigError, DataError
from headdiv.evaluation import evaluate
from headdiv.report import figures, illustrations, page, store, tables
from headdiv.training import train

SCORES = ["training_loss", "validation_accuracy", "bleu"]


def metrics(variant, seed, *, parameters=1000, epochs=2, data="toy", **values):
    """As `evaluate` gives them; scores are 1, 2, 3 where nothing is told."""
    numbers = dict(zip(SCORES, (1.0, 2.0, 3.0), strict=True)) | values
    curve = [
        {"epoch": n, "training_loss": 5.0 / n + seed, "validation_accuracy": 10.0 * n} for n in range(1, epochs + 1)
    ]
    weights = {
        f"{kind}.0": {"place": f"{kind} 1", "cosines": [[1.0, 0.5], [0.5, 1.0]], "mean_absolute_cosine": 0.5}
        for kind in ("encoder", "cross")
    }
    return {
        "paper": "deacon",
        "task": "translation",
        "variant": variant,
        "seed": seed,
        "hash": f"hash-of-{variant}-{seed}",
        "config": {"data": {"name": data}, "model": {"d_model": 16}, "train": {"tokens_per_batch": 1500}},
        "parameters": parameters,
        "scores": {key: {"value": v, "unit": "u", "signature": f"how {key} is made"} for key, v in numbers.items()},
        "curve": curve,
        "heads": {"pca_weights": {} if variant == "baseline" else weights},
        "cost": {"training_seconds": 10.0 * seed, "target_tokens_per_second": 1000.0 * seed, "peak_memory_mib": 5.0},
        "data": {"train": {"pairs": 29000}, "test": {"pairs": 1000}},
        "provenance": {"commit": "abc123", "device": "a CPU", "threads": 2, "packages": {"torch": "2.6"}},
    }


@pytest.fixture(autouse=True)
def profiles(project):
    """Two seeds of the paper's variants and of one more; and the same under a name without results."""
    for name in ("p", "empty"):
        own = {"own": {"name": "deacon", "architecture": "direct", "m": 2}}
        project.write_profile(name, {"seeds": [1, 2]}, variants=None, define=own)


@pytest.fixture
def recorded(project, profiles):
    """Two seeds of the baseline and of Direct-8, one run of a variant that the paper does not have."""
    for told in (
        metrics("own", 1, parameters=1500),
        metrics("direct-8", 1, parameters=1100, bleu=10.0),
        metrics("direct-8", 2, parameters=1100, bleu=13.0),
        metrics("baseline", 1, bleu=20.0),
        metrics("baseline", 2, bleu=21.0),
    ):
        store.record(told, "p")
    return project


# ---- the store


def test_metrics_lie_where_the_pipeline_looks_for_them(recorded):
    path = recorded.home / "results" / "p" / "deacon" / "translation" / "direct-8" / "seed2" / "metrics.json"
    assert store.metrics_path("p", EXPERIMENT, "direct-8", 2) == path
    assert path.is_file()
    assert [(m["variant"], m["seed"]) for m in store.stored("p", EXPERIMENT)] == [
        ("baseline", 1),
        ("baseline", 2),
        ("direct-8", 1),
        ("direct-8", 2),
        ("own", 1),
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda: store.stored("empty", EXPERIMENT),
        lambda: tables.results_table("empty", EXPERIMENT),
        lambda: tables.as_markdown("empty", EXPERIMENT),
        lambda: figures.show_figure("deacon_figure6", "empty"),
        lambda: figures.show_figure("deacon_translation_curves", "empty"),
    ],
)
def test_missing_results_say_how_to_make_them(project, call):
    with pytest.raises(DataError) as found:
        call()
    assert str(found.value) == (
        f"{project.home}/results/empty/deacon/translation: no stored results; "
        "`snakemake reproduce-all --config profile=empty` makes them"
    )


# ---- tables


def test_means_and_standard_deviations_over_seeds(recorded):
    table = tables.results_table("p", EXPERIMENT).set_index("variant")
    assert list(table.index) == ["baseline", "direct-8", "own"]  # the paper's order, then one's own
    assert list(table["label"]) == ["Baseline Transformer", "Direct-8", "own"]
    assert list(table["seeds"]) == [2, 2, 1]
    assert (table["epochs"] == 2).all()
    assert (table["training_pairs"] == 29000).all()
    assert table.loc["direct-8", "bleu"] == 11.5
    assert table.loc["direct-8", "bleu_sd"] == pytest.approx(statistics.stdev([10.0, 13.0]))
    assert table.loc["direct-8", "training_loss_sd"] == 0
    assert math.isnan(table.loc["own", "bleu_sd"])  # one seed has none
    assert table.loc["direct-8", "bleu_paper"] == 28.9
    assert math.isnan(table.loc["own", "bleu_paper"])
    assert list(table["parameters"]) == [1000, 1100, 1500]
    assert list(table["parameters_of_base"]) == pytest.approx([100, 110, 150])
    assert table.loc["direct-8", "parameters_of_base_paper"] == 100.07
    assert list(table["tokens_per_second"]) == [1500, 1500, 1000]
    assert list(table["training_seconds"]) == [15, 15, 10]


def test_without_a_baseline_there_is_no_share_of_it(project):
    store.record(metrics("direct-8", 1), "p")
    table = tables.results_table("p", EXPERIMENT)
    assert table["parameters_of_base"].isna().all()
    assert tables.display_table("p", EXPERIMENT)["Parameters of base (%)"].tolist() == ["–"]


def test_the_table_for_reading_is_rounded_as_the_paper_rounds(recorded):
    shown = tables.display_table("p", EXPERIMENT).set_index("Architecture")
    row = shown.loc["Direct-8"]
    assert row["Parameters"] == "1,100 ± 0"
    assert row["Parameters, paper"] == "5,373,616"
    assert row["Training loss (nats/token)"] == "1.0000 ± 0.0000"
    assert row["Training loss, paper"] == "0.8031"
    assert row["BLEU"] == "11.5 ± 2.1"
    assert row["BLEU, paper"] == "28.9"
    assert shown.loc["own"]["BLEU"] == "3.0"
    assert shown.loc["own"]["BLEU, paper"] == "–"


def test_markdown_says_plainly_that_a_toy_is_a_toy(recorded):
    text = tables.as_markdown("p", EXPERIMENT)
    lines = text.splitlines()
    assert lines[0] == "# Table 3: Machine translation, English to German (Multi30k)"
    assert lines[2] == (
        "Profile p: toy, 29,000 training pairs, 1,000 test pairs, 2 epochs of batches of 1,500 target tokens, d = 16, "
        "seeds 1, 2, a CPU, 2 thread(s). "
        "**A toy corpus: this shows that the pipeline works and reproduces nothing of the paper.**"
    )
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert all(row.count("|") == rows[0].count("|") for row in rows)
    assert "- bleu: how bleu is made" in lines
    assert any("The paper names its data WMT-16" in line for line in lines)
    assert text.endswith("\n")
    assert tables.show_table("p", EXPERIMENT).data in text


def test_markdown_of_a_real_run_does_not_speak_of_toys(project):
    store.record(metrics("baseline", 1, data="multi30k"), "p")
    text = tables.as_markdown("p", EXPERIMENT)
    assert "Profile p: multi30k" in text
    assert "seed 1," in text
    assert "toy" not in text.lower()


def test_the_table_for_programs_comes_back(recorded, tmp_path):
    csv, markdown = tmp_path / "t" / "a.csv", tmp_path / "t" / "a.md"
    tables.write_tables("p", EXPERIMENT, csv, markdown)
    pd.testing.assert_frame_equal(pd.read_csv(csv), tables.results_table("p", EXPERIMENT))
    assert markdown.read_text() == tables.as_markdown("p", EXPERIMENT)


@pytest.mark.parametrize("experiment", ["deacon", "deacon/"])
def test_an_experiment_without_a_task_is_named(recorded, experiment):
    with pytest.raises(ConfigError, match=r"^task '' of deacon is not known; known here: translation$"):
        tables.results_table("p", experiment)


# ---- figures


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_is_written_and_is_the_same_every_time(recorded, tmp_path, name):
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        paths = [folder / f"{name}{ending}" for ending in (".png", ".svg", ".pdf")]
        figures.write_figure(name, "p", *paths)
        contents.append([path.read_bytes() for path in paths])
        assert len(list(folder.iterdir())) == 3
    assert contents[0] == contents[1]
    png, svg, pdf = contents[0]
    assert png.startswith(b"\x89PNG")
    assert svg.startswith(b"<?xml")
    assert b"<svg" in svg
    assert pdf.startswith(b"%PDF")
    assert b"toy, " in svg or b": toy" in svg  # the data is named in the picture


def test_figure_6_shows_the_variants_that_are_there_with_their_first_seed(recorded):
    figure = figures.show_figure("deacon_figure6", "p")
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert "Direct-8\ncomponent" in labels
    assert not any("Average" in label for label in labels)
    assert [ax.get_title() for ax in figure.axes[:2]] == ["encoder 1\noff-diagonal 0.50", "cross 1\noff-diagonal 0.50"]
    assert figure.get_suptitle().endswith("toy, 2 epochs, seed 1")


def test_figure_6_without_its_variants_says_so(project):
    store.record(metrics("baseline", 1), "p")
    with pytest.raises(DataError) as found:
        figures.show_figure("deacon_figure6", "p")
    assert str(found.value) == (
        "Figure 6 needs one of direct-8, average-8, nonlinear-8 among the stored runs of profile p"
    )


def test_curves_are_means_over_seeds(recorded):
    figure = figures.show_figure("deacon_translation_curves", "p")
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["Baseline Transformer", "Direct-8", "own"]
    assert list(left.lines[0].get_ydata()) == [6.5, 4.0]  # seeds 1 and 2
    assert list(left.lines[2].get_ydata()) == [6.0, 3.5]
    assert list(right.lines[0].get_ydata()) == [10, 20]
    assert (left.get_ylabel(), right.get_ylabel()) == ("training loss (nats/token)", "validation token accuracy (%)")


def test_figures_that_cannot_be_drawn_are_named(recorded, tmp_path):
    with pytest.raises(DataError) as found:
        figures.show_figure("deacon_figure7", "p")
    assert str(found.value) == (
        "figure 'deacon_figure7' is not known; there are: deacon_figure6, deacon_translation_curves"
    )
    with pytest.raises(DataError) as found:
        figures.write_figure("deacon_figure6", "p", tmp_path / "a.png", tmp_path / "a.jpeg")
    assert str(found.value) == f"{tmp_path}/a.jpeg: a figure is written as one of .png, .svg, .pdf"
    assert not (tmp_path / "a.png").exists()


def test_illustrations_are_figures():
    for figure in (illustrations.gha_convergence(k=4, m=3), illustrations.deacon_geometry()):
        assert isinstance(figure, Figure)
        figure.canvas.draw()
    convergence = illustrations.gha_convergence(k=4, m=3)
    first = convergence.axes[0].lines[0].get_ydata()
    assert first[-1] == pytest.approx(1, abs=1e-6)


# ---- the report


class Addresses(HTMLParser):
    """What a browser would load or lead to that is not in the page itself, and all text."""

    def __init__(self):
        super().__init__()
        self.asked, self.text, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        addresses = [v for key, v in attributes if key in ("src", "href", "xlink:href", "action", "data")]
        self.asked += [address for address in addresses if not address.startswith(("#", "data:image/png;base64,"))]
        self.ids += [value for key, value in attributes if key == "id"]
        assert tag not in ("script", "link", "iframe", "img")

    def handle_data(self, data):
        self.text.append(data)


def parsed(path):
    text = path.read_text(encoding="utf-8")
    found = Addresses()
    found.feed(text)
    assert not re.search(r"@import|url\(\s*['\"]?https?:", text)
    return found, text


def test_the_report_needs_nothing_but_itself(finished):
    folder = finished.home / "results" / "tiny"
    for name in figures.FIGURES:
        figures.write_figure(name, "tiny", folder / "figures" / f"{name}.svg")
    page.write_report("tiny", folder / "report.html")
    found, text = parsed(folder / "report.html")
    assert found.asked == []
    assert text.count("<table") == 2
    assert text.count("<svg") == 2
    assert "<?xml" not in text
    assert {"deacon_translation", *figures.FIGURES} <= set(found.ids)
    said = "".join(found.text)
    assert "Table 3: Machine translation, English to German (Multi30k)" in said
    assert "A toy corpus: this shows that the pipeline works and reproduces nothing of the paper." in said
    assert "**" not in said
    for told in store.stored("tiny", EXPERIMENT):
        assert told["hash"] in said
        assert told["scores"]["bleu"]["signature"] in said
    assert "5,373,616" in said
    assert "The companion notebook" not in said
    (folder / "companions").mkdir()
    (folder / "companions" / "deacon.html").touch()
    page.write_report("tiny", folder / "report.html")
    found, _ = parsed(folder / "report.html")
    assert found.asked == ["companions/deacon.html"]


def test_a_report_without_its_figures_says_how_to_draw_them(finished):
    output = finished.home / "report.html"
    with pytest.raises(DataError) as found:
        page.write_report("tiny", output)
    path = finished.home / "results" / "tiny" / "figures" / "deacon_figure6.svg"
    assert str(found.value) == (
        f"{path}: no such figure; `headdiv figure deacon_figure6 {path} --profile tiny` draws it"
    )
    assert not output.exists()


def test_what_a_configuration_says_is_escaped(finished):
    finished.write_profile("tiny", {"title": "<script>alert(1)</script>"})
    folder = finished.home / "results" / "tiny"
    for name in figures.FIGURES:
        figures.write_figure(name, "tiny", folder / "figures" / f"{name}.svg")
    page.write_report("tiny", folder / "report.html")
    parsed(folder / "report.html")  # finds no <script>


def test_stored_metrics_of_a_real_run_make_a_table(finished):
    store.record(evaluate(train(finished.config("direct-8", seed=2))), "tiny")
    assert list(tables.results_table("tiny", EXPERIMENT)["seeds"]) == [1, 1]  # the profile names no seed 2
    finished.write_profile(top={"seeds": [1, 2]})
    table = tables.results_table("tiny", EXPERIMENT).set_index("variant")
    assert list(table["seeds"]) == [1, 2]
    assert table.loc["direct-8", "bleu_sd"] >= 0
