"""IMI: the area under a curve, and why it is not Eq. 9 as printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.tasks.imi import imi

CURVES = st.lists(st.floats(0, 1), min_size=2, max_size=30)


@given(CURVES)
def test_it_is_the_mean_of_the_trapezoids(curve):
    trapezoids = sum(curve[i + 1] + curve[i] for i in range(len(curve) - 1)) / (2 * (len(curve) - 1))
    assert imi(curve) == pytest.approx(trapezoids, abs=1e-12)
    assert -1e-12 <= imi(curve) <= 1 + 1e-12
    assert imi([100 * value for value in curve], ideal=100) == pytest.approx(imi(curve), abs=1e-12)
