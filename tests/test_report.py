"""The store of metrics, and the report made from it."""

import re
from html.parser import HTMLParser

import pytest
from conftest import EXPERIMENT
from reported import EXPERIMENTS, metrics, store_all, write_profile

from headdiv.errors import DataError
from headdiv.evaluation import evaluate
from headdiv.files import read_json, write_json
from headdiv.report import figures, page, store, tables
from headdiv.training import train


@pytest.fixture(autouse=True)
def profiles(project):
    """The same profile with results and without, and one of a single experiment."""
    for name in ("p", "empty"):
        write_profile(project, name)
    write_profile(project, "alone", "lm")


# ---- the store


def test_metrics_lie_where_the_pipeline_looks_for_them(project):
    for variant, seed in (("own", 1), ("direct-8", 1), ("direct-8", 2), ("baseline", 1), ("baseline", 2)):
        store.record(metrics(variant, seed), "p")
    path = project.home / "results" / "p" / "deacon" / "translation" / "direct-8" / "seed2" / "metrics.json"
    assert store.metrics_path("p", EXPERIMENT, "direct-8", 2) == path
    assert path.is_file()
    assert [(m["variant"], m["seed"]) for m in store.stored("p", EXPERIMENT)] == [
        ("baseline", 1),
        ("baseline", 2),
        ("direct-8", 1),
        ("direct-8", 2),
        ("own", 1),
    ]


@pytest.mark.parametrize("task", EXPERIMENTS)
@pytest.mark.parametrize(
    "call",
    [
        lambda task: store.stored("empty", f"deacon/{task}"),
        lambda task: tables.results_table("empty", f"deacon/{task}"),
        lambda task: tables.as_markdown("empty", f"deacon/{task}"),
        lambda task: figures.draw(f"deacon_{task}_curves", "empty"),
    ],
)
def test_missing_results_say_how_to_make_them(project, call, task):
    with pytest.raises(DataError) as found:
        call(task)
    assert str(found.value) == (
        f"{project.home}/results/empty/deacon/{task}: no stored results; "
        "`snakemake reproduce-all --config profile=empty` makes them"
    )


@pytest.mark.parametrize(
    ("content", "told"), [({"format": 1}, "1"), ({}, "None"), ([1], "None"), ({"format": 2}, "2")], ids=str
)
def test_metrics_of_another_format_are_refused(project, content, told):
    store.record(metrics("direct-8", 1), "p")
    path = store.metrics_path("p", EXPERIMENT, "baseline", 2)
    write_json(path, content)
    with pytest.raises(DataError) as found:
        tables.as_markdown("p", EXPERIMENT)
    assert str(found.value) == (
        f"{path}: metrics of format {told}, expected 3; remove the file, and "
        "`snakemake reproduce-all --config profile=p` makes it anew"
    )


def test_what_a_run_put_out_comes_to_lie_beside_its_metrics(project):
    write_json(project.home / "work" / "a" / "outputs-b.json", ["Ein Hund.", "Eine Katze."])
    path = store.record(metrics("baseline", 1) | {"outputs": "work/a/outputs-b.json"}, "p")
    assert read_json(path.with_name("outputs.json")) == ["Ein Hund.", "Eine Katze."]
    path = store.record(metrics("baseline", 1, task="lm"), "p")
    assert [file.name for file in path.parent.iterdir()] == ["metrics.json"]


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


def report(project, profile):
    """Draw what the report needs and write it: its folder."""
    from headdiv.experiments import Runs

    folder = project.home / "results" / profile
    runs = ((f"{config.paper}/{config.task}", config.variant) for config in Runs(profile).all())
    for name in figures.figures_of(runs):
        figures.write_figure(name, profile, folder / "figures" / f"{name}.svg")
    page.write_report(profile, folder / "report.html")
    return folder


def test_the_report_needs_nothing_but_itself(finished):
    folder = report(finished, "tiny")
    found, text = parsed(folder / "report.html")
    assert found.asked == []
    assert text.count("<table") == 3  # results, further measures, provenance
    assert text.count("<svg") == 2
    assert "<?xml" not in text
    assert {"deacon_translation", "deacon_figure6", "deacon_translation_curves"} <= set(found.ids)
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


def test_a_report_has_every_table_and_figure_of_its_profile(project):
    store_all("p", metrics("direct-8", 1))
    found, text = parsed(report(project, "p") / "report.html")
    sections = [name for name in found.ids if name in {f"deacon_{task}" for task in (*EXPERIMENTS, "sources")}]
    assert sections == ["deacon_translation", "deacon_summarisation", "deacon_qa", "deacon_sources", "deacon_lm"]
    assert {name for name in figures.FIGURES if name.startswith("deacon_")} <= set(found.ids)
    said = "".join(found.text)
    for number in (2, 3, 4, 5, 6):
        assert f"Table {number}: " in said
    assert text.count("<table") == 4 * 3 + 1
    assert text.count("Where the numbers come from") == 4


def test_a_report_of_one_experiment_has_nothing_of_the_others(project):
    store.record(metrics("baseline", 1, task="lm"), "alone")
    found, text = parsed(report(project, "alone") / "report.html")
    said = "".join(found.text)
    assert re.findall(r"Table \d: ", said) == ["Table 2: ", "Table 6: "]
    assert text.count("<svg") == 1


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
    parsed(report(finished, "tiny") / "report.html")  # finds no <script>


def test_stored_metrics_of_a_real_run_make_a_table(finished):
    store.record(evaluate(train(finished.config("direct-8", seed=2))), "tiny")
    assert list(tables.results_table("tiny", EXPERIMENT)["seeds"]) == [1, 1]  # the profile names no seed 2
    finished.write_profile(top={"seeds": [1, 2]})
    table = tables.results_table("tiny", EXPERIMENT).set_index("variant")
    assert list(table["seeds"]) == [1, 2]
    assert table.loc["direct-8", "bleu_sd"] >= 0
