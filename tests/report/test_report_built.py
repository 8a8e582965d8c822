"""A report built by Sphinx once, of a tiny profile's stored results: its pages as files, and in a real browser."""

import json
import re
import shutil

import pytest
from browser import CHROMIUM, Browser
from conftest import EXPERIMENT, Project
from pages import asks_elsewhere, site, write_site
from reported import EXPERIMENTS, measures, metrics, put, store_all, write_profile
from small_runs import enter

from headdiv.companion.experiments import catalogue
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.experiments.stored_outputs import StoredOutputs, write_outputs
from headdiv.companion.report.site import build
from headdiv.companion.report.site.library import public_names
from headdiv.companion.report.site.pages import CLAIMS_ON_A_PAGE, OPENS
from headdiv.core.files import write_json

pytestmark = pytest.mark.slow
in_a_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed: `apt-get install chromium` brings one"
)

TITLE = """--config profile="p", 'p'..."""
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
                    "data": {
                        "text/markdown": "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
                        "<details><summary>more</summary>\n\n- c\n\n</details>\n"
                    },
                },
            ],
        },
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def folder(prepared_home, tmp_path_factory):
    """The report of a profile of which two seeds of one variant, and a baseline of everything are stored."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter(patch, shutil.copytree(prepared_home, tmp_path_factory.mktemp("site") / "home"))
        own_name = "deacon/dissection"  # of a figure of it
        write_profile(Project(home), "p", *EXPERIMENTS, own_name, title=TITLE)
        baseline = metrics("baseline", 1) | {"heads": measures(1)}
        store_all("p", *(metrics("direct-8", seed, bleu=3.0 + seed) for seed in (1, 2)), baseline)
        put(*(metrics(variant, 1, experiment="deacon/dissection") for variant in ("baseline", "direct-8")))
        for name, text in (("baseline", "Ein Hund."), ("direct-8", "Ein <b>Hund</b>.")):
            write_outputs(metrics_path("p", EXPERIMENT, name, 1), StoredOutputs(test=[text, "Eine Katze."]))
        for name in ("deacon", "explore"):
            write_json(home / "results" / "p" / "companions" / f"{name}.ipynb", COMPANION)
        patch.setattr(build.log, "warning", pytest.fail)
        yield shutil.move(write_site(Project(home), "p"), home / "elsewhere")


@pytest.fixture(scope="module")
def pages(folder):
    return site(folder)


def test_every_link_leads_somewhere_and_nothing_comes_from_a_network(folder, pages):
    for page in pages.values():
        assert not asks_elsewhere(page.source), page.path
        for address in (*page.loads, *page.links):
            if (target := page.leads_to(address)) is None:
                assert address not in page.loads or address.startswith("data:"), f"{page.path}: {address}"
                continue
            file, anchor = target
            assert file.is_file(), f"{page.path}: {address}"
            assert file.is_relative_to(folder.resolve()), f"{page.path}: {address}"
            found = pages.get(file.relative_to(folder.resolve()).as_posix())
            assert not anchor or not found or anchor in found.ids, f"{page.path}: {address}"
    for style in folder.rglob("*.css"):
        assert not asks_elsewhere(style.read_text(encoding="utf-8")), style


def test_a_paper_has_a_page_with_its_tables_figures_runs_and_companion(pages):
    page = pages["papers/deacon.html"]
    known = catalogue.figures_of((f"deacon/{task}", "direct-8") for task in EXPERIMENTS)
    assert known
    assert {f"../figures/{name}.svg" for name in known} <= set(page.loads)
    assert 'alt="Are the columns of each PCA layer&#39;s weights orthogonal, as principal' in page.source
    assert 'alt="The idea of “Diversifying Multi-Head Attention in the Transformer Model” as a diagram"' in page.source
    for said in [*(f"Table {number}: " for number in (2, 3, 4, 5, 6)), "A toy corpus: ", "how bleu is made"]:
        assert said in page.text
    for seed in (1, 2):
        assert f"../runs/p_deacon_translation_direct-8_seed{seed}.html" in page.links
    companion = pages["companions/deacon.html"]
    assert companion.path.name in {link.rpartition("/")[2] for link in page.links}
    assert companion.source.count("<math") == 2
    assert "a cell" in companion.text
    assert "| a" not in companion.text  # a table of Markdown is one
    assert "<details><summary>more</summary>" in companion.source
    assert "$" not in companion.text


def test_a_run_has_a_page_and_its_data(folder, pages):
    name = "p_deacon_translation_direct-8_seed1"
    page = pages[f"runs/{name}.html"]
    for said in ("hash-of-direct-8-1", "abc123", "a CPU, 2 threads", "headdiv train deacon/translation direct-8",
                 "how bleu is made", "train.tokens_per_batch", "Ein <b>Hund</b>."):  # fmt: skip
        assert said in page.text
    script = (folder / "_static" / "runs" / f"{name}.js").read_text(encoding="utf-8")
    data = json.loads(re.fullmatch(r'headdivRun\("[^"]+", (.*)\);\n', script)[1])
    assert data["curves"]["Training loss"] == [6.0, 3.5]
    assert data["examples"] == {"columns": ["output"], "data": [["Ein <b>Hund</b>."], ["Eine Katze."]]}
    assert name in pages["compare.html"].source


def test_the_first_page_of_a_toy_compares_nothing(pages):
    page = pages["index.html"]
    assert "No results on real text are stored" in page.text
    assert page.text.count("A toy corpus") == 1
    assert "better" not in page.text.partition("A toy corpus")[2].replace("is better", "")


def test_commands_and_quotes_stay_as_they_are(pages):
    assert f"This profile: {TITLE}" in pages["index.html"].text


def test_the_ledger_has_every_claim(pages):
    text = pages["claims.html"].text
    for row in claims.ledger():
        assert " ".join(row.place.split()) in text
    for row in claims.ledger(verdict=claims.CONTRADICTED):
        rest = row.working.removeprefix(row.what).lstrip(": ")
        assert all(" ".join(part.split()) in text for part in (row.what, rest))
    assert any(link.startswith("claims.html?deacon&") for link in pages["index.html"].links)


def test_the_library_is_documented(pages):
    names = {name for names in public_names().values() for _, name in names}
    assert names <= pages["api.html"].ids
    assert "design.html" in {link.rpartition("/")[2] for link in pages["index.html"].links}


# ---- in a browser, from disk, at a desk's and at a phone's width

WIDTHS = (1280, 390)  # CSS pixels
RANKED = ("papers/deacon", "claims", "docs/design", "runs")  # as a search for a word in all of them puts them
STATIC = ("index", "claims", "runs", "papers/deacon", "companions/deacon")  # with tables in the page itself
# What is wrong with a page: pictures that were not loaded, plots without marks, tables that neither fit nor scroll.
PAGE = """({
  wide: document.documentElement.scrollWidth,
  broken: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
  empty: [...document.querySelectorAll(".js-plotly-plot")].filter((plot) =>
    !plot.querySelector(".scatterlayer path, .heatmaplayer image")).length,
  over: [...document.querySelectorAll("table")].filter((table) => {
    const scrolls = (element) => element && (scrolls(element.parentElement)
      || ["auto", "scroll", "hidden"].includes(getComputedStyle(element).overflowX));
    return table.getBoundingClientRect().right > innerWidth && !scrolls(table.parentElement);
  }).map((table) => table.id || table.className),
  loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = Browser(tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


@pytest.fixture
def at(browser, folder):
    """Open a page of the report at a width."""

    def open_page(name, width=1280, dark=False):
        browser.size(width, dark=dark)
        browser.open(f"{folder.as_uri()}/{name}")
        return browser

    return open_page


@in_a_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_without_complaint_or_network(browser, folder, width):
    browser.size(width, dark=width == WIDTHS[1])
    for path in sorted(folder.rglob("*.html")):
        browser.open(path.as_uri())
        browser.until("!document.querySelector('table[data-choices]:not(.dataTable)')")  # all that sort are drawn
        found = browser.evaluate(PAGE)
        assert browser.complaints == [], path
        assert found["wide"] <= width, f"{path} is {found['wide']} pixels wide"
        assert (found["broken"], found["over"], found["empty"]) == ([], [], 0), path
        assert [address for address in found["loaded"] if not address.startswith(("file:", "data:", "blob:"))] == []


@in_a_browser
def test_two_runs_are_compared(at):
    page = at("compare.html?p_deacon_translation_baseline_seed1&p_deacon_translation_direct-8_seed1")
    page.until("document.querySelectorAll('#run-data .js-plotly-plot').length > 0")
    titles = page.evaluate("[...document.querySelectorAll('#run-data h2')].map((title) => title.textContent)")
    assert titles == ["Scores", "Settings that differ", "Curves", "Heads", "First outputs for the test set"]
    rows = page.evaluate("[...document.querySelectorAll('#run-data tr')].map((row) => row.textContent)")
    assert "BLEU (u)3.0004.000" in rows
    assert "Ein Hund.Ein <b>Hund</b>." in rows
    assert page.complaints == []


@in_a_browser
def test_another_variant_is_compared_where_the_address_names_none(at):
    page = at("compare.html")
    page.until("document.querySelectorAll('#run-data .js-plotly-plot').length > 0")
    chosen = page.evaluate("[...document.querySelectorAll('#choose select')].map((select) => select.value)")
    assert chosen == ["p_deacon_translation_baseline_seed1", "p_deacon_translation_direct-8_seed1"]


@in_a_browser
def test_the_ledger_is_one_table_that_is_filtered_by_its_address(at):
    page = at("claims.html?deacon&contradicted")
    wanted = [row for row in claims.ledger("deacon") if row.verdict == claims.CONTRADICTED]
    page.until("document.querySelector('.dt-info')?.textContent.includes('filtered')")
    assert page.evaluate("document.querySelector('.dt-info').textContent").endswith(
        f"{len(claims.ledger())} total entries)"
    )
    rows = page.evaluate("document.querySelectorAll('.dt-scroll-body tbody tr').length")
    assert rows == min(len(wanted), CLAIMS_ON_A_PAGE)
    assert page.evaluate("document.querySelectorAll('.dt-scroll-head .dtcc-button_dropdown').length") > 0


@in_a_browser
def test_the_ledger_opens_on_the_verdicts_that_matter_and_shows_all_in_pages(at):
    first = [row for row in claims.ledger() if row.verdict in OPENS]
    page = at("claims.html")
    page.until("document.querySelector('.dt-info')?.textContent.includes('filtered')")
    rows = "[...document.querySelectorAll('#ledger tbody tr')]"
    verdicts = page.evaluate(f"{rows}.map((row) => row.cells[0].textContent)")
    assert set(verdicts) == {row.verdict for row in first}
    assert len(verdicts) == min(CLAIMS_ON_A_PAGE, len(first))
    page = at("claims.html?all")
    page.until("document.querySelectorAll('.dt-paging-button').length > 2")
    assert page.evaluate("document.querySelectorAll('#ledger tbody tr').length") == CLAIMS_ON_A_PAGE


@in_a_browser
def test_the_site_is_searched(at):
    page = at("search.html?q=DEACON")
    page.until("document.querySelectorAll('#search-results li').length > 4")
    found = page.evaluate("[...document.querySelectorAll('#search-results li a')].map((link) => link.href)")
    assert not [address for address in found if "/runs/" in address]  # which would hide the pages about it
    assert "papers/deacon.html" in " ".join(found[:5])
    assert page.complaints == []


@in_a_browser
def test_the_search_puts_evidence_before_reference(at):
    page = at("search.html?q=baseline")
    page.until("document.querySelectorAll('#search-results li').length > 4")
    found = page.evaluate("[...document.querySelectorAll('#search-results li a')].map((link) => link.href)")
    place = {name: next(i for i, address in enumerate(found) if f"/{name}.html" in address) for name in RANKED}
    assert sorted(place, key=place.__getitem__) == list(RANKED)


@in_a_browser
def test_without_scripts_text_tables_and_figures_are_there(browser, folder):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown = {}
        for name in (*STATIC, "runs/p_deacon_translation_direct-8_seed1"):
            browser.size(1280)
            browser.open((folder / f"{name}.html").as_uri())
            tree = browser.call("Accessibility.getFullAXTree")["nodes"]
            seen = [node for node in tree if not node.get("ignored")]
            shown[name] = [node["role"]["value"] for node in seen]
            assert browser.complaints == []
        assert shown["claims"].count("row") > len(claims.ledger())
        assert shown["papers/deacon"].count("image") > 4
        assert {"table", "heading"} <= set.intersection(*map(set, shown.values()))
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
