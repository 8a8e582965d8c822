"""Which stored runs decide a claim, and each verdict on what was measured."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from claimed import at, hours, store, translation
from scipy import stats

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.statistics import coefficient_of_variation
from headdiv.companion.experiments.claims.ledger import ledger
from headdiv.companion.experiments.claims.verdicts import (
    ABOVE,
    AGREES,
    CONFIRMED,
    DIFFERS,
    NOT_COMPARABLE,
    NOT_RUN,
    REFUTED,
    UNDECIDED,
    USED,
)
from headdiv.core.files import write_text

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results.md"
BLEU = "Table 3, {}, BLEU"
HIGHER = "§5.1, Direct-8, a higher BLEU than the baseline's, measured"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is stored but what a test stores."""
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    return tmp_path


def seeds(variant, scores, **values):
    return [translation(variant, seed, bleu=bleu, **values) for seed, bleu in enumerate(scores, 1)]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ((28.3, 28.4, 28.5), CONFIRMED),  # the paper: 28.4, tolerance 1; its largest effect is Average-3's, 1.6
        ((27.4, 28.4, 29.4), UNDECIDED),  # the interval over seeds is wider than the tolerance
        ((26.0, 26.1, 26.2), REFUTED),
        ((30.2, 30.3, 30.4), ABOVE),
        ((28.4,), UNDECIDED),
        ((40.0,), UNDECIDED),
    ],
)
def test_at_the_papers_scale_the_interval_over_seeds_decides(home, scores, verdict):
    store(home, *seeds("baseline", scores))
    row = at(BLEU.format("Baseline Transformer"))
    assert (row.verdict, row.ours) == (verdict, pytest.approx(sum(scores) / len(scores)))
    assert (row.profile, len(row.runs)) == ("full", len(scores))
    if len(scores) > 1:
        assert row.cv == coefficient_of_variation([28.4, *scores])
        assert ", interval over 3 seeds " in row.working
        assert "; CV* of the paper's and ours " in row.working
    else:
        assert row.cv is None
        assert f"{scores[0]:g} (tolerance 1), and one seed has no interval; profile full: multi30k" in row.working


@pytest.mark.parametrize(("score", "verdict"), [(28.4, AGREES), (26.0, DIFFERS), (30.25, ABOVE)])
def test_a_short_run_decides_nothing_for_good_and_more_than_the_papers_is_above(home, score, verdict):
    store(home, *seeds("baseline", (score,), epochs=10))
    row = at(BLEU.format("Baseline Transformer"))
    assert (row.verdict, row.ours) == (verdict, score)
    assert "; profile full, a short run: multi30k, " in row.working


@pytest.mark.parametrize(("loss", "epochs"), [(0.5, 10), (0.5, 30), (0.82, 30), (0.9, 30)])
def test_a_loss_that_is_measured_otherwise_than_the_papers_is_not_comparable(home, loss, epochs):
    runs = seeds("baseline", (28.3, 28.4, 28.5), epochs=epochs)
    for run in runs:
        run["scores"]["training_loss"]["value"] = loss
    store(home, *runs)
    row = at("Table 3, Baseline Transformer, Training loss")
    assert row.verdict == NOT_COMPARABLE
    assert "training mode, with dropout" in row.working
    assert "recipe" in row.working
    assert "recipe" not in at(BLEU.format("Baseline Transformer")).working


@pytest.mark.parametrize(
    ("label", "variant", "scores", "epochs", "verdict"),
    [
        ("Direct-8", "direct-8", (28.8, 28.9, 29.0), 30, UNDECIDED),  # 0.5 above the baseline, tolerance 1
        ("Direct-8", "direct-8", (28.8, 28.9, 29.0), 10, AGREES),
        ("Direct-8", "direct-8", (25.8, 25.9, 26.0), 30, REFUTED),
        ("Average-3", "average-3", (26.7, 26.8, 26.9), 30, CONFIRMED),  # 1.6 below it
    ],
)
def test_a_tolerance_as_large_as_the_papers_effect_confirms_nothing(home, label, variant, scores, epochs, verdict):
    store(home, *seeds(variant, scores, epochs=epochs))
    row = at(BLEU.format(label))
    assert row.verdict == verdict
    said = "tolerance is not smaller than the paper's own effect, 0.5" in row.working
    assert said == (verdict in (UNDECIDED, AGREES))


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [((1.0, 1.1, 1.2), CONFIRMED), ((-1.0, -1.1, -1.2), REFUTED), ((-0.5, 1.0, 1.0), UNDECIDED), ((1.0,), UNDECIDED)],
)
def test_a_relation_is_decided_by_the_differences_within_seeds(home, gains, verdict):
    """Scores of two seeds may lie far apart: what counts is the difference within a seed."""
    store(home, *seeds("baseline", range(28, 28 + len(gains))))
    store(home, *seeds("direct-8", [28 + seed + gain for seed, gain in enumerate(gains)]))
    row = at(HIGHER)
    assert (row.verdict, row.ours) == (verdict, sum(gains) > 0)
    assert (f"difference over {len(gains)} seeds" in row.working) == (len(gains) > 1)


