"""The functions by which claims are computed, and how a result depends on its numbers."""

import inspect
import math

import pytest

from headdiv.companion.experiments.claims import functions
from headdiv.companion.experiments.claims.calls import Call, ClaimError, Given
from headdiv.companion.experiments.claims.files import claims_of, papers_with_claims
from headdiv.companion.experiments.papers.claims import deacon, deacon_lm, homeostasis, mhr

A, C, N = Given(28.1, 0.1, "BLEU", "Average-8"), Given(26.8, 0.1, "BLEU", "Average-3"), Given(5127586.0)
COLUMN = tuple(Given(value, 0.1) for value in (1.0, 4.0, 2.0))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (functions.percent(3, 8), 37.5),
        (functions.percent_of_total(13.5, [40.5, 13.5]), 25),
        (functions.percent_above(0.9887, 0.8211), 20.4116),
        (functions.percent_below(26.8, 28.1), 4.6263),
        (functions.difference(69.75, 68.63), 1.12),
        (functions.words(7, 4, 5), 4),
        (functions.whole_words(1027, 100, 103), 1027),
        (functions.whole_words(1028, 100, 103), 1027),
        (functions.whole_words(1029, 100, 103), 1030),
        (deacon.features(4), 14),
        (deacon.features(8), 44),
        (deacon_lm.least_days(354e6, 1, [300]), 6 * 354e6 * 300e9 / (8 * 989e12) / 86400),
        (deacon_lm.operations_saved(100, 100), 0),
        (homeostasis.eq_7(0), 0),
        (homeostasis.eq_7_with_b(1), 0.99**0.83),
        (homeostasis.eq_9(1, 1), 0),
        (mhr.mixtures(8), 1296),
        (mhr.with_heads_of_128(0), 18 * 4 * 512 * 512 + 18 * 3 * 512),
    ],
)
def test_a_function_computes(value, expected):
    assert value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("margins", "holds"),
    [
        (functions.higher(2, 1), True),
        (functions.higher(1, 1), False),
        (functions.lower(1, 2), True),
        (functions.lower(1, 1), False),
        (functions.not_higher(1, 1), True),
        (functions.not_higher(2, 1), False),
        (functions.within_half_a_point(28.0, 28.5), True),
        (functions.within_half_a_point(28.0, 28.75), False),
        (functions.within_half_a_point(28.75, 28.0), False),
        (functions.ascending([1, 2, 3]), True),
        (functions.ascending([1, 3, 3]), False),
        (functions.each_higher([2, 3], [1, 2]), True),
        (functions.each_higher([2, 2], [1, 2]), False),
        (functions.all_higher([3, 4], [1, 2]), True),
        (functions.all_higher([2, 4], [1, 2]), False),
        (functions.best_is_higher([1, 4], [2, 3]), True),
        (functions.best_is_higher([1, 3], [2, 3]), False),
        (functions.best_is_as_high([1, 3], [2, 3]), True),
        (functions.best_is_as_high([1, 2], [2, 3]), False),
        (functions.best_is_higher_in_each([1, 3], 2, [4], 3), True),
        (functions.all_higher_in_each([1, 3], 2, [4], 3), False),
        (functions.all_lower_in_each([1, 3], 4, [4], 5), True),
        (deacon.no_row_is_worse([1, 2], 1, [9, 8], 9), True),
        (deacon.no_row_is_worse([1, 2], 1, [9, 8], 8), False),
        (deacon.some_row_is_better([1, 2], 1, [9, 8], 9), True),
        (deacon_lm.lowest_in_each_column([1, 2], [1, 5], [2, 3]), True),
        (deacon_lm.lowest_in_each_column([1, 3], [1, 5], [2, 3]), False),
        (mhr.largest_gain(5, 1, [4, 3], [9, 8], 6), True),
        (mhr.largest_gain(5, 1, [4, 3], [9, 8], 5), False),
    ],
)
def test_a_relation_holds_where_no_margin_is_below_0(margins, holds):
    assert all(margin >= 0 for margin in margins) == holds


def test_every_function_of_a_claim_says_in_a_sentence_what_it_computes():
    claims = [claim for paper in papers_with_claims() for claim in claims_of(paper) if claim.how]
    used = {how.function for claim in claims for how in (claim.how, *claim.how.also.values())}
    assert all((inspect.getdoc(function) or "").endswith(".") for function in used)


# ---- how a result depends on its numbers


def test_the_spread_is_how_far_half_a_digit_of_each_number_moves_the_result():
    assert Call(functions.difference, (A, C)).spread() == pytest.approx(0.1)
    assert Call(functions.total, (COLUMN,)).spread() == pytest.approx(0.15)
    assert Call(functions.in_millions, (N,)).spread() == 0  # a count is not rounded
    assert Call(functions.lower, (A, C)).spread() == 0
    ratio = Call(functions.percent_below, (C, A))
    corners = [100 * (1 - (26.8 + one) / (28.1 + other)) for one in (-0.05, 0.05) for other in (-0.05, 0.05)]
    assert ratio.spread() == pytest.approx(max(abs(corner - ratio.value()) for corner in corners), rel=0.01)


def test_slopes_say_how_margins_depend_on_numbers():
    assert Call(functions.within_half_a_point, (A, C)).slopes() == [[1, -1], [-1, 1]]
    assert Call(functions.all_higher, ((A,), (C, Given(3.0)))).slopes() == [[1, -1, 0]]
    assert Call(functions.each_higher, ((A, Given(3.0)), (C, A))).slopes() == [[1, 0, -1, 0], [0, 1, 0, -1]]


@pytest.mark.parametrize("number", [0.0, math.inf])
def test_numbers_without_a_result_are_said(number):
    with pytest.raises(ClaimError, match="has no result"):
        Call(functions.ratio, (Given(number), Given(0.0))).value()


def test_in_words_a_call_shows_its_numbers_and_what_they_are():
    said = Call(functions.percent_below, (C, A)).text()
    assert said.startswith("By how many percent")
    assert said.endswith("(BLEU: Average-3 26.8, Average-8 28.1): 4.62633")
    assert Call(functions.itself, (A,)).text() == "BLEU: Average-8 28.1"
