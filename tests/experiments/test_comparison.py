"""Intervals over seeds; one additive model for all variants of a table, Dunnett's intervals, and equivalence."""

import math

import numpy as np
import pytest
from scipy import stats

from headdiv.companion.analysis.comparison import (
    Difference,
    against,
    contrasts,
    differences,
    simultaneous_quantile,
    uneven,
)
from headdiv.companion.analysis.statistics import interval


def test_an_interval_of_three_seeds():
    three = interval([30.0, 31.0, 32.0])
    assert (three.mean, three.count) == (31.0, 3)
    assert three.half == pytest.approx(4.302653 * 1.0 / math.sqrt(3), rel=1e-6)
    assert (three.low, three.high) == (31.0 - three.half, 31.0 + three.half)


def test_one_seed_has_no_interval_and_none_no_mean():
    assert interval([4.0]).mean == 4.0
    assert all(math.isnan(x) for x in (interval([4.0]).half, interval([4.0]).low, interval([]).mean))
    assert math.isnan(interval([1.0, math.nan]).mean)
    assert interval([2.0, 2.0]).half == 0


# ---- several variants

# Dunnett 1955 and 1964, two-sided 5 %, by (treatments, degrees of freedom), equal group sizes.
DUNNETT = {(1, 10): 2.23, (2, 10): 2.57, (4, 10): 2.89, (3, 20): 2.54, (9, 20): 2.95, (5, 60): 2.58}


@pytest.mark.parametrize("case", DUNNETT)
def test_quantiles_are_those_of_dunnetts_tables(case):
    treatments, freedom = case
    R = np.full((treatments, treatments), 0.5) + 0.5 * np.eye(treatments)
    assert simultaneous_quantile(R, freedom) == pytest.approx(DUNNETT[case], abs=0.006)


def test_quantiles_are_those_of_the_multivariate_t_distribution():
    R = np.array([[1.0, 0.3, 0.7], [0.3, 1.0, 0.2], [0.7, 0.2, 1.0]])
    c = simultaneous_quantile(R, 7)
    inside = stats.multivariate_t(shape=R, df=7, seed=1).cdf(np.full(3, c), lower_limit=np.full(3, -c))
    assert inside == pytest.approx(0.95, abs=5e-4)


@pytest.mark.parametrize("variants", [3, 5])
def test_quantiles_of_all_pairs_are_those_of_the_studentised_range(variants):
    """Differences of all pairs depend on each other: their correlations are singular."""
    D = np.array([np.eye(variants)[i] - np.eye(variants)[j] for i in range(variants) for j in range(i)])
    expected = stats.studentized_range.ppf(0.95, variants, 12) / math.sqrt(2)
    assert simultaneous_quantile(D @ D.T / 2, 12) == pytest.approx(expected, rel=1e-3)


def balanced(seed=0, variants=4, seeds=3, scale=1.0):
    rng = np.random.default_rng(seed)
    luck = rng.normal(size=seeds)
    return {f"v{v}": {s: float(v + luck[s] + scale * rng.normal()) for s in range(seeds)} for v in range(variants)}


def test_intervals_hold_together():
    """Of 300 tables without any difference one in twenty has an interval that leaves out 0."""
    wrong = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        scores = {f"v{v}": {s: float(x) for s, x in enumerate(rng.normal(size=3))} for v in range(6)}
        wrong += any(abs(difference.mean) > difference.half for difference in against(scores, "v0").values())
    assert 5 <= wrong <= 27


def test_what_cannot_be_judged_has_no_interval():
    one_seed = {"a": {1: 1.0}, "b": {1: 2.0}}
    assert against(one_seed, "a")["b"].mean == 1.0
    assert math.isnan(against(one_seed, "a")["b"].half)
    other_seeds = {"a": {1: 1.0, 2: 2.0}, "b": {3: 2.0}, "c": {1: 2.0, 2: 5.0}}
    assert math.isnan(against(other_seeds, "a")["b"].mean)
    assert against(other_seeds, "a")["c"].half > 0
    assert against({"b": {1: 1.0}}, "a") == {}