@pytest.mark.parametrize("third", [None, (33.0, 31.0, 30.0)])
def test_the_residual_of_a_relation_is_pooled_over_all_rows_of_its_table(home, third):
    """By hand: residuals from means of rows and seeds, and a standard error of √(2 s² / 3)."""
    scores = {"baseline": (28.0, 29.0, 30.0), "direct-8": (29.0, 30.1, 31.3), "average-3": third}
    scores = {variant: of for variant, of in scores.items() if of}
    for variant, of in scores.items():
        store(home, *seeds(variant, of))
    store(home, *seeds("average-8", (1.0, 40.0, 1.0), epochs=20))  # of other settings, and left out
    Y = np.array(list(scores.values()))  # (rows, seeds)
    residual = Y - Y.mean(1, keepdims=True) - Y.mean(0) + Y.mean()
    freedom = 2 * (len(Y) - 1)
    quantile = stats.t.ppf(0.975, freedom)
    if third:  # then two rows are compared with the baseline: Dunnett's
        quantile = comparison.simultaneous_quantile(np.array([[1, 0.5], [0.5, 1]]), freedom)
    half = quantile * math.sqrt(2 / 3 * (residual**2).sum() / freedom)
    gain = Y[1].mean() - Y[0].mean()
    row, ends = at(HIGHER), f"{gain - half:.4g} to {gain + half:.4g}"
    assert row.verdict == (UNDECIDED if third else CONFIRMED)
    assert f"over 3 seeds {ends} (residual degrees of freedom: {freedom})" in row.working


def test_direct_8s_accuracy_has_the_interval_of_its_table(monkeypatch):
    """Student's of this pair alone would confirm it, where docs/results.md leaves it undecided."""
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    row = at("§5.1, Direct-8, a higher accuracy than the baseline's, measured")
    assert row.verdict == UNDECIDED
    rows = (line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| Direct-8 |"))
    (cells,) = (cells for cells in rows if len(cells) == 8)  # of Table 3
    mean, half = map(float, cells[3].split("±"))
    low, high = map(float, re.search(r"seeds (\S+) to (\S+) \(", row.working).groups())
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.01)


def test_a_short_run_agrees_with_a_relation_or_differs(home):
    store(home, translation("baseline", bleu=31.0, epochs=10), translation("direct-8", bleu=32.2, epochs=10))
    assert (at(HIGHER).verdict, at(HIGHER).ours, at(HIGHER).value) == (AGREES, True, True)
    store(home, translation("direct-8", bleu=31.0, epochs=10))
    assert at(HIGHER).verdict == DIFFERS  # equal is not higher
    assert ": false; profile full, a short run: " in at(HIGHER).working


def test_a_difference_within_bounds_is_two_comparisons(home):
    store(home, *seeds("baseline", (30.0, 30.1, 30.2)), *seeds("direct-3", (30.1, 30.1, 30.2)))
    place = "§5.1, Direct-3, BLEU within half a point of the baseline's, measured"
    assert at(place).verdict == CONFIRMED
    store(home, *seeds("direct-3", (31.1, 31.1, 31.2)))
    assert at(place).verdict == REFUTED


def test_scores_are_means_over_the_seeds_that_all_rows_have(home):
    store(home, *(translation("direct-8", seed, bleu=bleu) for seed, bleu in ((1, 30.0), (2, 31.0), (3, 20.0))))
    store(home, *(translation("baseline", seed, bleu=29.4) for seed in (1, 2)))
    assert (
        "Direct-8 30.5, Baseline Transformer 29.4): true, difference over 2 seeds -5.253 to 7.453" in at(HIGHER).working
    )
    assert at(HIGHER).working.endswith("seeds 1, 2")
    assert at(BLEU.format("Direct-8")).ours == 27


