"""The ledger: what is known of the papers comes out, without any stored run."""

import re
from collections import Counter
from pathlib import Path

import pytest

from headdiv.companion.experiments.claims.ledger import (
    CONFIRMED,
    CONTRADICTED,
    FOLLOWS,
    NOT_RUN,
    VERDICTS,
    Judgement,
    ledger,
)
from headdiv.companion.experiments.claims.records import CLAIMS, load_claims
from headdiv.companion.experiments.claims.text import as_text, summary_text
from headdiv.companion.experiments.papers import load_paper, paper_names
from headdiv.companion.experiments.parameters import count
from headdiv.core.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]
PAPERS = paper_names(CLAIMS)
KNOWN = [
    ("deacon", "Table 3, Direct-3, parameters", FOLLOWS, 5127586),
    ("deacon", "Table 5, Direct-8, parameters", CONTRADICTED, 5373872),
    ("deacon", "Table 6, Average-8, parameters", CONTRADICTED, 329901248),
    ("deacon", "§4, Multi30k, parameters of Table 3's baseline, with the words seen more than five times",
     CONTRADICTED, 5039104),
    ("deacon", "§4, SlimPajama, share of CommonCrawl in the whole and in the sample", CONTRADICTED, 66.9891),
    ("deacon", "§5.1, Direct-3, training loss above the baseline's", CONTRADICTED, 20.4116),
    ("deacon", "§5.4, settings, parameters of these sizes", CONTRADICTED, 1313.6159),
    ("deacon", "§5.4, Non-Linear-8, it trains for longer than the baseline", CONTRADICTED, False),
    ("mhr", "§4.3, d_k = d_v = d_model / h", CONTRADICTED, 64),
    ("mhr", "Tables 2 to 5, Alphas (mixing with nuclear loss), parameters", FOLLOWS, 39470352),
    ("mhr", "Tables 2 to 4, Baseline, parameters", FOLLOWS, 39387136),
    ("mhr", "Tables 2 to 4, Alphas, 16 heads, parameters", CONTRADICTED, 39392032),
    ("dpp", "Dataset, training pairs", CONTRADICTED, 160.239),
    ("homeostasis", "Tables 1 and 3, (A) Small, parameters", FOLLOWS, 23125760),
    ("homeostasis", "§2.5, Eq. 9, Table 2's IMI of Small is within reach", CONTRADICTED, False),
    ("homeostasis", "§2.6, validation pairs", CONTRADICTED, 1014),
    ("moa", "The code's README, k is below the number of experts, as Eq. 8 has it", CONTRADICTED, False),
]  # fmt: skip


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All claims where nothing is stored."""
    with pytest.MonkeyPatch.context() as patch:
        (empty := tmp_path_factory.mktemp("empty")).joinpath("results").mkdir()
        patch.setenv("HEADDIV_HOME", str(empty))
        return {(row.paper, row.place): row for row in ledger()}


def test_what_is_known_of_the_papers_comes_out_and_the_rest_is_not_run(everything):
    known = {(paper, place): everything[paper, place] for paper, place, *_ in KNOWN}
    assert {key: row.verdict for key, row in known.items()} == {row[:2]: row[2] for row in KNOWN}
    assert [row.ours for row in known.values()] == pytest.approx([row[3] for row in KNOWN], abs=1e-4)
    verdicts = [row.verdict for row in everything.values()]
    expected = {FOLLOWS: 17, CONTRADICTED: 49, NOT_RUN: 46}
    assert {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts} == expected
    assert all((row.ours is None) == (row.verdict == NOT_RUN) for row in everything.values())
    row = everything["deacon", "§5.1, Direct-3, training loss above the baseline's"]
    assert (row.value, row.unit) == (16.95, "%")
    assert row.working == "100 * (0.9887 / 0.8211 - 1): 20.4116; as a share of its own loss: 16.9516"


def test_every_contradiction_has_a_cause_and_every_cause_contradicts_something(everything):
    claims = [load_claims(paper) for paper in PAPERS]
    causes = {known.cause for paper in claims for known in (*paper.contradictions, *paper.counts.values())}
    assert {row.cause for row in everything.values() if row.verdict == CONTRADICTED} == causes
    assert not any(row.cause for row in everything.values() if row.verdict != CONTRADICTED)


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_of_scores_rows_and_numbers_that_the_paper_has(everything, paper):
    """Numbers: those with a decimal point, in some unit of 10, but for those of §2.4, §4 and §5.4."""
    claims, tasks = load_claims(paper), load_paper(paper).tasks
    assert {*claims.scale, *claims.counts, *claims.relations} <= {*tasks}
    assert all((scale.epochs is None) != (scale.steps is None) for scale in claims.scale.values())
    for name, relations in claims.relations.items():
        for relation in relations:
            other, _, against = relation.against.rpartition("/")
            assert relation.variant in tasks[name].variants
            assert against in tasks[other or name].variants
            assert relation.score in {*tasks[name].columns, "mean_absolute_cosine"}
    computed = [claim for contradiction in claims.contradictions for claim in contradiction.claims]
    written = sum(map(len, claims.relations.values())) + len(computed)  # each in a place of its own
    assert len([row for row in everything if row[0] == paper and "parameters" not in row[1].split(", ")]) == written
    rows = [*load_paper(paper).tables.values()]
    printed = {value for task in tasks.values() for row in task.numbers().values() for value in row.values()}
    printed |= {value for table in rows for row in table.rows.values() for value in row.values()}
    for claim in computed:
        if not claim.place.startswith(("§2.4", "§4", "§5.4, set", "§5.4, time")):
            for number in map(float, re.findall(r"\d+\.\d+", claim.computed)):
                assert any(round(number * unit, 9) in printed for unit in (1, 100)), claim.place


@pytest.mark.parametrize("task", ["summarisation", "qa"])
def test_no_whole_number_of_words_is_nearer_to_a_count_that_does_not_follow(task):
    known = load_claims("deacon").counts[task]
    fewer, nearest, more = (
        abs(count(task, {"name": "baseline"}, known.model, [words + more for words in known.vocabulary]) - 5370112)
        for more in (-1, 0, 1)
    )
    assert nearest <= min(fewer, more)


def test_every_paper_of_others_has_claims_and_one_that_is_not_there_is_said(tmp_path, monkeypatch):
    assert sorted({*paper_names()} - {"headtohead"}) == PAPERS
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"^{tmp_path}: no project"):
        ledger()
    (tmp_path / "results").mkdir()
    with pytest.raises(ConfigError, match="did you mean 'mhr'"):
        ledger("mh")


@pytest.mark.slow
def test_the_summary_in_the_appendix_is_the_ledgers(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    appendix = (ROOT / "docs" / "appendix.md").read_text(encoding="utf-8").splitlines()
    begin = appendix.index("## What the papers claim")
    stands = [line.strip("|").split("|") for line in appendix[begin:] if line.startswith("|")]
    rows = ledger()
    summary = summary_text(rows).splitlines()[1 : len(VERDICTS) + 2]
    cells = [[cell.strip() for cell in line] for line in stands[2 : len(VERDICTS) + 3]]
    assert cells == [re.split(r"\s{2,}", line.strip()) for line in summary]
    grave = Counter((row.paper, row.cause) for row in rows if row.grade == "result")
    claims = [
        f"- {paper}, in {'one claim' if count == 1 else f'{count} claims'}: {cause}"
        for (paper, cause), count in grave.items()
    ]
    assert set(claims) <= set(appendix)


def test_as_text_contradictions_stand_under_their_causes_the_gravest_first():
    rows = [
        Judgement("a", "Table 1, A, parameters", 5370112, "parameters", CONTRADICTED, 5039104, "5,039,104", "Copied.",
                  "slip"),
        Judgement("a", "§1, B is better", True, "relation", NOT_RUN, None, "nothing stored"),
        Judgement("a", "§1, C is better", True, "relation", CONTRADICTED, False, "1 > 2: false", "Wrong.", "result"),
        Judgement("b", "§2, s", 0.5, "%", CONFIRMED, 0.5, "0.5"),
    ]  # fmt: skip
    assert as_text(rows).splitlines()[:-2] == [
        "a: contradicted (2)",
        "  [result] Wrong.",
        "    - §1, C is better",
        "  [slip] Copied.",
        "    - Table 1, A, parameters: 5,370,112 parameters; here 5,039,104",
        "a: not run here (1)",
        "",
        "b: confirmed (1)",
        "    - §2, s: 0.5 %; here 0.5",
    ]
    assert "        nothing stored" in as_text(rows, verbose=True).splitlines()
    lines = [line.split() for line in summary_text(rows).splitlines()]
    assert lines[0] == ["verdict", "a", "b", "all"]
    assert ["contradicted", "2", "0", "2"] in lines
