"""The ledger: what is known of the papers comes out, without any stored run."""

import os
import re
from pathlib import Path

import pytest

from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.claims.ledger import ledger
from headdiv.companion.experiments.claims.records import GRADES, load_claims, papers_with_claims
from headdiv.companion.experiments.claims.text import as_text, summary_markdown, summary_text
from headdiv.companion.experiments.claims.verdicts import CONFIRMED, CONTRADICTED, FOLLOWS, NOT_RUN, VERDICTS
from headdiv.companion.experiments.papers import FOLDER, load_paper
from headdiv.companion.experiments.parameters import count
from headdiv.core.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is stored."""
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    return tmp_path


# ---- what is known of the papers

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


@pytest.mark.parametrize(("paper", "place", "verdict", "ours"), KNOWN)
def test_what_is_known_of_the_papers_comes_out(everything, paper, place, verdict, ours):
    row = everything[paper, place]
    assert (row.verdict, row.ours) == (verdict, pytest.approx(ours, abs=1e-4))


def test_without_results_everything_is_recomputed_or_not_run(everything):
    verdicts = [row.verdict for row in everything.values()]
    expected = {FOLLOWS: 17, CONTRADICTED: 49, NOT_RUN: 46}
    assert {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts} == expected
    assert all((row.ours is None) == (row.verdict == NOT_RUN) for row in everything.values())


def test_every_contradiction_has_a_cause_and_every_cause_contradicts_something(everything):
    contradicted = [row for row in everything.values() if row.verdict == CONTRADICTED]
    assert all(row.grade in GRADES for row in contradicted)
    assert not any(row.cause for row in everything.values() if row.verdict != CONTRADICTED)
    known = [load_claims(paper) for paper in papers_with_claims()]
    causes = {one.cause for paper in known for one in (*paper.contradictions, *paper.counts.values())}
    assert {row.cause for row in contradicted} == causes


def test_how_a_number_was_computed_is_said(everything):
    row = everything["deacon", "§5.1, Direct-3, training loss above the baseline's"]
    assert (row.value, row.unit) == (16.95, "%")
    assert row.working == "100 * (0.9887 / 0.8211 - 1): 20.4116; as a share of its own loss: 16.9516"


@pytest.mark.parametrize("paper", papers_with_claims())
def test_numbers_of_expressions_are_those_that_the_papers_file_prints(paper):
    """Each number with three significant digits or more, in some unit of 10, but for those of §2.4, §4 and §5.4."""
    tables = {**load_paper(paper).tasks, **load_paper(paper).tables}
    printed = {value for table in tables.values() for row in table.numbers().values() for value in row.values()}
    for contradiction in load_claims(paper).contradictions:
        for claim in contradiction.claims:
            if claim.place.startswith(("§2.4", "§4", "§5.4, set", "§5.4, time")):
                continue
            for number in map(float, re.findall(r"\d+\.\d+", claim.computed)):
                assert any(round(number * unit, 9) in printed for unit in (1, 100)), claim.place


@pytest.mark.parametrize(("task", "reported"), [("summarisation", 5370112), ("qa", 5370112)])
def test_no_whole_number_of_words_is_nearer_to_a_count_that_does_not_follow(task, reported):
    known = load_claims("deacon").counts[task]
    near = (
        abs(count(task, {"name": "baseline"}, known.model, [words + more for words in known.vocabulary]) - reported)
        for more in (-1, 0, 1)
    )
    fewer, nearest, more = near
    assert nearest <= min(fewer, more)


def test_outside_a_project_it_is_said_where_it_was_looked_for(home):
    (home / "results").rmdir()
    with pytest.raises(DataError, match=f"^{home}: no project"):
        ledger()


@pytest.mark.slow
def test_the_summary_in_the_documentation_is_the_ledgers(monkeypatch):
    """HEADDIV_UPDATE_GOLDEN=1 writes it anew."""
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    path, (begin, end) = ROOT / "docs" / "appendix.md", ("<!-- ledger -->\n", "\n<!-- end of ledger -->")
    before, rest = path.read_text(encoding="utf-8").split(begin)
    stands, after = rest.split(end)
    summary = summary_markdown(ledger())
    if os.environ.get("HEADDIV_UPDATE_GOLDEN"):
        path.write_text(f"{before}{begin}{summary}{end}{after}", encoding="utf-8")
        return
    assert stands.splitlines() == summary.splitlines()


# ---- the files


@pytest.mark.parametrize("paper", papers_with_claims())
def test_places_differ_and_relations_are_of_scores_and_rows_that_the_paper_has(everything, paper):
    claims, tasks = load_claims(paper), load_paper(paper).tasks
    assert {*claims.scale, *claims.counts, *claims.relations} <= {*tasks}
    assert all((scale.epochs is None) != (scale.steps is None) for scale in claims.scale.values())
    for name, relations in claims.relations.items():
        for relation in relations:
            other, _, against = relation.against.rpartition("/")
            assert relation.variant in tasks[name].variants
            assert against in tasks[other or name].variants
            assert relation.score in {*tasks[name].columns, "mean_absolute_cosine"}
    written = sum(map(len, claims.relations.values())) + sum(len(one.claims) for one in claims.contradictions)
    assert len([row for row in everything if row[0] == paper and "parameters" not in row[1].split(", ")]) == written


def test_every_paper_of_others_has_claims():
    assert papers_with_claims() == sorted({path.stem for path in FOLDER.glob("*.yaml")} - {"headtohead"})


def test_a_paper_or_a_verdict_that_is_not_there_is_said():
    with pytest.raises(ConfigError, match="did you mean 'mhr'"):
        ledger("mh")
    with pytest.raises(ConfigError, match="did you mean 'refuted'"):
        ledger(verdict="refuteed")


# ---- as text

ROWS = [claims.Judgement(**row) for row in (
    {"paper": "a", "place": "Table 1, A, parameters", "value": 5370112, "unit": "parameters",
     "verdict": CONTRADICTED, "ours": 5039104, "working": "counted: 5,039,104", "cause": "Copied.", "grade": "slip"},
    {"paper": "a", "place": "§1, B is better", "value": True, "unit": "relation",
     "verdict": NOT_RUN, "ours": None, "working": "nothing stored"},
    {"paper": "a", "place": "§1, C is better", "value": True, "unit": "relation",
     "verdict": CONTRADICTED, "ours": False, "working": "1 > 2: false", "cause": "Wrong.", "grade": "result"},
    {"paper": "b", "place": "§2, s", "value": 0.5, "unit": "%", "verdict": CONFIRMED, "ours": 0.5, "working": "0.5"},
)]  # fmt: skip


def test_the_summary_counts_verdicts_by_paper_and_says_what_they_mean():
    lines = [line.split() for line in summary_text(ROWS).splitlines()]
    assert lines[0] == ["verdict", "a", "b", "all"]
    assert ["contradicted", "2", "0", "2"] in lines
    assert lines[len(VERDICTS) + 1] == ["all", "3", "1", "4"]
    assert any(line[:3] == ["not", "run", "here:"] for line in lines)


def test_as_text_contradictions_stand_under_their_causes_the_gravest_first():
    assert as_text(ROWS).splitlines() == [
        "a: contradicted (2)",
        "  [result] Wrong.",
        "    - §1, C is better",
        "  [slip] Copied.",
        "    - Table 1, A, parameters: 5,370,112 parameters; here 5,039,104",
        "a: not run here (1)",
        "",
        "b: confirmed (1)",
        "    - §2, s: 0.5 %; here 0.5",
        "",
        "-v shows every claim and how it was computed, --verdict those with one verdict.",
    ]
    assert "        counted: 5,039,104" in as_text(ROWS, verbose=True).splitlines()
    assert "    - §1, B is better" in as_text(ROWS[1:2]).splitlines()  # of one verdict: its claims


def test_lines_are_as_wide_as_the_terminal(monkeypatch, everything):
    monkeypatch.setenv("COLUMNS", "72")
    assert max(map(len, as_text(list(everything.values()), verbose=True).splitlines())) <= 72
