"""Parallel text: two texts whose sentences belong together."""

from __future__ import annotations

from dataclasses import dataclass

from headdiv.companion.data.readers.records import BadRecords, is_empty
from headdiv.core.errors import DataError


@dataclass(frozen=True)
class TextSide:
    """One side of a parallel text.

    Attributes:
        name: for messages: the file, or an archive and its member.
        sentences: in order.
        places: where each stands: "line 3", "doc 69, seg 1".
    """

    name: str
    sentences: list[str]
    places: list[str]


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
    shorter, longer = sorted((source, target), key=lambda side: len(side.sentences))
    count = len(shorter.sentences)
    if len(longer.sentences) > count:
        raise DataError(
            f"{longer.name}, {longer.places[count]}: has no partner, {shorter.name} ends after {count:,} sentences; "
            "expected equally many"
        )
    if expected not in (None, count):
        raise DataError(f"{source.name} and {target.name}: found {count} pairs, expected {expected}")
    pairs = list(zip(source.sentences, target.sentences, strict=True))
    if keep_empty:
        return pairs
    for number, pair in enumerate(pairs):
        for side, sentence in zip((source, target), pair, strict=True):
            if is_empty(sentence):
                bad_records.add(f"{side.name}, {side.places[number]}", "the sentence is empty")
                break
    return [pair for pair in pairs if not any(map(is_empty, pair))]