@pytest.mark.parametrize(
    "change",
    [
        {"data": "toy"},
        {"data": "multi30k-sample"},
        {"examples": 1014},
        {"share": 0.1},
        {"d_model": 64},
        {"encoder_layers": 1},
        {"epochs": 9},
        {"method": {"delta_p": 0.05}},
    ],
)
def test_what_is_not_the_papers_decides_nothing_but_is_named(home, change):
    store(home, translation("direct-8", bleu=28.9, **change), profile="other")
    row = at(BLEU.format("Direct-8"))
    assert (row.verdict, row.ours) == (NOT_RUN, None)
    assert row.working.endswith(f"other ({change.get('data', 'multi30k')}, {change.get('epochs', 30)} epochs)")


def test_the_profile_nearest_to_the_paper_decides(home):
    store(home, translation("direct-8", bleu=28.9, epochs=10), profile="short")
    store(home, translation("direct-8", bleu=25.0, epochs=20), profile="longer")
    assert at(BLEU.format("Direct-8")).ours == 25
    assert at(BLEU.format("Direct-8")).profile == "longer"


def test_a_run_that_cannot_be_read_is_left_out_and_named_once(home, caplog):
    store(home, translation("direct-8", bleu=28.9, epochs=10))
    broken = home / "results" / "other" / "deacon" / "translation" / "direct-8" / "seed1" / "metrics.json"
    write_text(broken, "{")
    row = next(row for row in ledger() if row.place == BLEU.format("Direct-8"))
    assert (row.verdict, row.profile) == (AGREES, "full")
    (said,) = caplog.messages
    assert str(broken) in said


def test_runs_of_different_length_are_not_compared(home):
    store(home, translation("baseline", bleu=30.0), translation("direct-8", bleu=32.0, epochs=20))
    assert at(HIGHER).verdict == NOT_RUN


@pytest.mark.parametrize(("section", "key", "value"), [("train", "learning_rate", 0.5), ("decode", "beam", 1)])
def test_runs_of_other_settings_are_not_compared(home, section, key, value):
    base, other = translation("baseline", bleu=30.0), translation("direct-8", bleu=32.0)
    store(home, base, other)
    assert at(HIGHER).verdict == UNDECIDED
    base["config"]["decode"] = {"beam": 5}
    other["config"]["decode"] = {"beam": 5}
    other["config"][section] |= {key: value}
    store(home, base, other)
    assert at(HIGHER).verdict == NOT_RUN
    assert at(BLEU.format("Direct-8")).ours == 32


def test_a_setting_that_a_run_had_is_used_and_no_result(home):
    store(home, translation("baseline", epochs=20), translation("direct-8", epochs=20))
    assert at("§5.1, settings, δP").verdict == USED
    epochs = at("§5.1, settings, epochs")
    assert (epochs.verdict, epochs.ours) == (NOT_RUN, 20)


def test_what_the_heads_do_decides_too(home):
    store(home, translation("direct-8"))
    row = at("§5.1, Figure 6, length of the columns of w in Direct-8")
    assert row.verdict == NOT_RUN  # these metrics do not have it
    run = translation("direct-8")
    run["heads"]["pca_weights"] = {
        "encoder.0": {"column_lengths": [0.9, 1.0]},
        "cross.0": {"column_lengths": [1.1, 1.0]},
    }
    store(home, run)
    assert at(row.place).ours == pytest.approx(1.0)


def test_what_spreads_with_m_is_pooled_over_the_compared_rows_alone(home):
    cosines = {"direct-8": (0.02, 0.021, 0.022), "average-8": (0.04, 0.042, 0.041), "direct-3": (0.1, 0.5, 0.3)}
    for variant, of_seeds in cosines.items():
        for seed, cosine in enumerate(of_seeds, 1):
            run = translation(variant, seed)
            run["heads"]["pca_weights"] = {"encoder.0": {"mean_absolute_cosine": cosine}}
            store(home, run)
    row = at("§5.1, Figure 6, Direct-8's columns are nearer to orthogonal than Average-8's")
    assert row.verdict == CONFIRMED
    assert "freedom: 2)" in row.working


def test_times_are_compared_on_one_machine_and_hours_on_the_papers_alone(home):
    store(home, hours("baseline", 2.0), hours("dpp-a", 4.2), hours("dpp-v", 4.2, device="another GPU"))
    place = "Results, between the columns, time of {} against vanilla, measured"
    row = at(place.format("DPP (A)"), "dpp")
    assert (row.verdict, row.ours, row.kind) == (UNDECIDED, 2.1, "cost")
    assert ": 2.1 (tolerance 0.202), and one seed has no interval; profile full: " in row.working
    assert row.working.endswith(", seed 1, a GPU")
    assert at(place.format("DPP (V)"), "dpp").verdict == NOT_RUN
    assert at("Results, DPP (A), Time", "dpp").verdict == NOT_RUN
