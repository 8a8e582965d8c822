"""Table 2: what was drawn from each source beside the paper's numbers."""

import math

import pytest
from reported import DRAWN, MIXTURE, metrics, write_profile

from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.papers import data_table_of
from headdiv.companion.report import tables

NAMES = ["CommonCrawl", "C4", "GitHub", "Books", "Wikipedia", "ArXiv", "StackExchange"]


@pytest.fixture(autouse=True)
def profile(project):
    return write_profile(project, "p", "lm")


def record(variant="baseline", seed=1, mixture=MIXTURE, **tokens):
    run = metrics(variant, seed, task="lm")
    run["config"]["data"]["mixture"] = mixture
    run["data"]["stream"] = {"tokens": DRAWN | tokens, "passes": run["data"]["stream"]["passes"]}
    if mixture is None:
        run["data"]["stream"] = {"tokens": {"all": 123}, "passes": {"all": 4}}
        run["config"]["data"]["name"] = "wikitext2"
    store.record(run, "p")


def test_the_papers_table_2_is_as_printed_and_shares_drawn_stand_beside_it():
    record()
    table = tables.table_data("p", "deacon/sources").numbers.set_index("source")
    assert list(table.index) == NAMES
    paper = table[[name for name in table if name.endswith("_paper")]]
    printed = {source: tuple(row.values()) for source, row in data_table_of("deacon/sources").rows.items()}
    assert dict(zip(NAMES, paper.itertuples(index=False, name=None), strict=True)) == printed
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
    assert table.loc["Books", "sampling_paper"] == 4.5


def test_seeds_are_meant_however_many_runs_each_has():
    record("baseline", 1)
    record("direct-8", 1)
    record("direct-8", 2, C4=1540)
    table = tables.table_data("p", "deacon/sources").numbers.set_index("source")
    assert table.loc["C4", "tokens"] == 1520
    assert table.loc["C4", "tokens_sd"] == pytest.approx(math.sqrt(800))
    assert table.loc["C4", "share"] == pytest.approx(100 * 1520 / 10020)
    assert "1,520 ± 254" in tables.table_data("p", "deacon/sources").markdown()  # 12.7 √800 / √2


def test_plain_text_has_no_sources_and_says_so():
    record(mixture=None)
    assert "without data.mixture there are no sources" in tables.table_data("p", "deacon/sources").markdown()
    table = tables.table_data("p", "deacon/sources").numbers.set_index("source")
    assert list(table.index) == [*NAMES, "all"]
    assert (table.loc["all", "tokens"], table.loc["all", "share"], table.loc["all", "passes"]) == (123, 100, 4)
    assert table.loc[NAMES, "tokens"].isna().all()
