"""Which stored runs decide a claim, and each verdict on what was measured."""

import math

import numpy as np
import pytest
from claimed import at, store, translation
from scipy import stats

from headdiv.companion.analysis import comparison
from headdiv.companion.experiments.claims.ledger import (
    CONFIRMED,
    NOT_COMPARABLE,
    NOT_RUN,
    REFUTED,
    UNDECIDED,
)
from headdiv.core.files import write_text

HIGHER = "§5.1, Direct-8, BLEU of Direct-8 is higher than that of Baseline Transformer"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Nothing is stored but what a test stores."""
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    return tmp_path


def seeds(variant, scores, **values):
    return [translation(variant, seed, bleu=bleu, **values) for seed, bleu in enumerate(scores, 1)]


def test_a_loss_that_is_measured_otherwise_than_the_papers_is_not_comparable(home):
    runs = seeds("baseline", (28.3, 28.4, 28.5)) + seeds("direct-8", (28.3, 28.4, 28.5))
    for run in runs:
        run["scores"]["training_loss"]["value"] = 0.5 + 0.01 * run["seed"]
    store(home, *runs)
    row = at("§5.1, Direct-8, Training loss of Direct-8 is lower than that of Baseline Transformer")
    assert row.verdict == NOT_COMPARABLE
    assert "training mode, with dropout" in row.working
    assert "training mode" not in at(HIGHER).working


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((1.0, 1.1, 1.2), CONFIRMED),
        ((-1.0, -1.1, -1.2), REFUTED),
        ((-0.5, 1.0, 1.0), UNDECIDED),
        ((1.0,), UNDECIDED),
        ((0.0, 0.0, 0.0), REFUTED),  # equal is not higher
    ],
)
def test_a_relation_is_decided_by_the_differences_within_seeds(home, gains, verdict):
    """Scores of two seeds may lie far apart: what counts is the difference within a seed."""
    store(home, *seeds("baseline", range(28, 28 + len(gains))))
    store(home, *seeds("direct-8", [28 + seed + gain for seed, gain in enumerate(gains)]))
    row = at(HIGHER)
    assert (row.verdict, row.value, row.ours) == (verdict, True, sum(gains) > 0)


@pytest.mark.parametrize("third", [None, (33.0, 31.0, 30.0)])
def test_the_residual_of_a_relation_is_pooled_over_all_rows_of_its_table(home, third):
    """By hand: residuals from means of rows and seeds, and a standard error of √(2 s² / 3)."""
    scores = {"baseline": (28.0, 29.0, 30.0), "direct-8": (29.0, 30.1, 31.3), "average-3": third}
    scores = {variant: of for variant, of in scores.items() if of}
    for variant, of in scores.items():
        store(home, *seeds(variant, of))
    store(home, *seeds("average-8", (1.0, 40.0, 1.0), epochs=40))  # of other settings, and left out
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
    assert f"({ends} over 3 seeds, residual degrees of freedom: {freedom})" in row.working


def test_a_difference_within_bounds_may_lie_on_either_side(home):
    store(home, *seeds("baseline", (30.0, 30.1, 30.2)), *seeds("direct-3", (30.1, 30.1, 30.2)))
    place = "§5.1, Direct-3, BLEU of Direct-3 is within half a point of that of Baseline Transformer"
    assert at(place).verdict == CONFIRMED
    for scores in ((31.1, 31.1, 31.2), (29.1, 29.1, 29.2)):
        store(home, *seeds("direct-3", scores))
        assert at(place).verdict == REFUTED


def test_scores_are_means_over_the_seeds_that_both_rows_have(home):
    store(home, *(translation("direct-8", seed, bleu=bleu) for seed, bleu in ((1, 30.0), (2, 31.0), (3, 20.0))))
    store(home, *(translation("baseline", seed, bleu=29.4) for seed in (1, 2)))
    assert at(HIGHER).working == (
        "30.5 against 29.4, difference 1.1 (-5.253 to 7.453 over 2 seeds, residual degrees of freedom: 1); "
        "profile full: multi30k, 30 epochs, seeds 1, 2"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"data": "toy"},
        {"data": "multi30k-sample"},
        {"examples": 1014},
        {"share": 0.1},
        {"d_model": 64},
        {"encoder_layers": 1},
        {"epochs": 29},
        {"method": {"delta_p": 0.05}},
    ],
)
def test_what_is_not_the_papers_decides_nothing(home, change):
    store(home, *seeds("baseline", (28.4, 28.5)), *seeds("direct-8", (28.9, 29.0), **change))
    assert (at(HIGHER).verdict, at(HIGHER).ours) == (NOT_RUN, None)


def test_the_profile_with_the_most_seeds_decides_and_a_run_that_cannot_be_read_is_left_out(home, caplog):
    store(home, translation("baseline", bleu=28.9), translation("direct-8", bleu=20.0), profile="one")
    store(home, *seeds("baseline", (25.0, 25.0)), *seeds("direct-8", (26.0, 26.0)), profile="two")
    broken = home / "results" / "other" / "deacon" / "translation" / "baseline" / "seed1" / "metrics.json"
    write_text(broken, "{")
    row = at(HIGHER)
    assert (row.verdict, row.ours) == (CONFIRMED, True)
    assert "profile two" in row.working
    (warning,) = caplog.messages
    assert str(broken) in warning


@pytest.mark.parametrize(("section", "key", "value"), [("train", "learning_rate", 0.5), ("decode", "beam", 1)])
def test_runs_of_other_settings_are_not_compared(home, section, key, value):
    base, other = translation("baseline", bleu=30.0), translation("direct-8", bleu=32.0)
    base["config"]["decode"] = {"beam": 5}
    other["config"]["decode"] = {"beam": 5}
    store(home, base, other)
    assert at(HIGHER).verdict == UNDECIDED
    other["config"][section] |= {key: value}
    store(home, base, other)
    assert at(HIGHER).verdict == NOT_RUN


def test_what_spreads_with_m_is_pooled_over_the_compared_rows_alone(home):
    place = "§5.1, Figure 6, mean absolute cosine of Direct-8 is lower than that of Average-8"
    cosines = {"direct-8": (0.02, 0.021, 0.022), "average-8": (0.04, 0.042, 0.041), "direct-3": (0.1, 0.5, 0.3)}
    for variant, of_seeds in cosines.items():
        for seed, cosine in enumerate(of_seeds, 1):
            run = translation(variant, seed)
            run["heads"]["pca_weights"] = {"encoder.0": {"mean_absolute_cosine": cosine}}
            store(home, run)
    assert at(place).verdict == CONFIRMED
    assert "freedom: 2)" in at(place).working
