"""The report in a real browser, from disk, at a desk's and at a phone's width. Skipped where there is no Chromium."""

import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import CHROMIUM, Browser
from conftest import Project, enter
from pages import write_site
from reported import metrics, store_all, write_profile

from headdiv.experiments.claims import ledger as claims
from headdiv.experiments.notebooks import _page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

ROOT = Path(__file__).parents[2]
WIDTHS = (1280, 390)  # CSS pixels
PAGE = """({
  links: [...document.links].map((link) => link.href),
  ids: [...document.querySelectorAll('[id]')].map((element) => element.id),
  wide: document.documentElement.scrollWidth,
  broken: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
})"""


@pytest.fixture(scope="module")
def folder(prepared_home, tmp_path_factory):
    """A report with tables, figures and a companion, which is not executed: that would take too long."""
    home = shutil.copytree(prepared_home, tmp_path_factory.mktemp("site") / "home")
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, home)
        write_profile(Project(home), "p", "translation", "lm")
        bleu = {"baseline": 3.0, "direct-8": 9.5, "direct-3": 10.5}
        store_all("p", *(metrics(name, 1, bleu=value) for name, value in bleu.items()))
        companion = home / "results" / "p" / "companions" / "deacon.html"
        companion.parent.mkdir(parents=True)
        companion.write_text(_page(ROOT / "notebooks" / "deacon.ipynb"), encoding="utf-8")
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
def test_every_page_opens_and_every_link_leads_somewhere(at, browser, folder, width):
    seen, waiting, anchors = {}, [f"{folder.as_uri()}/index.html"], []
    browser.size(width, dark=width == WIDTHS[1])
    while waiting:
        address = waiting.pop()
        browser.open(address)
        found = browser.evaluate(PAGE)
        assert browser.complaints == [], address
        drawing = address.endswith(".svg")  # alone it has its own size
        assert drawing or found["wide"] <= width, f"{address} is {found['wide']} pixels wide"
        assert found["broken"] == [], address
        seen[address] = set(found["ids"])
        for link in found["links"]:
            parts = urlsplit(link)
            if parts.scheme == "https":
                assert parts.netloc == "doi.org"
                continue
            page = link.partition("#")[0].partition("?")[0]
            assert Path(unquote(urlsplit(page).path)).is_file(), f"{address} leads to {link}"
            anchors.append((address, page, parts.fragment))
            if page not in seen and page not in waiting:
                waiting.append(page)
    for address, page, anchor in anchors:
        assert not anchor or anchor in seen[page], f"{address} leads to {page}#{anchor}"
    there = {path.as_uri() for path in folder.rglob("*") if path.suffix in (".html", ".svg")}
    assert set(seen) == there


def test_a_table_sorts_by_its_heads(at):
    browser = at("deacon.html")
    score = "[...document.querySelectorAll('table')][0].tHead.rows[0].cells[7]"
    assert browser.evaluate(f"{score}.textContent") == "BLEU"
    rows = "[...[...document.querySelectorAll('table')][0].tBodies[0].rows].map((row) => row.cells[7].textContent)"
    assert browser.evaluate(rows) == ["3.0", "9.5", "10.5"]  # the paper's order
    shown = {"ascending": ["3.0", "9.5", "10.5"], "descending": ["10.5", "9.5", "3.0"], "none": ["3.0", "9.5", "10.5"]}
    for state, values in shown.items():
        browser.evaluate(f"{score}.querySelector('button').click()")
        assert browser.evaluate(f"{score}.getAttribute('aria-sort')") == state
        assert browser.evaluate(rows) == values


def test_a_table_sorts_by_the_keyboard(at):
    browser = at("deacon.html")
    browser.evaluate("document.querySelector('th button').focus()")
    browser.press("Enter", 13, "\r")
    assert browser.evaluate("document.querySelector('th').getAttribute('aria-sort')") == "ascending"


def test_the_ledger_is_filtered_by_choice_words_and_address(at):
    shown = "[...document.querySelectorAll('table tbody')].filter((claim) => !claim.hidden)"
    count = "document.querySelector('output').value"
    browser = at("claims.html?verdict=contradicted&paper=deacon")
    wanted = [row for row in claims.ledger("deacon") if row.verdict == claims.CONTRADICTED]
    total = len(claims.ledger())
    assert browser.evaluate(f"{shown}.length") == len(wanted)
    assert browser.evaluate(f"[...new Set({shown}.map((claim) => claim.dataset.verdict))]") == ["contradicted"]
    assert browser.evaluate(count) == f"{len(wanted)} of {total} claims"
    browser.evaluate("document.querySelector('input').focus()")
    for letter in "table 6":
        browser.press(letter, ord(letter.upper()), letter)
    of_table = [row for row in wanted if "Table 6" in row.place]
    assert 0 < browser.evaluate(f"{shown}.length") < len(wanted)
    assert browser.evaluate(f"{shown}.length") >= len(of_table)
    change = "form.dispatchEvent(new Event('input'))"
    browser.evaluate(f"(() => {{ const form = document.forms[0]; form.reset(); {change}; }})()")
    assert browser.evaluate(count) == f"{total} of {total} claims"
