"""The store of metrics, and the report made from it."""

import re
import shutil

import pytest
from conftest import EXPERIMENT
from pages import leads_to, site, write_site
from reported import EXPERIMENTS, metrics, write_profile

from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.experiments import results as store
from headdiv.experiments.evaluation import evaluate
from headdiv.experiments.running import train
from headdiv.report import figures, page, tables


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


@pytest.mark.parametrize(
    ("variant", "seed", "section", "key"),
    [("direct-8", 1, "train", "epochs"), ("own", 1, "data", "test"), ("baseline", 2, "model", "heads")],
)
def test_runs_that_were_not_made_alike_are_refused(project, variant, seed, section, key):
    """As where a profile was changed and a part of it run again."""
    store.record(metrics("baseline", 1), "p")
    other = metrics(variant, seed)
    before = other["config"].setdefault(section, {}).get(key)
    one = store.metrics_path("p", EXPERIMENT, "baseline", 1)
    if before is None:
        first = read_json(one)
        first["config"].setdefault(section, {})[key] = before
        write_json(one, first)
    other["config"][section] |= {key: 77, "a key that came later": 1}
    store.record(other, "p")
    with pytest.raises(DataError) as found:
        store.stored("p", EXPERIMENT)
    there = store.metrics_path("p", EXPERIMENT, variant, seed)
    assert str(found.value) == (
        f"{there}: {section}.{key} is 77, but {before!r} in {one}; remove the "
        "older of the two, and `snakemake reproduce-all --config profile=p` makes it anew"
    )


def test_variants_may_differ_in_size_and_runs_in_when_they_are_saved(project):
    first, other = metrics("baseline", 1), metrics("direct-8", 1)
    first["config"]["model"], other["config"]["model"] = {"heads": 8}, {"heads": 4}
    first["config"]["train"]["checkpoint_seconds"], other["config"]["train"]["checkpoint_seconds"] = 60, 600
    store.record(first, "p")
    store.record(other, "p")
    assert len(store.stored("p", EXPERIMENT)) == 2


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


def test_a_report_is_written_whole_or_not_at_all(finished):
    output = finished.home / "report"
    with pytest.raises(DataError) as found:
        page.write_report("tiny", output)
    path = finished.home / "results" / "tiny" / "figures" / "deacon_translation_curves.svg"
    assert str(found.value) == (
        f"{path}: no such figure; `headdiv figure deacon_translation_curves {path} --profile tiny` draws it"
    )
    assert not output.exists()


def test_a_report_of_nothing_says_how_to_make_results(project):
    with pytest.raises(DataError) as found:
        page.write_report("empty", project.home / "report")
    assert str(found.value) == (
        f"{project.home}/results/empty/deacon/translation: no stored results; "
        "`snakemake reproduce-all --config profile=empty` makes them"
    )


def test_a_report_replaces_a_report_and_nothing_else(finished):
    folder = write_site(finished, "tiny")
    (folder / "old.html").touch()
    page.write_report("tiny", folder)
    assert not (folder / "old.html").exists()

    (folder / "headdiv.css").unlink()
    for other in (folder, folder / "index.html"):
        with pytest.raises(DataError) as found:
            page.write_report("tiny", other)
        assert str(found.value) == (
            f"{other}: holds something that is no report; expected an empty folder, a report, or none"
        )
    assert (folder / "index.html").is_file()
    empty = finished.home / "empty"
    empty.mkdir()
    assert page.write_report("tiny", empty) == empty / "index.html"
    assert (empty / "index.html").is_file()


def test_the_report_needs_nothing_but_itself(finished):
    companions = finished.home / "results" / "tiny" / "companions"
    companions.mkdir(parents=True)
    for name in ("deacon", "explore"):
        (companions / f"{name}.html").write_text(f"<p>{name}</p>", encoding="utf-8")
    folder = shutil.move(write_site(finished, "tiny"), finished.home / "elsewhere")
    pages = site(folder)
    for told in pages.values():
        for address in (*told.loads, *told.links):
            if (found := leads_to(told, address)) is None:
                assert address in told.links  # a reader may follow it; nothing is loaded
                assert address.startswith("https://doi.org/10.")
                continue
            file, anchor = found
            assert file.is_file(), f"{told.path}: {address}"
            assert file.is_relative_to(folder.resolve()), f"{told.path}: {address}"
            assert not anchor or anchor in pages[file.relative_to(folder.resolve()).as_posix()].ids, address
    for name, page_of_it in {"deacon": "deacon.html", "explore": "index.html"}.items():
        assert (folder / "companions" / f"{name}.html").read_text() == f"<p>{name}</p>"
        assert f"companions/{name}.html" in pages[page_of_it].links
    assert not re.search(r"@import|url\(|https?:", (folder / "headdiv.css").read_text())
    assert not re.search(r"https?:|fetch|import\b", (folder / "headdiv.js").read_text())


def test_what_a_configuration_says_is_escaped(finished):
    finished.write_profile("tiny", {"title": "<script>alert(1)</script>"})
    for told in site(write_site(finished, "tiny")).values():
        assert "<script>alert" not in told.source
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in told.source


def test_stored_metrics_of_a_real_run_make_a_table(finished):
    store.record(evaluate(train(finished.config("direct-8", seed=2))), "tiny")
    assert list(tables.results_table("tiny", EXPERIMENT)["seeds"]) == [1, 1]  # the profile names no seed 2
    finished.write_profile(top={"seeds": [1, 2]})
    table = tables.results_table("tiny", EXPERIMENT).set_index("variant")
    assert list(table["seeds"]) == [1, 2]
    assert table.loc["direct-8", "bleu_sd"] >= 0
