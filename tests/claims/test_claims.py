"""The ledger: what is known of the papers comes out, and each verdict with made-up results."""

import pytest
from claimed import store, translation

from headdiv.companion.experiments.claims import files as claims_data
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.claims.files import GRADES
from headdiv.companion.experiments.claims.ledger import ledger
from headdiv.companion.experiments.claims.text import as_text, summary_text
from headdiv.companion.experiments.claims.verdicts import CONTRADICTED, FOLLOWS, NOT_RUN, ROUNDING, USED, VERDICTS
from headdiv.core.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is stored but what a test stores."""
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    return tmp_path


# ---- what is known of the papers

LAST = "§5.4, Non-Linear-16 and Non-Linear-8"
KNOWN = [
    ("deacon", "Table 3, Non-Linear-8, Parameters of base", FOLLOWS, 100.05005),
    ("deacon", "Table 3, Direct-3, Parameters", FOLLOWS, 5127586),
    ("deacon", "Table 6, Average-8, Parameters", CONTRADICTED, 329901248),
    ("deacon", "Table 2, Total, training tokens", FOLLOWS, 299.78),
    ("deacon", "§4, Multi30k, Table 3's baseline with the words seen more than five times", CONTRADICTED, 5039104),
    ("deacon", "§4, SlimPajama, a random sample has CommonCrawl's share", CONTRADICTED, 66.99),
    ("deacon", "§5.1, Direct-8, training loss below the baseline's", FOLLOWS, 2.1922),
    ("deacon", "§5.1, Average-3, BLEU below Average-8's", ROUNDING, 4.6263),
    ("deacon", "§5.1, Non-Linear-8, more features discarded than this share", ROUNDING, 81.8182),
    ("deacon", "§5.1, Non-Linear-3, training loss below Non-Linear-8's", ROUNDING, 12.3739),
    ("deacon", "§5.4, settings, parameters of these sizes", CONTRADICTED, 1313.6159),
    ("deacon", "§5.4, time of training, days at the least, Table 6's count of parameters", FOLLOWS, 2.5207),
    ("deacon", f"{LAST}, Non-Linear-8 remains slower than the baseline", CONTRADICTED, False),
    ("mhr", "§4.3, d_k = d_v at Table 2's count", CONTRADICTED, 64),
    ("mhr", "Table 3, DE-EN, Alphas (mixing with nuclear loss), Parameters", FOLLOWS, 39470352),
    ("mhr", "Table 3, ES-EN, Alphas, 16 heads, Parameters", CONTRADICTED, 39392032),
    ("mhr", "§5.1, gain of the Alphas in German", FOLLOWS, 0.53),
    ("mhr", "§5.1, all methods are better than the baseline", CONTRADICTED, False),
    ("mhr", "Table 1, German to English, training pairs", FOLLOWS, 160.239),
    ("dpp", "Results, between the columns, time of DPP (A) against vanilla", FOLLOWS, 2.0247),
    ("homeostasis", "Table 1, (A) Small, Parameters", FOLLOWS, 23125760),
    ("homeostasis", "§2.5, Eq. 9, Table 2's IMI of Small is within reach", CONTRADICTED, 0.477),
    ("homeostasis", "§2.6, validation pairs", CONTRADICTED, 1014),
    ("homeostasis", "Abstract, the best BLEU", FOLLOWS, 0.3062),
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
    expected = {FOLLOWS: 178, ROUNDING: 4, CONTRADICTED: 48, NOT_RUN: 390}
    assert claims.verdict_counts(everything.values()) == dict.fromkeys(VERDICTS, 0) | expected
    for row in everything.values():
        assert (row.ours is None) == (row.verdict == NOT_RUN)
        assert row.working
        assert row.runs == ()
        assert row.verdict != CONTRADICTED or claims.show(row.ours) in row.working


def test_every_contradiction_has_a_cause_and_every_cause_contradicts_something(everything):
    contradicted = [row for row in everything.values() if row.verdict == CONTRADICTED]
    assert all(row.cause and row.grade in GRADES for row in contradicted)
    assert not any(row.cause for row in everything.values() if row.verdict != CONTRADICTED)
    files = [claims_data.load_claims(paper) for paper in claims.papers_with_claims()]
    known = [cause.text for file in files for cause in file.causes.values()]
    assert sorted({row.cause for row in contradicted}) == sorted(known)
    assert sum("repeat Table 3's counts" in row.cause for row in contradicted) == 14


def test_outside_a_project_it_is_said_where_it_was_looked_for(home):
    (home / "results").rmdir()
    with pytest.raises(DataError, match=f"^{home}: no project .neither results/ nor config/., so that no claim"):
        ledger()


def test_a_working_shows_numbers_and_what_else_explains_them(everything):
    row = everything["deacon", "§5.1, Direct-3, training loss above the baseline's"]
    assert (row.value, row.unit, row.kind) == (16.95, "%", "arithmetic")
    assert row.working == (
        "100 * (0.9887 / 0.8211 - 1) = 20.4116; as a share of its own loss: 100 * (1 - 0.8211 / 0.9887) = 16.9516"
    )
    assert everything["deacon", "§5.1, Average-3, BLEU below Average-8's"].working == (
        "100 * (1 - 26.8 / 28.1) = 4.62633, which is the claim within rounding"
    )
    assert everything["deacon", "§5.1, Direct-8, accuracy above the baseline's"].working.endswith(
        "100 * (69.75 / 68.63 - 1) = 1.63194 (the text says %)"
    )


# ---- mistakes

RELATION = "a relation has the value true and a working that compares, and nothing else has"


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("1, unit: BLEU, working: translation.direct_8.blue", "'translation.direct_8.blue' is not known; expected "),
        ("1, unit: BLEU, working: ours.translation.direct_9.bleu", "deacon has no row translation.direct_9"),
        ("1, unit: BLEU, working: ours.translation.direct_8.blue",
         "'ours.translation.direct_8.blue': no run measures this"),
        ("1, unit: x, working: params.qa.baseline",
         "params.qa: the sizes of qa are not known; give them under 'models'"),
        ("1, unit: x, working: data.multi30k.trian",
         "'data.multi30k.trian' is not known; did you mean 'data.multi30k.train'?"),
        ("1, unit: x, working: 1 < 2", RELATION),
        ("true, working: 1 + 2", RELATION),
        ("1, unit: x, working: 1 / 0", "'1 / 0' has no result"),
        ("1, unit: BLUE, working: ours.translation.direct_8.bleu",
         "the unit 'BLUE' has no tolerance; did you mean 'BLEU'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_claim_is_said_with_its_place(home, monkeypatch, request, sentence, message):
    scale = "{translation: {data: {name: multi30k}, epochs: 30}}"
    (home / "deacon.yaml").write_text(f"scale: {scale}\nsentences:\n  §1:\n    it:\n      {{value: {sentence}}}\n")
    monkeypatch.setattr(claims_data, "CLAIMS", home)
    claims_data.load_claims.cache_clear()
    request.addfinalizer(claims_data.load_claims.cache_clear)
    store(home, translation("direct-8"))
    with pytest.raises(ConfigError) as error:
        ledger("deacon")
    assert str(error.value).startswith(f"{home}/deacon.yaml, line 4: sentences.§1.it: §1, it: {message}")


# ---- as text

ROWS = [claims.Judgement(**row) for row in (
    {"paper": "a", "place": "Table 1, A, Parameters", "value": 5370112, "unit": "parameters", "kind": "parameter count",
     "verdict": CONTRADICTED, "ours": 5039104, "working": "2 * 2519552", "cause": "Copied.", "grade": "slip"},
    {"paper": "a", "place": "§1, B is better", "value": True, "unit": "relation", "kind": "score",
     "verdict": NOT_RUN, "ours": None, "working": "nothing stored"},
    {"paper": "a", "place": "§1, C is better", "value": True, "unit": "relation", "kind": "score",
     "verdict": CONTRADICTED, "ours": False, "working": "1 > 2 is false", "cause": "Wrong.", "grade": "result"},
    {"paper": "b", "place": "§2, s", "value": 0.5, "unit": "", "kind": "setting",
     "verdict": USED, "ours": 0.5, "working": "0.5; profile full"},
)]  # fmt: skip


def test_the_summary_counts_verdicts_by_paper_and_says_what_they_mean():
    assert claims.summary(ROWS) == {
        "a": dict.fromkeys(VERDICTS, 0) | {CONTRADICTED: 2, NOT_RUN: 1},
        "b": dict.fromkeys(VERDICTS, 0) | {USED: 1},
    }
    lines = [line.split() for line in summary_text(ROWS).splitlines()]
    assert lines[0] == ["a", "b", "all"]
    assert ["contradicted", "2", "0", "2"] in lines
    assert lines[len(VERDICTS) + 1] == ["all", "3", "1", "4"]
    assert any(line[:3] == ["used", "here:", "a"] for line in lines)


def test_as_text_contradictions_stand_under_their_causes_the_gravest_first():
    assert as_text(ROWS).splitlines() == [
        "a: contradicted (2)",
        "  [result] Wrong.",
        "    - §1, C is better",
        "  [slip] Copied.",
        "    - Table 1, A, Parameters: 5,370,112 parameters; here 5,039,104",
        "a: not run here (1)",
        "",
        "b: used here (1)",
        "",
        "-v shows every claim and its working, --verdict those with one verdict.",
    ]
    assert "        2 * 2519552" in as_text(ROWS, verbose=True).splitlines()
    assert "    - §2, s: 0.5; here 0.5" in as_text(ROWS[-1:]).splitlines()  # of one verdict: its claims


def test_lines_are_as_wide_as_the_terminal(monkeypatch, everything):
    monkeypatch.setenv("COLUMNS", "72")
    assert max(map(len, as_text(list(everything.values()), verbose=True).splitlines())) <= 72
