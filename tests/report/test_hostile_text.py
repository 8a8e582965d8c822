"""Text of profiles, results and data is text in the report: it neither becomes HTML nor MyST, wherever it stands."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from browser import CHROMIUM, Browser
from conftest import EXPERIMENT
from markdown_it import MarkdownIt
from pages import draw_figures
from reported import renew
from test_repository import ROOT

from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.scale import scale
from headdiv.companion.report.site.build import write_report
from headdiv.companion.report.site.markup import interactive, marked
from headdiv.companion.report.site.pages import Site
from headdiv.core.files import write_text

sys.path.append(str(Path(__file__).parents[1] / "torture"))
from hostile import CODE, TAGS, put, texts

SECRET = "only-in-a-file-that-no-page-names"
ALL = texts()
everywhere = " ".join(ALL)


def test_marked_text_has_two_marks_alone():
    assert marked("a **b** `c`") == "a <strong>b</strong> <code>c</code>"
    assert "<script" not in marked("**<script>** `<script>` <script>")


def hostile_project(project):
    """A profile and its results with all hostile texts wherever text may stand."""
    put(project.home, everywhere)
    renew(metrics_path("p", EXPERIMENT, "baseline", 1).with_name("outputs.json"), [everywhere, *ALL])
    attention = {"encoder 1": {"keys": ALL[:2], "queries": ALL[:2], "weights": [[[0.5, 0.5], [0.5, 0.5]]]}}
    draw_figures(project, "p")
    shown = {"rows": [[text, text] for text in ALL], "columns": [everywhere, "output"], "attention": attention}
    renew(metrics_path("p", EXPERIMENT, "direct-8", 1).with_name("examples.json"), shown)


def test_no_source_of_a_page_holds_hostile_text_as_it_is(project):
    hostile_project(project)
    site = Site("p")
    site.write(project.home / "source")
    of_repository = {path.name for path in ROOT.glob("*.md")}  # documents, which the site shows as they are
    pages = {
        path: path.read_text(encoding="utf-8")
        for path in (project.home / "source").glob("**/*.md")
        if path.parent.name in ("source", "papers") and path.name not in of_repository
    }
    assert any("hostile" in text for text in pages.values())
    for path, text in pages.items():
        fences = {token.info for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"}
        assert fences <= {"{raw} html", "{toctree}", "{eval-rst}"}, path
    parts = {page.name: " ".join(site._parts(page).values()) for page in site.all_pages.values()}
    assert not [name for name, text in (pages | parts).items() if CODE.search(text)]
    script = next(iter(site.all_pages.values())).script()
    assert json.loads(re.fullmatch(r'headdivRun\("[^"]+", (.*)\);\n', script)[1])
    assert scale([page.run for page in site.own_pages], "p").count(ALL[0])  # text, as long as it is no page


def test_a_table_escapes_its_headings_too():
    assert "<script>" not in interactive(pd.DataFrame([[ALL[0]]], columns=[ALL[0]]), ALL[2])


@pytest.mark.slow
def test_nothing_hostile_is_executed_or_included_in_a_site(project, tmp_path):
    hostile_project(project)
    write_text(project.home / "secret.txt", SECRET)
    folder = write_report("p", project.home / "report").parent
    for path in folder.rglob("*.html"):
        source = path.read_text(encoding="utf-8")
        assert SECRET not in source, path
        assert not TAGS.search(source), path
    if CHROMIUM:
        browser = Browser(tmp_path / "chromium")
        for path in sorted(folder.rglob("*.html")):
            browser.open(path.as_uri())
            browser.until("!document.querySelector('table[data-choices]:not(.dataTable)')")
            assert browser.evaluate("window.hostile === undefined && !document.getElementById('hostile')"), path
            assert not [said for said in browser.complaints if "secret" not in said], path
        browser.close()
