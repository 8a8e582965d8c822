"""The ledger: what is known of the papers comes out, and each verdict with made-up results."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from claimed import store, translation

from headdiv.companion.experiments.claims import files
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.claims.calls import show
from headdiv.companion.experiments.claims.files import claims_of, load_claims, papers_with_claims
from headdiv.companion.experiments.claims.functions import higher, itself, ratio
from headdiv.companion.experiments.claims.ledger import ledger
from headdiv.companion.experiments.claims.records import (
    GRADES,
    RELATION,
    ClaimKind,
    Counted,
    Examples,
    NumbersOf,
    PaperClaims,
    Scale,
    Sign,
    claim,
    relation,
)
from headdiv.companion.experiments.claims.text import as_text, summary_markdown, summary_text
from headdiv.companion.experiments.claims.verdicts import CONTRADICTED, FOLLOWS, NOT_RUN, ROUNDING, USED, VERDICTS
from headdiv.companion.experiments.papers import FOLDER, load_paper
from headdiv.core.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]


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
        assert row.verdict != CONTRADICTED or show(row.ours) in row.working


def test_every_contradiction_has_a_cause_and_every_cause_contradicts_something(everything):
    contradicted = [row for row in everything.values() if row.verdict == CONTRADICTED]
    assert all(row.cause and row.grade in GRADES for row in contradicted)
    assert not any(row.cause for row in everything.values() if row.verdict != CONTRADICTED)
    hows = [claim.how for paper in papers_with_claims() for claim in claims_of(paper) if claim.how]
    assert {row.cause for row in contradicted} == {how.cause.text for how in hows if how.cause}
    assert sum("repeat Table 3's counts" in row.cause for row in contradicted) == 14


def test_outside_a_project_it_is_said_where_it_was_looked_for(home):
    (home / "results").rmdir()
    with pytest.raises(DataError, match=f"^{home}: no project .neither results/ nor config/., so that no claim"):
        ledger()


def test_how_a_number_was_computed_is_said_with_its_numbers_and_no_keys(everything):
    row = everything["deacon", "§5.1, Direct-3, training loss above the baseline's"]
    assert (row.value, row.unit, row.kind) == (16.95, "%", "arithmetic")
    for said in ("Direct-3 0.9887", "Baseline Transformer 0.8211", ": 20.4116", "as a share of its own loss: 16.9516"):
        assert said in row.working
    keys = re.compile(r"\b[a-z0-9]+_[a-z0-9_]+|\b(ours|params|data)\.")
    assert [row.working for row in everything.values() if keys.search(row.working)] == []


@pytest.mark.slow
def test_the_summary_in_the_documentation_is_the_ledgers(monkeypatch):
    """HEADDIV_UPDATE_GOLDEN=1 writes it anew."""
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    path, (begin, end) = ROOT / "docs" / "results.md", ("<!-- ledger -->\n", "\n<!-- end of ledger -->")
    before, rest = path.read_text(encoding="utf-8").split(begin)
    stands, after = rest.split(end)
    summary = summary_markdown(ledger())
    if os.environ.get("HEADDIV_UPDATE_GOLDEN"):
        path.write_text(f"{before}{begin}{summary}{end}{after}", encoding="utf-8")
        return
    assert stands.splitlines() == summary.splitlines()


# ---- claims as records


@pytest.mark.parametrize("paper", papers_with_claims())
def test_claims_are_whole_and_distinguished_by_their_places(paper):
    claims, known = claims_of(paper), load_paper(paper)
    places = [claim.place for claim in claims]
    assert len(set(places)) == len(places)
    for one in claims:
        assert one.place.startswith(("Table", "§", "Abstract", "The code", "Results", "Dataset", "Hyper-parameters"))
        assert one.unit
        assert one.kind in get_args(ClaimKind)
        assert one.sign in get_args(Sign)
        assert (one.value is True) == (one.unit == RELATION)
        assert one.how or one.value is not True
    tables = [*known.tasks.values(), *known.tables.values()]
    in_tables = [value for table in tables for row in table.numbers().values() for value in row.values()]
    assert not Counter(in_tables) - Counter(claim.value for claim in claims)  # every number of the tables is a claim


def test_every_paper_of_others_has_claims():
    assert papers_with_claims() == sorted({path.stem for path in FOLDER.glob("*.yaml")} - {"headtohead"})


@pytest.mark.parametrize("paper", papers_with_claims())
def test_what_a_paper_says_of_its_rows_and_tasks_is_of_rows_and_tasks_that_it_has(paper):
    """A name with a slip would silently change nothing."""
    own, known = load_claims(paper), load_paper(paper)
    tables = {**known.tasks, **known.tables}
    assert {*own.scale, *own.tables, *own.settings, *(model.task for model in own.models.values())} <= set(known.tasks)
    assert all((scale.epochs is None) != (scale.steps is None) for scale in own.scale.values())
    assert set(own.notes) <= {column for task in known.tasks.values() for column in task.columns}
    for name, keys in own.tables.items():
        assert set(keys) <= {*tables[name].numbers(), *tables[name].columns}
    for name, keys in own.numbers.items():
        for key in keys:
            row, column = key if isinstance(key, tuple) else (None, key)
            assert column in tables[name].columns
            assert row is None or row in tables[name].numbers()


@pytest.mark.parametrize(
    ("place", "value", "unit", "kind", "step"),
    [
        ("Table 3, Direct-8, BLEU", 28.9, "BLEU", "score", 0.1),
        ("Table 3, Direct-8, Parameters", 5373616, "parameters", "parameter count", 0),
        ("Table 3, Direct-8, Parameters of base", 100.07, "%", "arithmetic", 0.01),
        ("Table 6, Direct-16, Inference time", 42, "ms", "cost", 1),
        ("Table 2, C4, Validation tokens", 48.06, "millions", "setting", 0.01),
        ("Table 2, C4, Share of training tokens", 15, "%", "arithmetic", 0.01),
        ("§5.1, Average-3, training loss above Average-8's", 37, "%", "arithmetic", 1),
    ],
)
def test_a_claim_knows_its_unit_its_kind_and_its_last_digit(place, value, unit, kind, step):
    (claim,) = [claim for claim in claims_of("deacon") if claim.place == place]
    assert (claim.value, claim.unit, claim.kind, claim.step) == (value, unit, kind, pytest.approx(step))


# ---- mistakes

T3 = NumbersOf("translation")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (claim("it", "1 BLEU", itself, *T3("blue", "direct-8")), "column 'blue'"),
        (claim("it", "1 BLEU", itself, *NumbersOf("translatoin")("bleu", "direct-8")), "did you mean 'translation'"),
        (claim("it", "1 BLEU", itself, *T3.runs("bleu", "direct-9")), "no row 'direct-9'"),
        (claim("it", "1 BLEU", itself, *T3.runs("blue", "direct-8")), "measures 'blue'"),
        (claim("it", "1 BLEU", itself, T3.setting("model.head")), "measures 'config.model.head'"),
        (claim("it", "1 x", itself, Counted("qa")), "sizes are not known"),
        (claim("it", "1 x", itself, Examples("multi30k", "trian")), "multi30k.trian"),
        (claim("it", "1 x", higher, 1, 2), "a relation"),
        (relation("it", itself, 1), "a relation"),
        (claim("it", "1 x", ratio, 1, 0), "no result"),
        (claim("it", "1 BLUE", itself, *T3.runs("bleu", "direct-8")), "did you mean 'BLEU'"),
    ],
)
def test_a_mistake_in_a_claim_is_said_with_its_place(home, monkeypatch, mistake, message):
    scale = {"translation": Scale({"name": "multi30k"}, epochs=30)}
    monkeypatch.setitem(files.CLAIMS, "deacon", PaperClaims({"§1": [mistake]}, scale=scale))
    store(home, translation("direct-8"))
    with pytest.raises(ConfigError, match=f"^claims of deacon: §1, it: .*{re.escape(message)}"):
        ledger("deacon")


def test_a_paper_without_claims_is_said():
    with pytest.raises(ConfigError, match=r"'mh' are not known; did you mean 'mhr'\?$"):
        claims_of("mh")


# ---- as text

ROWS = [claims.Judgement(**row) for row in (
    {"paper": "a", "place": "Table 1, A, Parameters", "value": 5370112, "unit": "parameters", "kind": "parameter count",
     "verdict": CONTRADICTED, "ours": 5039104, "working": "Words 5,370,112", "cause": "Copied.", "grade": "slip"},
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
        "-v shows every claim and how it was computed, --verdict those with one verdict.",
    ]
    assert "        Words 5,370,112" in as_text(ROWS, verbose=True).splitlines()
    assert "    - §2, s: 0.5; here 0.5" in as_text(ROWS[-1:]).splitlines()  # of one verdict: its claims


def test_lines_are_as_wide_as_the_terminal(monkeypatch, everything):
    monkeypatch.setenv("COLUMNS", "72")
    assert max(map(len, as_text(list(everything.values()), verbose=True).splitlines())) <= 72
