"""Workings: the small expressions by which a claim is recomputed. They are parsed and walked, never executed.

    100 * (1 - translation.direct_8.training_loss / translation.baseline.training_loss)

Allowed are numbers, ``+ - * / **``, parentheses, comparisons, ``and``, the functions of `FUNCTIONS`, and dotted
names, which stand for one number or, as arguments of a function, for several.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FUNCTIONS: dict[str, Callable[..., Any]] = {"round": round, "abs": abs, "min": min, "max": max, "sum": sum}
OF_MANY = ("min", "max", "sum")
OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: lambda base, exponent: float(base) ** exponent,  # of floats, so that no integer grows without end
}
SIGNS: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
ALLOWED = f"numbers, + - * / **, comparisons, 'and', dotted names and {', '.join(FUNCTIONS)}"


class WorkingError(ValueError):
    """A working cannot be read, or its numbers make nothing."""


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
    """An expression that has been checked.

    Args:
        text: the expression; line breaks and runs of spaces count as one space.

    Raises:
        WorkingError: it holds anything but what is allowed, or is no expression.
    """

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        if not self.text.isascii():  # positions in the syntax tree are those of bytes
            raise WorkingError(f"{self.text!r} is not plain ASCII")
        try:
            self.tree = ast.parse(self.text, mode="eval").body
        except SyntaxError:
            raise WorkingError(f"{self.text!r} is no expression") from None
        self._check(self.tree)
        self.names = tuple(dict.fromkeys(name for name, _ in _names(self.tree)))

    def _check(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return
            case ast.BinOp(left=left, right=right, op=op) if type(op) in OPERATORS:
                parts: list[ast.AST] = [left, right]
            case ast.UnaryOp(operand=operand, op=ast.USub() | ast.UAdd()):
                parts = [operand]
            case ast.Compare(left=left, comparators=others, ops=signs) if all(type(sign) in SIGNS for sign in signs):
                parts = [left, *others]
            case ast.BoolOp(op=ast.And(), values=values):
                parts = list(values)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS and arguments:
                parts = list(arguments)
            case ast.Name() | ast.Attribute() if _dotted(node) and "_" not in {part[:1] for part in _parts(node)}:
                return
            case _:
                found = ast.get_source_segment(self.text, node) or self.text
                raise WorkingError(f"{found!r} has no place in a working; allowed are {ALLOWED}")
        for part in parts:
            self._check(part)

    def value(self, known: Known) -> float | bool:
        """What the expression comes to; a truth value where it compares.

        Raises:
            WorkingError: a name is not known or stands for several numbers, or there is no result (1 / 0).
        """
        return self._value({name: _plain(number) for name, number in self._all(known).items()})

    def spread(self, known: Known) -> float:
        """How far the result can be off because its numbers were rounded when they were printed: 0 or more.

        The sum over the numbers of how far half a unit of the last digit moves the result, which is exact for sums
        and, for ratios of numbers with several digits, off by next to nothing.
        """
        numbers, told = self._all(known), self.value(known)
        if isinstance(told, bool):
            return 0.0
        total = 0.0
        for name, number in numbers.items():
            for position, one in enumerate(number if isinstance(number, tuple) else (number,)):
                if one.step:
                    total += max(
                        abs(self._value(_moved(numbers, name, position, side * one.step / 2)) - told)
                        for side in (-1, 1)
                    )
        return total

    def filled(self, known: Known) -> str:
        """The expression with numbers in the place of names."""
        text = self.text
        for name, node in sorted(_names(self.tree), key=lambda found: -found[1].col_offset):
            number = self._all(known)[name]
            shown = ", ".join(show(one.value) for one in (number if isinstance(number, tuple) else (number,)))
            text = text[: node.col_offset] + shown + text[node.end_col_offset :]
        return text

    def _all(self, known: Known) -> dict[str, Printed | tuple[Printed, ...]]:
        for name in self.names:
            if name not in known:
                raise WorkingError(f"{name!r} is not known")
        return {name: known[name] for name in self.names}

    def _value(self, numbers: Mapping[str, Any]) -> Any:
        try:
            told = _one(_evaluate(self.tree, numbers))
        except WorkingError as error:
            raise WorkingError(f"{self.text!r}: {error}") from None
        except (ZeroDivisionError, OverflowError, TypeError):  # of TypeError: round(1, 0.5), abs(1, 2)
            told = None
        if told is None or isinstance(told, complex) or not math.isfinite(told):
            raise WorkingError(f"{self.text!r} has no result")
        return told


def show(value: float) -> str:
    """A number in a working: whole ones in full, others with six digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def _evaluate(node: ast.AST, numbers: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, right=right, op=op):
            return OPERATORS[type(op)](_one(_evaluate(left, numbers)), _one(_evaluate(right, numbers)))
        case ast.UnaryOp(operand=operand, op=op):
            value = _one(_evaluate(operand, numbers))
            return -value if isinstance(op, ast.USub) else +value
        case ast.Compare(left=left, comparators=others, ops=signs):
            sides = [_one(_evaluate(side, numbers)) for side in (left, *others)]
            return all(SIGNS[type(sign)](one, other) for sign, one, other in zip(signs, sides, sides[1:], strict=False))
        case ast.BoolOp(values=values):
            return all(_one(_evaluate(value, numbers)) for value in values)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, [_evaluate(argument, numbers) for argument in arguments])
    return numbers[_dotted(node)]


def _one(value: Any) -> Any:
    if isinstance(value, tuple):
        raise WorkingError("several numbers stand where one is expected")
    return value


def _call(name: str, values: list[Any]) -> Any:
    if name in OF_MANY:
        return FUNCTIONS[name]([one for value in values for one in (value if isinstance(value, tuple) else (value,))])
    return FUNCTIONS[name](*map(_one, values))


def _parts(node: ast.AST) -> list[str]:
    return _dotted(node).split(".")


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or a chain of attributes that begins with one; "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    before = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before else ""


def _names(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Every name with its node; functions are none."""
    if isinstance(node, ast.Name | ast.Attribute):
        yield _dotted(node), node
        return
    for child in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        yield from _names(child)


def _plain(number: Printed | tuple[Printed, ...]) -> Any:
    return tuple(one.value for one in number) if isinstance(number, tuple) else number.value


def _moved(numbers: Known, name: str, position: int, by: float) -> dict[str, Any]:
    """All numbers, one of them moved."""
    plain = {other: _plain(number) for other, number in numbers.items()}
    found = plain[name]
    plain[name] = (
        tuple(one + by * (at == position) for at, one in enumerate(found)) if isinstance(found, tuple) else found + by
    )
    return plain
