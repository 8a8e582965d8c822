"""Table 2: what was drawn from each source beside the paper's numbers."""

import math

import pytest
from reported import DRAWN, MIXTURE, STREAM, metrics, write_profile

from headdiv.companion.experiments import results as store
from headdiv.companion.report import tables

NAMES = ["CommonCrawl", "C4", "GitHub", "Books", "Wikipedia", "ArXiv", "StackExchange"]


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", "lm")


def record(variant="baseline", seed=1, mixture=MIXTURE, **tokens):
    run = metrics(variant, seed, task="lm")
    run["config"]["data"]["mixture"] = mixture
    run["data"]["stream"] = STREAM | {"tokens": DRAWN | tokens}
    store.record(run, "p")


def test_what_was_drawn_of_each_source():
    record()
    table = tables.table_data("p", "deacon/sources").numbers.set_index("source")
    assert list(table["weight"]) == [67.0, 15.0, 4.5, 4.5, 4.5, 2.5, 2.0]
    assert list(table["tokens"]) == [6700, 1500, 450, 450, 450, 250, 200]
    assert list(table["share"]) == pytest.approx([67.0, 15.0, 4.5, 4.5, 4.5, 2.5, 2.0])
    assert list(table["passes"]) == [0, 0, 0, 0, 0, 2, 0]
    assert table["tokens_sd"].isna().all()


def test_weights_are_made_percentages_and_missing_sources_stay_empty():
    record(mixture={"C4": 1, "GitHub": 3})
    table = tables.table_data("p", "deacon/sources").numbers.set_index("source")
    assert list(table.index) == NAMES
    assert table["weight"].dropna().to_dict() == {"C4": 25, "GitHub": 75}
    assert math.isnan(table.loc["Books", "tokens"])


def test_seeds_are_meant_however_many_runs_each_has():
    record("baseline", 1)
    record("direct-8", 1)
    record("direct-8", 2, C4=1540)
    table = tables.table_data("p", "deacon/sources").numbers.set_index("source")
    assert table.loc["C4", "tokens"] == 1520
    assert table.loc["C4", "tokens_sd"] == pytest.approx(math.sqrt(800))
    assert table.loc["C4", "share"] == pytest.approx(100 * 1520 / 10020)
    assert "1,520 ± 254" in tables.table_data("p", "deacon/sources").markdown()  # 12.7 √800 / √2
