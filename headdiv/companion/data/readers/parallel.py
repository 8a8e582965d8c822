"""Parallel text: two texts whose sentences belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from headdiv.companion.data.readers.records import BadRecords, is_empty
from headdiv.core.errors import DataError


@dataclass(frozen=True)
class TextSide:
    """One side of a parallel text: its sentences, and where each stands.

    Attributes:
        name: for messages: the file, or an archive and its member.
        positions: of each sentence: the number of its line, or the name of its segment ("doc 69, seg 1").
        unit: what sentences are called: "line" or "segment".
    """

    name: str
    sentences: list[str]
    positions: Sequence[int | str]
    unit: str = "line"

    def where(self, number: int) -> str:
        """File and place of a sentence, counted from 0, for messages."""
        position = self.positions[number]
        return f"{self.name}, line {position}" if isinstance(position, int) else f"{self.name}, {position}"


def pair_sides(
    source: TextSide,
    target: TextSide,
    bad_records: BadRecords,
    *,
    expected: int | None = None,
    keep_empty: bool = False,
) -> list[tuple[str, str]]:
    """The pairs (source sentence, target sentence) of two texts.

    Args:
        source: the text in the language to translate from; ``target``: that in the other.
        bad_records: gets pairs with an empty sentence.
        expected: how many pairs there must be; None takes any number.
        keep_empty: keep them instead.

    Raises:
        DataError: the sides have unequal numbers of sentences or not the expected number, or a sentence has no letter.
    """
    if len(source.sentences) != len(target.sentences):
        raise DataError(_unequal(source, target))
    pairs = list(zip(source.sentences, target.sentences, strict=True))
    if expected is not None and len(pairs) != expected:
        raise DataError(f"{source.name} and {target.name}: found {len(pairs)} pairs, expected {expected}")
    if keep_empty:
        return pairs
    kept = []
    for number, pair in enumerate(pairs):
        empty = next((s for s, text in zip((source, target), pair, strict=True) if is_empty(text)), None)
        if empty is None:
            kept.append(pair)
        else:
            bad_records.add(empty.where(number), f"the sentence is empty, expected one on every {empty.unit}")
    return kept


def _unequal(source: TextSide, target: TextSide) -> str:
    counts = [len(side.sentences) for side in (source, target)]
    message = f"{source.name} has {counts[0]} {source.unit}s but {target.name} has {counts[1]}, expected equally many"
    if "line" in (source.unit, target.unit):  # lines are known by their number only
        return message
    first, second = next((a, b) for a, b in zip_longest(source.positions, target.positions) if a != b)
    return f"{message}; where they differ, the first has {first or 'nothing'} and the second {second or 'nothing'}"
