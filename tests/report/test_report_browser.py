"""The report in a real browser, from disk, at a desk's and at a phone's width. Skipped where there is no Chromium."""

import shutil

import pytest
from browser import CHROMIUM, Browser
from conftest import EXPERIMENT, Project
from pages import write_site
from reported import measures, metrics, store_all, write_profile
from small_runs import enter

from headdiv.core.files import write_json
from headdiv.experiments.claims import ledger as claims
from headdiv.experiments.results import metrics_path

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]

WIDTHS = (1280, 390)  # CSS pixels
PAGE = """({
  wide: document.documentElement.scrollWidth,
  broken: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
  loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
})"""


@pytest.fixture(scope="module")
def folder(prepared_home, tmp_path_factory):
    """A report with tables, figures, and outputs of two runs."""
    home = shutil.copytree(prepared_home, tmp_path_factory.mktemp("site") / "home")
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, home)
        write_profile(Project(home), "p", "translation", "lm")
        bleu = {"baseline": 3.0, "direct-8": 9.5, "direct-3": 10.5}
        runs = {name: metrics(name, 1, bleu=value) for name, value in bleu.items()}
        runs["baseline"]["heads"] = measures(1)
        store_all("p", *runs.values())
        for name, text in (("baseline", "Ein Hund."), ("direct-8", "Ein Hund läuft.")):
            write_json(metrics_path("p", EXPERIMENT, name, 1).with_name("outputs.json"), [text])
        return shutil.move(write_site(Project(home), "p"), home / "report")


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


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_opens_without_complaint_or_network(browser, folder, width):
    browser.size(width, dark=width == WIDTHS[1])
    for path in sorted(folder.rglob("*.html")):
        browser.open(path.as_uri())
        browser.until("!document.querySelector('table[data-choices]:not(.dataTable)')")  # all that sort are drawn
        found = browser.evaluate(PAGE)
        assert browser.complaints == [], path
        assert found["wide"] <= width, f"{path} is {found['wide']} pixels wide"
        assert found["broken"] == [], path
        assert [address for address in found["loaded"] if not address.startswith(("file:", "data:", "blob:"))] == []


def test_two_runs_are_compared(at):
    page = at("compare.html?p_deacon_translation_baseline_seed1&p_deacon_translation_direct-8_seed1")
    page.until("document.querySelectorAll('#run-data .js-plotly-plot').length > 0")
    titles = page.evaluate("[...document.querySelectorAll('#run-data h2')].map((title) => title.textContent)")
    assert titles == ["Scores", "Settings that differ", "Curves", "Heads", "First outputs for the test set"]
    rows = page.evaluate("[...document.querySelectorAll('#run-data tr')].map((row) => row.textContent)")
    assert "BLEU (u)3.0009.500" in rows
    assert "Ein Hund.Ein Hund läuft." in rows
    assert page.complaints == []


def test_another_variant_is_compared_where_the_address_names_none(at):
    page = at("compare.html")
    page.until("document.querySelectorAll('#run-data .js-plotly-plot').length > 0")
    chosen = page.evaluate("[...document.querySelectorAll('#choose select')].map((select) => select.value)")
    assert chosen == ["p_deacon_translation_baseline_seed1", "p_deacon_translation_direct-8_seed1"]


def test_the_ledger_is_one_table_that_is_filtered_by_its_address(at):
    page = at("claims.html?deacon&contradicted")
    wanted = [row for row in claims.ledger("deacon") if row.verdict == claims.CONTRADICTED]
    page.until("document.querySelector('.dt-info')?.textContent.includes('filtered')")
    assert page.evaluate("document.querySelector('.dt-info').textContent").endswith(
        f"{len(claims.ledger())} total entries)"
    )
    rows = page.evaluate("document.querySelectorAll('.dt-scroll-body tbody tr').length")
    assert rows == len(wanted)
    assert page.evaluate("document.querySelectorAll('.dt-scroll-head .dtcc-button_dropdown').length") > 0


def test_the_site_is_searched(at):
    page = at("search.html?q=Sanger")
    page.until("document.querySelectorAll('#search-results li').length > 0")
    assert page.complaints == []
