"""The ledger: what is known of the papers comes out."""

import math
from collections import Counter
from pathlib import Path

import pytest

from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import load_paper, paper_names
from headdiv.companion.experiments.parameters import count
from headdiv.companion.report import claims as claims_module
from headdiv.companion.report.claims import ACCEPTED, CLAIMS, VERDICTS, Judgement, as_text, decide, ledger, load_claims
from headdiv.companion.report.compare import compare
from headdiv.companion.report.groups import judged_with
from headdiv.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAPERS = paper_names(CLAIMS)
KNOWN = [
    ("deacon", "Table 3, Direct-3, parameters", True, 5127586),
    ("deacon", "Table 5, Direct-8, parameters", False, 5373872),
    ("deacon", "Table 6, Average-8, parameters", False, 329901248),
    ("deacon", "§4, Multi30k, parameters of Table 3's baseline, with the words seen more than five times",
     False, 5039104),
    ("deacon", "§4, SlimPajama, share of CommonCrawl in the whole and in the sample", False, 66.9891),
    ("deacon", "§5.1, Direct-3, training loss above the baseline's", False, 20.4116),
    ("deacon", "§5.4, settings, parameters of these sizes", False, 1313.6159),
    ("deacon", "§5.4, Non-Linear-8, it trains for longer than the baseline", False, False),
    ("mhr", "§4.3, d_k = d_v = d_model / h", False, 64),
    ("mhr", "Tables 2 to 5, Alphas (mixing with nuclear loss), parameters", True, 39470352),
    ("mhr", "Tables 2 to 4, Baseline, parameters", True, 39387136),
    ("mhr", "Tables 2 to 4, Alphas, 16 heads, parameters", False, 39392032),
    ("dpp", "Dataset, training pairs", False, 160.239),
    ("homeostasis", "Tables 1 and 3, (A) Small, parameters", True, 23125760),
    ("homeostasis", "§2.5, Eq. 9, Table 2's IMI of Small is within reach", False, False),
    ("homeostasis", "§2.6, validation pairs", False, 1014),
    ("moa", "The code's README, k is below the number of experts, as Eq. 8 has it", False, False),
]  # fmt: skip


@pytest.fixture(scope="module")
def everything():
    return {(row.paper, row.place): row for row in ledger()}


def test_what_is_known_of_the_papers_comes_out(everything):
    rows = {(paper, place): everything[paper, place] for paper, place, *_ in KNOWN}
    assert {key: row.verdict == "follows" for key, row in rows.items()} == {row[:2]: row[2] for row in KNOWN}
    assert [row.ours for row in rows.values()] == pytest.approx([row[3] for row in KNOWN], abs=1e-4)
    assert Counter(row.verdict for row in everything.values()) == {
        "follows": 17, "contradicted": 49, "confirmed": 3, "undecided": 4, "not comparable": 4, "not run here": 35
    }  # fmt: skip
    row = everything["deacon", "§5.1, Direct-3, training loss above the baseline's"]
    assert (row.value, row.unit) == (16.95, "%")
    assert row.working == "100 * (0.9887 / 0.8211 - 1): 20.4116; as a share of its own loss: 16.9516"


def test_every_contradiction_has_a_cause_and_every_cause_contradicts_something(everything):
    claims = [load_claims(paper) for paper in PAPERS]
    causes = {source.cause for paper in claims for source in (*paper.contradictions, *paper.counts.values())}
    assert {row.cause for row in everything.values() if row.verdict == "contradicted"} == causes
    assert not any(row.cause for row in everything.values() if row.verdict != "contradicted")


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_of_rows_that_the_paper_has(paper):
    claims, tasks = load_claims(paper), load_paper(paper).tasks
    assert {*claims.counts, *claims.relations} <= {*tasks}
    assert {*claims.measured} <= {*claims.relations}
    for task, relations in claims.relations.items():
        for relation in relations:
            other_task, _, other_variant = relation.against.rpartition("/")
            assert relation.variant in tasks[task].variants
            assert other_variant in tasks[other_task or task].variants


@pytest.mark.parametrize("task", ["summarisation", "qa"])
def test_no_whole_number_of_words_is_nearer_to_a_count_that_does_not_follow(task):
    counts = load_claims("deacon").counts[task]
    fewer, nearest, more = (
        abs(count(task, {"name": "baseline"}, counts.model, [words + change for words in counts.vocabulary]) - 5370112)
        for change in (-1, 0, 1)
    )
    assert nearest <= min(fewer, more)


