"""Workings: what is allowed, what they come to, and how far rounding can move them."""

import math

import pytest
from faulty import exactly
from hypothesis import given
from hypothesis import strategies as st

from headdiv.companion.experiments.claims.arithmetic import Printed, Working, WorkingError

KNOWN = {
    "a.b": Printed(28.1, 0.1),
    "c": Printed(26.8, 0.1),
    "n": Printed(5127586),
    "t.all.x": (Printed(1.0, 0.1), Printed(4.0, 0.1), Printed(2.0, 0.1)),
}

numbers = st.integers(0, 50) | st.floats(0.01, 50).map(lambda value: float(f"{value:.2f}"))
expressions = st.recursive(
    numbers.map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda part: f"-{part}"),
        inner.map(lambda part: f"{part} ** 2" if part.isdigit() else f"({part}) ** 2"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda parts: "{}({}, {})".format(*parts)),
        inner.map(lambda part: f"round({part}, 1)"),
        inner.map(lambda part: f"abs({part})"),
    ),
    max_leaves=8,
)


@given(expressions)
def test_arithmetic_is_pythons(text):
    try:
        expected = eval(text)  # of digits and operators that this test made itself
    except (ZeroDivisionError, OverflowError):
        with pytest.raises(WorkingError, match="has no result"):
            Working(text).value({})
        return
    value = Working(text).value({})
    assert value == expected or math.isclose(value, expected, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100 * (1 - c / a.b)", 100 * (1 - 26.8 / 28.1)),
        ("sum(t.all.x) + n", 5127593),
        ("max(t.all.x, 3)", 4),
        ("min(t.all.x) == 1 and 1 < 2 <= 2", True),
        ("1 > 2 and 1 < 2", False),
        ("round(7 / 3)", 2),
        ("round(7 / 3, 2)", 2.33),
        ("2 ** -1", 0.5),
        ("a.b\n  - c", pytest.approx(1.3)),
    ],
)
def test_a_working_comes_to(text, value):
    assert Working(text).value(KNOWN) == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("__import__('os')", "__import__('os')"),
        ("a.b()", "a.b()"),
        ("_a", "_a"),
        ("[1, 2]", "[1, 2]"),
        ("'x' + 1", "'x'"),
        ("True", "True"),
        ("lambda: 1", "lambda: 1"),
        ("1 if 2 else 3", "1 if 2 else 3"),
        ("max(*t)", "*t"),
        ("round(1, ndigits=2)", "round(1, ndigits=2)"),
        ("sum()", "sum()"),
        ("7 % 4", "7 % 4"),
        ("1 < 2 or 2 < 1", "1 < 2 or 2 < 1"),
        ("a := 1", None),
        ("", None),
    ],
)
def test_what_is_not_allowed_is_refused_before_anything_is_worked_out(text, found):
    message = f"{text!r} is no expression"
    if found:
        message = (
            f"{found!r} has no place in a working; allowed are numbers, + - * / **, comparisons, 'and', "
            "dotted names and round, abs, min, max, sum"
        )
    with exactly(message, WorkingError):
        Working(text)


def test_a_working_is_plain_ascii():
    with pytest.raises(WorkingError, match=r"^'1 − 2' is not plain ASCII$"):
        Working("1 − 2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / (c - c)", "'1 / (c - c)' has no result"),
        ("9 ** 9 ** 9 ** 9", "'9 ** 9 ** 9 ** 9' has no result"),
        ("t.all.x", "'t.all.x' has no result"),
        ("sum(2 * t.all.x)", "'sum(2 * t.all.x)' has no result"),
        ("d + 1", "'d' is not known"),
        ("a + 1", "'a' is not known"),
    ],
)
def test_numbers_that_make_nothing_are_said(text, message):
    with exactly(message, WorkingError):
        Working(text).value(KNOWN)


def test_the_spread_is_how_far_half_a_digit_of_each_number_moves_the_result():
    assert Working("a.b - c").spread(KNOWN) == pytest.approx(0.1)
    assert Working("sum(t.all.x)").spread(KNOWN) == pytest.approx(0.15)
    assert Working("2 * n").spread(KNOWN) == 0  # a count is not rounded
    assert Working("a.b < c").spread(KNOWN) == 0
    ratio = Working("100 * (1 - c / a.b)")
    corners = [100 * (1 - (26.8 + one) / (28.1 + other)) for one in (-0.05, 0.05) for other in (-0.05, 0.05)]
    assert ratio.spread(KNOWN) == pytest.approx(max(abs(c - ratio.value(KNOWN)) for c in corners), rel=0.01)


def test_slopes_say_how_margins_depend_on_numbers():
    known = {"a": Printed(28.1), "b": Printed(26.8), "c": Printed(3.0)}
    assert Working("-0.5 <= 2 * a - b <= 0.5 and c > 1").slopes(known, known) == [
        {"a": 2, "b": -1},
        {"a": -2, "b": 1},
        {"c": 1},
    ]
    assert Working("a > max(b, c)").slopes(known, known) == [{"a": 1, "b": -1}]


def test_filled_in_it_shows_its_numbers():
    text = "100 * (1 - c / a.b) + max(t.all.x) - n"
    assert Working(text).filled(KNOWN) == "100 * (1 - 26.8 / 28.1) + max(1, 4, 2) - 5127586"
    assert Working("c < a.b\n and a.b < 30").filled(KNOWN) == "26.8 < 28.1 and 28.1 < 30"


@given(expressions)
def test_filled_in_it_comes_to_the_same(text):
    working = Working(f"({text}) + c")
    try:
        value = working.value(KNOWN)
    except WorkingError:
        return
    assert Working(working.filled(KNOWN)).value({}) == value
