"""The report of a profile: the pages that Sphinx makes of what is stored, and what a report may replace."""

import html
import re
import shutil

import pytest
from conftest import EXPERIMENT, Project
from matplotlib.text import Text
from reported import EXPERIMENTS, assert_readable, metrics, put, store_all, write_profile
from surroundings import enter
from tracked import ROOT, git_files

from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report import figures
from headdiv.companion.report.draw import draw_paper
from headdiv.companion.report.site import build
from headdiv.core.errors import DataError
from headdiv.core.files import write_json, write_text

FIGURES = git_files("results/*/figures/*.svg")
TITLE = """--config *profile*="p", <b>'p'</b>... $x$ `a` [b](c) {d}`e`"""
COMPANION = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": "# Companion\n\nInline $x^2$ and\n\n$$ \\sqrt{\\xi} $$"},
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {},
            "source": "frame",
            "outputs": [
                {
                    "output_type": "execute_result",
                    "execution_count": 1,
                    "metadata": {},
                    "data": {
                        "text/html": "<table><tr><td>a cell</td></tr></table>",
                        "application/vnd.jupyter.widget-view+json": {"model_id": "a", "version_major": 2},
                        "text/plain": "a",
                    },
                },
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"text/markdown": "| a | b |\n|---|---|\n| 1 | 2 |\n"},
                },
            ],
        },
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def report(prepared_home, tmp_path_factory):
    """The report of a profile of which two seeds of one variant, and a baseline of everything are stored."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter(patch, shutil.copytree(prepared_home, tmp_path_factory.mktemp("site") / "home"))
        write_profile(Project(home), "p", *EXPERIMENTS, title=TITLE)
        store_all("p", *(metrics("direct-8", seed, bleu=3.0 + seed) for seed in (1, 2)), metrics("baseline", 1))
        draw_paper("p", "deacon")
        for name in ("deacon", "explore"):
            write_json(home / "results" / "p" / "companions" / f"{name}.ipynb", COMPANION)
        write_json(metrics_path("p", EXPERIMENT, "direct-8", 1).with_name("run.ipynb"), COMPANION)
        yield shutil.move(build.write_report("p").parent, home / "elsewhere")


def page(report, name):
    return (report / f"{name}.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_paper_has_a_page_with_its_tables_figures_runs_and_companion(report):
    deacon = page(report, "deacon")
    for number in (3, 4, 5, 6):
        assert f"Table {number}: " in deacon
    assert "deacon_translation_curves.svg" in deacon
    assert 'href="companions/deacon.html"' in deacon
    assert 'href="runs/deacon_translation_direct-8_seed_1.html"' in deacon
    companion = page(report, "companions/deacon")
    assert r"\sqrt{\xi}" in companion
    assert "a cell" in companion
    assert re.search(r"<td>\s*(<p>)?1", companion)  # a table of Markdown is one
    assert 'href="companions/explore.html"' in page(report, "index")


@pytest.mark.slow
def test_a_title_is_text_and_every_link_leads_somewhere(report):
    assert TITLE in html.unescape(page(report, "index"))
    for path in report.rglob("*.html"):
        for address in re.findall(r'(?:href|src)="([^"#:]+)"', path.read_text(encoding="utf-8")):
            assert (path.parent / address.partition("?")[0]).is_file(), f"{path}: {address}"


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
    assert_readable(drawn)  # at the end, since it makes ticks beyond the axes


def test_a_paper_without_anything_stored_has_no_page(project):
    write_profile(project, "m", "translation", "moa/translation")
    put(metrics("baseline", 1), profile="m")
    write_text(project.home / "results" / "m" / "figures" / "moa_mlm_pruning.svg", "<svg></svg>")  # drawn on request
    build.write_sources("m", project.home / "source")
    assert not (project.home / "source" / "deacon.md").exists()
    assert "figures/moa_mlm_pruning.svg" in (project.home / "source" / "moa.md").read_text()
    index = (project.home / "source" / "index.md").read_text()
    assert "1 of " in index
    assert "\nmoa\n" in index
    assert "\ndeacon\n" not in index


def test_a_report_replaces_the_one_before_whole(finished, monkeypatch):
    monkeypatch.setattr(build, "build_site", lambda source, folder: write_text(folder / "index.html", ""))
    folder = finished.home / "results" / "tiny" / "report"
    with pytest.raises(DataError, match=r"results/tiny: no tables.*; `headdiv draw deacon --profile tiny` draws"):
        build.write_report("tiny")
    write_text(finished.home / "results" / "tiny" / "tables" / "deacon_translation.md", "# A table\n")
    build.write_report("tiny")
    (folder / "old.html").touch()
    killed, other = (folder.with_name(f".{name}.0123abcd.tmp") for name in ("report", "other"))
    for left in (killed, other):
        left.mkdir()
    build.write_report("tiny")
    assert not (folder / "old.html").exists()
    assert (killed.exists(), other.exists()) == (False, True)
