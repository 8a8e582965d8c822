"""The pages of a report before Sphinx: what they say, and what a report may replace."""

import html
import re
import shutil

import claimed
import pytest
from click.testing import CliRunner
from matplotlib.text import Text
from pages import draw_figures
from reported import metrics, put, routed, write_profile
from small_runs import enter
from tracked import ROOT, git_files

from headdiv.companion.command_line import cli
from headdiv.companion.experiments import catalogue
from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.claims import verdicts
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.experiments.stored_outputs import FILE
from headdiv.companion.report import figures
from headdiv.companion.report.site import build
from headdiv.companion.report.site.pages import Site, run_pages
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import DataError

FIGURES, TABLES = (git_files(f"results/*/{pattern}") for pattern in ("figures/*.svg", "tables/*.md"))


def sources(project, profile):
    """Every page of a profile, its text as a browser reads it; those of runs as what is put into their shell."""
    draw_figures(project, profile)
    site = Site(profile)
    site.write(project.home / "source")
    files = {path.stem: path.read_text(encoding="utf-8") for path in (project.home / "source").rglob("*.md")}
    runs = {page.name: "\n".join(site._parts(page).values()) for page in site.all_pages.values()}
    return {name: html.unescape(text) for name, text in (files | runs).items()}


def test_real_results_come_first_and_a_lower_score_is_no_gain(project):
    write_profile(project, "real", "translation", "lm", seeds=(1, 2, 3))
    for seed in (1, 2, 3):
        put(metrics("baseline", seed, bleu=28.0, data="multi30k"), profile="real")
        put(metrics("direct-8", seed, bleu=30.0 + seed / 10, data="multi30k"), profile="real")
        for variant, perplexity in (("baseline", 9.0), ("direct-8", 9.5 + seed / 100)):
            put(metrics(variant, seed, task="lm", perplexity=perplexity, data="wikitext2"), profile="real")
    page = sources(project, "real")["index"]
    assert page.index("1 of 1 variant is better than the baseline, none worse") < page.index("## This profile")
    assert re.search(r"\+2\.2 ± \d\.\d, better", page)
    assert re.search(r"\+0\.52 ± 0\.\d\d, worse", page)
    assert "toy corpus" not in page


def test_the_main_finding_names_the_unit_of_its_loss(project):
    write_profile(project, "p", "qa", seeds=(1, 2))
    put(*(metrics(variant, seed, task="qa", data="mine") for variant in ("baseline", "direct-8") for seed in (1, 2)))
    assert "lowest validation loss of any epoch, in nats/answer, none of 1 variant" in sources(project, "p")["index"]


def test_what_is_not_stored_is_named(project):
    write_profile(project, "some", "translation", "lm", "moa/translation")
    store.record(metrics("baseline", 1), "some")
    found = sources(project, "some")
    assert "Not run: deacon/lm, moa/translation." in found["index"]
    assert "Not run: moa/translation." in found["moa"]
    assert "runs nothing of this paper" in found["mhr"]


def test_runs_that_are_no_longer_the_profiles_are_named(project):
    write_profile(project, "p", "translation", variants=["baseline", "direct-8"])
    put(metrics("baseline", 1, data="multi30k"), metrics("baseline", 2, data="multi30k"))
    found = sources(project, "p")
    run = "p_deacon_translation_baseline_seed1"
    assert "**No longer with the profile's settings:** " in found["index"]
    assert "data.name is 'multi30k', but 'toy' in " in found["index"]
    assert "**No longer with the profile's settings:** Baseline Transformer, seed 1; Baseline" in found["deacon"]
    assert "data.name is 'multi30k', but 'toy' in " in found[run]
    put(metrics("baseline", 1), metrics("baseline", 2))
    found = sources(project, "p")
    assert not any("No longer" in found[name] for name in ("index", "deacon", run))


