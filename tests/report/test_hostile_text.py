"""Text of profiles, results and data is text in the report: it neither becomes HTML nor MyST, wherever it stands."""

import json
import re
import shutil

import pandas as pd
import pytest
from browser import CHROMIUM, Browser
from conftest import EXPERIMENT, Project
from markdown_it import MarkdownIt
from pages import draw_figures
from reported import measures, metrics, put, renew, write_profile
from small_runs import enter
from test_repository import ROOT

from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.scale import scale
from headdiv.companion.report.site.build import write_report
from headdiv.companion.report.site.markup import fenced, html, interactive, marked, menu, myst, picture
from headdiv.companion.report.site.pages import Site
from headdiv.core.files import write_text

SECRET = "only-in-a-file-that-no-page-names"
HOSTILE = [
    "<script>window.hostile = 1</script>",
    "</title></div><img src=x onerror='window.hostile = 1'>",
    "\"><svg onload=\"window.hostile = 1\">",
    "```{include} secret.txt\n```",
    "\n\n```{raw} html\n<b id=hostile></b>\n```\n\n",
    "````\n```\n:::{raw} html\n<b id=hostile></b>\n:::",
    "{raw}`html <b id=hostile></b>` {download}`secret.txt` {doc}`secret`",
    "[link](javascript:hostile) ![image](secret.txt) <javascript:hostile>",
    "# heading\n\n- list\n\n1. list\n\n| a | b |\n|---|---|\n\n    code",
    "*emphasis* **bold** __bold__ `code` $x$ $$y$$ ~~gone~~ {{ profile }} {% include 'secret.txt' %}",
    "+++\n---\n===\n(target)=\n% comment\n[^note]: note",
    "--> ]]> <!-- &amp; &lt;script&gt; \\ \x00\x1b",
]  # fmt: skip
everywhere = " ".join(HOSTILE)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_at_a_border_comes_out_as_the_same_text(text):
    plain = " ".join(re.sub("[\x00\x1b]", "\ufffd", text).split())
    tokens = MarkdownIt("commonmark").parse(f"before {myst(text)} after")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in tokens[1].children} <= {"text", "text_special"}
    read = "".join(child.content for child in tokens[1].children)
    assert read == f"before {plain} after"
    assert "<" not in html(text)
    assert not re.search("[<>`\n]", menu(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_block_of_html_ends_where_it_should(text):
    block = fenced(picture(text, text, text))
    (token,) = MarkdownIt("commonmark").parse(block)
    assert token.type == "fence"
    assert token.info == "{raw} html"


def test_marked_text_has_two_marks_alone():
    assert marked("a **b** `c`") == "a <strong>b</strong> <code>c</code>"
    assert "<script" not in marked("**<script>** `<script>` <script>")


def hostile_run(variant, seed):
    """A run with hostile text in every field of its result that is text and that nothing is looked up by."""
    run = metrics(variant, seed) | {"heads": measures(seed), "hash": everywhere}
    run["config"]["data"]["name"] = everywhere
    run["config"]["train"]["remark"] = everywhere
    for score in run["scores"].values():
        score |= {"unit": everywhere, "signature": everywhere}
    run["provenance"] |= dict.fromkeys(("commit", "device", "cpu", "system", "python", "instruction_set"), everywhere)
    run["provenance"]["packages"] = {everywhere: everywhere}
    run["data"]["refused"] = {everywhere: 3}
    run["data"][everywhere] = everywhere
    return run


def hostile_project(project):
    """A profile and its results with hostile text wherever text may stand."""
    write_profile(project, "p", "translation", seeds=(1, 2), variants=["baseline", "direct-8"], title=everywhere)
    put(*(hostile_run(variant, seed) for variant in ("baseline", "direct-8") for seed in (1, 2)))
    renew(metrics_path("p", EXPERIMENT, "baseline", 1).with_name("outputs.json"), [everywhere, *HOSTILE])
    attention = {"encoder 1": {"keys": HOSTILE[:2], "queries": HOSTILE[:2], "weights": [[[0.5, 0.5], [0.5, 0.5]]]}}
    draw_figures(project, "p")
    shown = {"rows": [[text, text] for text in HOSTILE], "columns": [everywhere, "output"], "attention": attention}
    renew(metrics_path("p", EXPERIMENT, "direct-8", 1).with_name("examples.json"), shown)


def test_no_source_of_a_page_holds_hostile_text_as_it_is(project):
    hostile_project(project)
    site = Site("p")
    site.write(project.home / "source")
    texts = {path: path.read_text(encoding="utf-8") for path in (project.home / "source").glob("**/*.md")}
    of_repository = {path.name for path in ROOT.glob("*.md")}  # documents, which the site shows as they are
    texts = {
        path: text
        for path, text in texts.items()
        if path.parent.name in ("source", "papers") and path.name not in of_repository
    }
    assert any("hostile" in text for text in texts.values())
    for path, text in texts.items():
        fences = {token.info for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"}
        assert fences <= {"{raw} html", "{toctree}", "{eval-rst}"}, path
    parts = {page.name: " ".join(site._parts(page).values()) for page in site.all_pages.values()}
    code = re.compile(r"<script>window|<img src=x|<svg onload|<b id=hostile>|href=.javascript")
    assert not [name for name, text in (texts | parts).items() if code.search(text)]
    script = next(iter(site.all_pages.values())).script()
    assert json.loads(re.fullmatch(r'headdivRun\("[^"]+", (.*)\);\n', script)[1])
    assert scale([page.run for page in site.own_pages], "p").count(HOSTILE[0])  # text, as long as it is no page


def test_a_table_escapes_its_headings_too():
    assert "<script>" not in interactive(pd.DataFrame([[HOSTILE[0]]], columns=[HOSTILE[0]]), HOSTILE[2])


@pytest.mark.slow
def test_nothing_hostile_is_executed_or_included_in_a_site(prepared_home, tmp_path, monkeypatch):
    home = shutil.copytree(prepared_home, tmp_path / "home")
    enter(monkeypatch, home)
    hostile_project(Project(home))
    write_text(home / "secret.txt", SECRET)
    folder = write_report("p", home / "report").parent
    for path in folder.rglob("*.html"):
        source = path.read_text(encoding="utf-8")
        assert SECRET not in source, path
        assert not re.search(r"<script>window|<img src=x|<svg onload|<b id=hostile|href=.javascript:", source), path
    if CHROMIUM:
        browser = Browser(tmp_path / "chromium")
        for path in sorted(folder.rglob("*.html")):
            browser.open(path.as_uri())
            browser.until("!document.querySelector('table[data-choices]:not(.dataTable)')")
            assert browser.evaluate("window.hostile === undefined && !document.getElementById('hostile')"), path
            assert not [said for said in browser.complaints if "secret" not in said], path
        browser.close()