def test_rounding_is_no_residual():
    """Runs that differ by constants alone: nothing is left that an interval, or a test for uneven rows, could be of."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        seeds, means = rng.uniform(0, 40, 3), rng.uniform(0, 40, 6)
        scores = {f"v{row}": dict(enumerate((mean + seeds).tolist())) for row, mean in enumerate(means)}
        assert {difference.half for difference in against(scores, "v0").values()} == {0.0}
        assert uneven(scores) == set()


def test_an_interaction_is_a_difference_of_differences():
    scores = balanced(variants=4, seeds=5)
    (interaction,) = contrasts(scores, [{"v3": 1, "v2": -1, "v1": -1, "v0": 1}])
    pairs = differences(scores, [("v3", "v2"), ("v1", "v0")])
    assert interaction.mean == pytest.approx(pairs["v3", "v2"].mean - pairs["v1", "v0"].mean)
    assert interaction.error == pytest.approx(math.sqrt(2) * pairs["v1", "v0"].error)
    assert interaction.count == 5


def test_equivalence_is_two_one_sided_tests():
    difference = Difference(0.1, 0.3, 3, 0.2, 10)
    upper, lower = (stats.t.sf((0.5 + sign * 0.1) / 0.2, 10) for sign in (-1, 1))
    assert difference.equivalence(0.5) == pytest.approx(max(upper, lower))
    # 5 % of equivalence is the 90 % interval within the margin.
    edge = 0.1 + stats.t.ppf(0.95, 10) * 0.2
    assert difference.equivalence(edge) == pytest.approx(0.05)
    assert math.isnan(Difference(0.1, math.nan, 1).equivalence(0.5))


def test_a_variant_that_collapses_widens_no_interval_but_its_own():
    scores = balanced(variants=8)
    plain = against(scores, "v0")["v1"].half
    scores["v7"] = {0: -30.0, 1: 90.0, 2: 5.0}
    assert uneven(scores) == {"v7"}
    estimates = against(scores, "v0")
    assert estimates["v1"].half < 1.5 * plain
    student = interval([scores["v7"][s] - scores["v0"][s] for s in range(3)])
    assert (estimates["v7"].mean, estimates["v7"].half) == pytest.approx((student.mean, student.half))


def test_fewer_than_four_variants_tell_of_none_that_it_is_uneven():
    for variants, expected in ((3, set()), (4, {"v1"})):
        scores = balanced(variants=variants, seeds=30)
        scores["v1"] = {seed: 50 * (-1.0) ** seed for seed in range(30)}
        assert uneven(scores) == expected


def test_equally_uncertain_variants_are_hardly_ever_left_out():
    assert sum(bool(uneven(balanced(seed, variants=8))) for seed in range(200)) <= 2


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_estimates_and_errors_are_those_of_least_squares_with_a_column_for_each_variant_and_seed(share):
    """A literal twin: the pseudoinverse of the design, of balanced tables and of tables that fall into parts."""
    rng = np.random.default_rng(round(10 * share))
    runs = [(v, s, rng.normal()) for v in "abcdef" for s in range(7) if rng.random() < share]
    scores = {v: {s: y for w, s, y in runs if w == v} for v in dict.fromkeys(v for v, *_ in runs)}
    variants, seeds = list(scores), sorted({s for _, s, _ in runs})
    X = np.array([[*(v == w for w in variants), *(s == t for t in seeds)] for v, s, _ in runs], dtype=float)
    y = np.array([y for *_, y in runs])
    fitted = np.linalg.pinv(X) @ y
    freedom = len(runs) - np.linalg.matrix_rank(X)
    sigma = math.sqrt(((y - X @ fitted) ** 2).sum() / freedom)
    pairs = [(v, w) for v in variants for w in variants if v < w]
    for (v, w), difference in differences(scores, pairs).items():
        if not scores[v].keys() & scores[w].keys():
            assert math.isnan(difference.mean)
            continue
        C = np.array([(u == v) - (u == w) for u in variants] + [0] * len(seeds))
        spread = C @ np.linalg.pinv(X)
        expected = C @ fitted, sigma * np.linalg.norm(spread), freedom
        np.testing.assert_allclose(
            (difference.mean, difference.error, difference.freedom), expected, rtol=1e-11, atol=2e-12
        )


def test_what_is_no_difference_is_refused():
    scores = {"a": {1: 10.0, 2: 11.0}, "b": {1: 10.5, 2: 11.2}}
    with pytest.raises(ValueError, match=r"weights: found \{'a': 1.0\}, expected numbers that add up to 0"):
        contrasts(scores, [{"a": 1.0}])
    with pytest.raises(ValueError, match=r"weights: found \{'a': -1.0\}, expected numbers that add up to 0"):
        differences(scores, [("a", "a")])
