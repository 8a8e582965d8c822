"""Workings: the small expressions by which a claim is recomputed. They are parsed and walked, never executed.

    100 * (1 - translation.direct_8.training_loss / translation.baseline.training_loss)

Allowed are numbers, ``+ - * / **``, parentheses, comparisons, ``and``, the functions of `FUNCTIONS`, and dotted
names, which stand for one number or, as arguments of ``min``, ``max`` and ``sum``, for several.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from simpleeval import SimpleEval

NAME = re.compile(r"(?<![\w.])(?!and\b)[A-Za-z]\w*(?:\.[A-Za-z]\w*)*(?![\w.(])")  # no name of a function


@dataclass(frozen=True, eq=False)
class _Several:
    """Numbers under one name; arithmetic with them is a TypeError."""

    values: tuple[float, ...]


def _of_many(function: Callable[[Iterable[float]], float]) -> Callable[..., float]:
    return lambda *values: function(one for v in values for one in (v.values if isinstance(v, _Several) else (v,)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "round": round,
    "abs": abs,
    "min": _of_many(min),
    "max": _of_many(max),
    "sum": _of_many(sum),
}
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: lambda base, exponent: float(base) ** exponent,  # of floats, so that no integer grows without end
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
TIE = 1e-12
MOVE = 1e-6  # by which a number is moved to see how a margin depends on it
NODES = (*OPERATORS, ast.And, ast.Load, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp)
ALLOWED = f"numbers, + - * / **, comparisons, 'and', dotted names and {', '.join(FUNCTIONS)}"


class WorkingError(ValueError):
    """A working cannot be read, or its numbers have no result."""


@dataclass(frozen=True)
class Printed:
    """A number as it is printed.

    Attributes:
        value: the number.
        step: one unit of its last printed digit, so that what was rounded lay within half of it; 0: exact.
    """

    value: float
    step: float = 0.0


Known = Mapping[str, Printed | tuple[Printed, ...]]


class Working:
    """An expression that has been checked; line breaks and runs of spaces count as one space.

    Raises:
        WorkingError: it holds anything but what is allowed, or is no expression.
    """

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        if not self.text.isascii():
            raise WorkingError(f"{self.text!r} is not plain ASCII")
        try:
            self.tree = ast.parse(self.text, mode="eval").body
        except SyntaxError:
            raise WorkingError(f"{self.text!r} is no expression") from None
        for node in ast.walk(self.tree):
            if not _allowed(node):
                found = ast.get_source_segment(self.text, node) or self.text
                raise WorkingError(f"{found!r} has no place in a working; allowed are {ALLOWED}")
        self.names = tuple(dict.fromkeys(NAME.findall(self.text)))

    def value(self, known: Known) -> float | bool:
        """The expression's result; a truth value where it compares.

        Raises:
            WorkingError: a name is not known, or there is no result: 1 / 0, several numbers where one is expected.
        """
        return self._result(self.tree, known)

    def margins(self, known: Known) -> list[float]:
        """By how much each comparison holds, as the difference of its sides: below 0 where it does not.

        Sides that are equal but must not be have the margin -`TIE`.
        """
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Compare):
                sides = [float(self._result(side, known)) for side in (node.left, *node.comparators)]
                for sign, left, right in zip(node.ops, sides, sides[1:], strict=False):
                    match sign:
                        case ast.Eq():
                            found.append(-abs(left - right))
                        case ast.Lt() | ast.LtE():
                            found.append(right - left - TIE * isinstance(sign, ast.Lt))
                        case _:
                            found.append(left - right - TIE * isinstance(sign, ast.Gt))
        return found

    def slopes(self, known: Known, names: Iterable[str]) -> list[dict[str, float]]:
        """How each comparison's margin changes with each of these single numbers, without those that change nothing.

        Exact to six digits where the sides are sums; of ``max`` and ``min`` only the number that they give counts.
        """

        def moved(name: str, by: float) -> list[float]:
            return self.margins({**known, name: replace(known[name], value=known[name].value + by)})

        found = [{} for _ in self.margins(known)]
        for name in names:
            for slopes, up, down in zip(found, moved(name, MOVE), moved(name, -MOVE), strict=True):
                if slope := round((up - down) / (2 * MOVE), 6):
                    slopes[name] = slope
        return found

    def _result(self, tree: ast.expr, known: Known) -> float | bool:
        for name in self.names:
            if name not in known:
                raise WorkingError(f"{name!r} is not known")
        evaluator = SimpleEval(OPERATORS, FUNCTIONS)
        evaluator.nodes[ast.Name] = evaluator.nodes[ast.Attribute] = lambda node: _plain(known[ast.unparse(node)])
        try:
            result = evaluator.eval(self.text, tree)
            finite = math.isfinite(result)
        except (ZeroDivisionError, OverflowError, TypeError):
            finite = False
        if not finite:
            raise WorkingError(f"{self.text!r} has no result")
        return result

    def spread(self, known: Known) -> float:
        """How far the result can be off because its numbers were rounded when they were printed: 0 or more.

        The sum over the numbers of how far half a unit of the last digit moves the result, which is exact for sums
        and, for ratios of numbers with several digits, off by next to nothing.
        """
        result, total = self.value(known), 0.0
        if isinstance(result, bool):
            return total
        for name in self.names:
            numbers = _numbers(known[name])
            for position, number in enumerate(numbers):
                if number.step:
                    moved = [replace(number, value=number.value + side * number.step / 2) for side in (-1, 1)]
                    others = [(*numbers[:position], one, *numbers[position + 1 :]) for one in moved]
                    given = [other if isinstance(known[name], tuple) else other[0] for other in others]
                    total += max(abs(self.value({**known, name: one}) - result) for one in given)
        return total

    def filled(self, known: Known) -> str:
        """The expression with numbers in the place of names."""
        return NAME.sub(lambda name: ", ".join(show(one.value) for one in _numbers(known[name[0]])), self.text)


def show(value: float) -> str:
    """A number in a working: whole ones in full, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return name in FUNCTIONS and bool(arguments)
        case ast.Name(id=name):
            return name in FUNCTIONS or NAME.fullmatch(name) is not None
        case ast.Attribute():
            return NAME.fullmatch(ast.unparse(node)) is not None
    return isinstance(node, NODES)


def _numbers(known: Printed | tuple[Printed, ...]) -> tuple[Printed, ...]:
    return known if isinstance(known, tuple) else (known,)


def _plain(known: Printed | tuple[Printed, ...]) -> float | _Several:
    return _Several(tuple(one.value for one in known)) if isinstance(known, tuple) else known.value
