"""Plans for swapping heads, as a person writes them: "cross layers 1 and 5, all heads, epochs 3 7 9 11".

    plan    part; part; …
    part    [encoder | decoder | cross] layers 1 and 5, all heads, epochs 3 7 9 11
            [encoder | decoder | cross] layers 1 and 5, heads 1 2 with 8 7, epochs 3 5-8
            [encoder | decoder | cross] layer 1, heads 1 2 with 8 7, epochs 3

Everything is counted from 1; without a kind the encoder-decoder attention is meant. "heads 1 2" in two layers means
head 1 with head 1 and head 2 with head 2.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torch import nn

from headdiv.nn.attention import Kind, attention_modules


class Head(NamedTuple):
    """A head of some kind of attention, counted from 0."""

    layer: int
    head: int


Swap = tuple[Kind, Head, Head]
Part = tuple[frozenset[int], list[Swap]]  # epochs, counted from 1, and what is swapped before each of them

FORM = (
    "expected something like 'cross layers 1 and 5, all heads, epochs 3 7 9 11' "
    "or 'encoder layer 1, heads 1 2 with 8 7, epochs 3'"
)
PART = re.compile(
    r"(?:(?P<kind>encoder|decoder|cross) )?"
    r"(?:layers (?P<one>\d+) and (?P<other>\d+)|layer (?P<same>\d+)), "
    r"(?:(?P<all>all heads)|heads (?P<heads>[\d -]+?)(?: with (?P<partners>[\d -]+?))?), "
    r"epochs? (?P<epochs>[\d -]+)"
)


class PlanError(ValueError):
    """What is wrong with a plan, in one sentence."""


class Room(NamedTuple):
    """What there is of some kind of attention."""

    layers: int
    heads: int


def rooms(model: nn.Module) -> dict[Kind, Room]:
    """Layers and heads of every kind of attention in a model."""
    specs = [module.spec for module in attention_modules(model)]
    return {spec.kind: Room(sum(other.kind == spec.kind for other in specs), spec.heads) for spec in specs}


def parse_plan(plan: str, there: dict[Kind, Room]) -> list[Part]:
    """Epochs and swaps of every part of a plan.

    Args:
        plan: the text.
        there: what the plan must fit.

    Raises:
        PlanError: it is not legible, or names what is not there.
    """
    return [_part(" ".join(text.split()), there) for text in plan.split(";")]


def _part(text: str, there: dict[Kind, Room]) -> Part:
    found = PART.fullmatch(text)
    if found is None:
        raise PlanError(f"{text!r} is not a plan, {FORM}")
    kind: Kind = found["kind"] or "cross"
    first, second = (int(found["same"] or found[name]) for name in ("one", "other"))
    epochs = _numbers(found["epochs"], text)
    if kind not in there:
        raise PlanError(f"{text!r}: the model has no {kind} attention, only {' and '.join(there)}")
    layers, number = there[kind]
    for layer in (first, second):
        if not 1 <= layer <= layers:
            raise PlanError(f"{text!r} names layer {layer}; {kind} attention has layers 1 to {layers}")
    if min(epochs) < 2:
        raise PlanError(
            f"{text!r} swaps before epoch {min(epochs)}; expected 2 or later, when something has been learnt"
        )
    heads = list(range(1, number + 1)) if found["all"] else _numbers(found["heads"], text)
    partners = _numbers(found["partners"], text) if found["partners"] else heads
    if len(heads) != len(partners):
        raise PlanError(f"{text!r} pairs {len(heads)} heads with {len(partners)}")
    for head in (*heads, *partners):
        if not 1 <= head <= number:
            raise PlanError(f"{text!r} names head {head}; there are heads 1 to {number}")
    swaps: list[Swap] = [
        (kind, Head(first - 1, a - 1), Head(second - 1, b - 1)) for a, b in zip(heads, partners, strict=True)
    ]
    taken = [head for _, one, other in swaps for head in (one, other)]
    if len(set(taken)) < len(taken):
        raise PlanError(f"{text!r} swaps a head with itself, or twice at once")
    return frozenset(epochs), swaps


def _numbers(text: str, part: str) -> list[int]:
    """The text "1 2 5-7" as numbers, never empty."""
    found: list[int] = []
    for word in text.split():
        low, _, high = word.partition("-")
        if not re.fullmatch(r"\d+(-\d+)?", word) or int(high or low) < int(low):
            raise PlanError(f"{part!r}: {word!r} is neither a number nor a range such as 5-7")
        found += range(int(low), int(high or low) + 1)
    return found
