"""IMI: the area under a curve, and why it is not Eq. 9 as printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.experiments.papers import task_of
from headdiv.tasks.imi import imi

CURVES = st.lists(st.floats(0, 1), min_size=2, max_size=30)


@given(CURVES)
def test_it_is_the_mean_of_the_trapezoids(curve):
    trapezoids = sum(curve[i + 1] + curve[i] for i in range(len(curve) - 1)) / (2 * (len(curve) - 1))
    assert imi(curve) == pytest.approx(trapezoids, abs=1e-12)
    assert -1e-12 <= imi(curve) <= 1 + 1e-12
    assert imi([100 * value for value in curve], ideal=100) == pytest.approx(imi(curve), abs=1e-12)


def test_the_perfect_model_has_one():
    assert imi([1.0] * 5) == 1
    assert imi([0, 1]) == 0.5
    assert imi([0, 0.5, 1]) == 0.5
    assert imi([0, 1, 1]) == 0.75


@given(CURVES)
def test_equation_9_as_printed_cannot_give_table_2(curve):
    """It telescopes, so no curve of shares reaches what the paper reports."""
    printed = sum(curve[i + 1] - curve[i] for i in range(len(curve) - 1)) / (2 * (len(curve) - 1))
    assert printed == pytest.approx((curve[-1] - curve[0]) / (2 * (len(curve) - 1)), abs=1e-12)
    reported = [row.reported["training_imi"] for row in task_of("homeostasis/memorisation").variants.values()]
    assert printed <= 0.5 + 1e-12 < min(reported)


@pytest.mark.parametrize("curve", [[], [0.3]])
def test_one_epoch_has_no_area(curve):
    with pytest.raises(ValueError, match=rf"^the curve must have at least 2 epochs, found {len(curve)}$"):
        imi(curve)