@pytest.mark.parametrize("file", TABLES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_table_in_git_is_what_its_runs_say(monkeypatch, file):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    monkeypatch.delenv("HEADDIV_MIRROR", raising=False)
    profile, table = file.parts[-3], file.stem.replace("_", "/", 1)
    again = f"draw it again: headdiv draw {table.partition('/')[0]} --profile {profile}"
    data = table_data(profile, table)
    assert data.markdown() == file.read_text(encoding="utf-8"), again
    assert data.csv() == file.with_suffix(".csv").read_text(encoding="utf-8"), again


@pytest.mark.slow
@pytest.mark.parametrize("file", FIGURES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_figure_in_git_has_the_words_and_numbers_of_its_runs(monkeypatch, file):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    drawn = figures.draw(file.stem, file.parts[-3])
    drawn.canvas.draw()
    texts = (text.get_text() for text in drawn.findobj(Text) if text.get_visible())
    lines = {line.strip() for text in texts for line in text.split("\n") if "$" not in line}  # formulas are paths
    stored = html.unescape(re.sub(r"</?text[^>]*>", " ", file.read_text(encoding="utf-8")))
    again = f"draw it again: headdiv draw {file.stem.partition('_')[0]} --profile {file.parts[-3]}"
    assert not sorted(line for line in lines if line not in stored), again


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["samples", "headtohead-small"])
def test_results_in_git_are_reported_without_a_corpus(tmp_path, monkeypatch, profile):
    for name in ("config", "results"):
        shutil.copytree(ROOT / name, tmp_path / name)
    enter(monkeypatch, tmp_path)
    site = Site(profile)
    for table in catalogue.tables_of(site.pages):
        assert CliRunner().invoke(cli, ["table", table, "--profile", profile], catch_exceptions=False).output
    site.write(tmp_path / "source")
    assert {path.stem for path in (tmp_path / "source" / "extra" / "figures").iterdir()} >= set(site.figures)


def test_a_figure_drawn_on_request_is_shown_with_its_experiment(project):
    write_profile(project, "m", "moa/translation", variants=["baseline", "moa-8-8"])
    put(routed("baseline", 1), routed("moa-8-8", 1), profile="m")
    (project.home / "results" / "m" / "figures").mkdir(parents=True)
    (project.home / "results" / "m" / "figures" / "moa_pruning.svg").write_text("<svg></svg>", encoding="utf-8")
    assert "figures/moa_pruning.svg" in sources(project, "m")["moa"]


def test_a_measured_claim_leads_to_the_runs_that_decided_it(project):
    write_profile(project, "p", "translation", variants=["baseline", "direct-8"])
    put(*(claimed.translation(variant, bleu=bleu) for variant, bleu in (("baseline", 28), ("direct-8", 29))))
    row = next(row for row in claims.ledger() if row.place == "Table 3, Direct-8, BLEU")
    assert [run.name for run in run_pages(row)] == ["p_deacon_translation_direct-8_seed1"]
    assert not run_pages(next(row for row in claims.ledger() if row.verdict == verdicts.FOLLOWS))


def test_a_report_replaces_a_report_or_an_empty_folder_and_nothing_else(finished, monkeypatch):
    def built(source, folder, *rest):
        (folder / "_static").mkdir(parents=True)
        (folder / "_static" / "headdiv.css").touch()
        (folder / "index.html").touch()
        (folder / "runs").mkdir()
        (folder / "runs" / "shell.html").touch()

    monkeypatch.setattr(build, "_build", built)
    folder = finished.home / "report"
    draw_figures(finished, "tiny")
    folder.mkdir()
    build.write_report("tiny", folder)
    (folder / "old.html").touch()
    killed, other = (finished.home / f".{name}.0123abcd.tmp" for name in ("report", "other"))
    for left in (killed, other):
        left.mkdir()
    build.write_report("tiny", folder)
    assert not (folder / "old.html").exists()
    assert (killed.exists(), other.exists()) == (False, True)
    (folder / "_static" / "headdiv.css").unlink()
    for other in (folder, folder / "index.html"):
        with pytest.raises(DataError, match="holds something that is no report"):
            build.write_report("tiny", other)


def test_damaged_outputs_are_named_with_what_makes_them_anew(project):
    write_profile(project, "p", "translation", variants=["baseline"])
    put(metrics("baseline", 1))
    file = metrics_path("p", "deacon/translation", "baseline", 1).with_name(FILE)
    file.write_bytes(file.read_bytes()[:-8])
    (page,) = Site("p").own_pages
    with pytest.raises(DataError, match=rf"{FILE}: damaged .*headdiv train deacon/translation baseline"):
        page.script()