def test_every_paper_of_others_has_claims_and_one_that_is_not_there_is_said():
    assert sorted({*paper_names()} - {"headtohead"}) == PAPERS
    with pytest.raises(ConfigError, match="did you mean 'mhr'"):
        ledger("mh")


def test_the_summary_in_the_appendix_is_the_ledgers(everything):
    appendix = (ROOT / "docs" / "appendix.md").read_text(encoding="utf-8").splitlines()
    begin = appendix.index("## What the papers claim")
    table = [line.strip("|").split("|") for line in appendix[begin:] if line.startswith("|")]
    cells = {row[0]: row[1:] for row in ([cell.strip() for cell in line if cell] for line in table)}
    counts = Counter((row.paper, row.verdict) for row in everything.values())
    for verdict in VERDICTS:
        numbers = dict(zip(cells["verdict"], map(int, cells[verdict]), strict=True))
        assert numbers == {paper: counts[paper, verdict] for paper in PAPERS} | {"all": numbers["all"]}
        assert numbers["all"] == sum(counts[paper, verdict] for paper in PAPERS)
    grave = Counter((row.paper, row.cause) for row in everything.values() if row.grade == "result")
    claims = [
        f"- {paper}, in {'one claim' if count == 1 else f'{count} claims'}: {cause}"
        for (paper, cause), count in grave.items()
    ]
    assert set(claims) <= set(appendix)


def test_as_text_contradictions_stand_under_their_causes_the_gravest_first():
    rows = [
        Judgement("a", "Table 1, A", 5370112, "parameters", 5039104, "contradicted", "5", "Copied.", "slip"),
        Judgement("a", "§1, C is better", True, "", False, "contradicted", "1 > 2: false", "Wrong.", "result"),
        Judgement("b", "§2, s", 0.5, "%", 0.5, "follows", "1 / 2: 0.5"),
    ]  # fmt: skip
    assert as_text(rows).splitlines()[:-2] == [
        "a: contradicted (2)",
        "  [result] Wrong.",
        "    - §1, C is better",
        "  [slip] Copied.",
        "    - Table 1, A: 5,370,112 parameters; here 5,039,104",
        "",
        "b: follows (1)",
    ]
    assert as_text(rows, verbose=True).splitlines()[-2:] == ["    - §2, s: 0.5 %; here 0.5", "        1 / 2: 0.5"]


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (1.0, 0.9, "confirmed"),
        (-1.0, 0.9, "refuted"),
        (0.0, 0.0, "refuted"),
        (0.5, 0.9, "undecided"),
        (1.0, math.nan, "undecided"),
    ],
)
def test_the_interval_decides_a_relation_and_one_seed_or_equal_scores_do_not_confirm_it(mean, half, verdict):
    assert decide(Difference(mean, half, 3), *ACCEPTED["higher"]) == verdict


def test_a_relation_of_rows_without_a_seed_in_common_is_not_decided(monkeypatch):
    rows = judged_with("multi30k-30", "deacon/translation")
    rows |= {"baseline": rows["baseline"][:1], "direct-8": rows["direct-8"][1:]}
    monkeypatch.setattr(claims_module, "judged_with", lambda profile, experiment: rows)
    row = next(row for row in ledger("deacon") if "Direct-8, BLEU of Direct-8 is higher" in row.place)
    assert (row.verdict, row.working) == ("not run here", "the stored runs have no seed in common")


def test_a_relation_of_stored_runs_has_its_interval_and_a_loss_measured_otherwise_says_so(everything):
    """Dunnett's interval over all rows of the profile's model, as the table has it."""
    row = everything["deacon", "§5.1, Direct-8, BLEU of Direct-8 is higher than that of Baseline Transformer"]
    against = compare("multi30k-30", "deacon/translation").set_index(["variant", "measure"]).loc[("direct-8", "BLEU")]
    assert (row.verdict, row.ours) == ("undecided", against["difference"] > 0)
    assert f"({against['low']:.4g} to {against['high']:.4g} over 3 seeds" in row.working
    loss = everything["deacon", "§5.1, Direct-8, Training loss of Direct-8 is lower than that of Baseline Transformer"]
    assert loss.verdict == "not comparable"
    assert "training mode, with dropout" in loss.working
