"""Unknown words in generated text: how they are written before the text is scored, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence

from headdiv.companion.models.batching import SPECIALS, UNKNOWN
from headdiv.companion.tasks.base import Score, score

UNKNOWN_WORD = SPECIALS[UNKNOWN]
# What translations have in its place when they are scored, as SentencePiece writes it. sacrebleu's tokenisers leave it
# whole; "<unk>" they split into three tokens, which lengthens translations and hides the brevity penalty.
UNKNOWN_MARK = "⁇"


def scored_text(lines: Sequence[str]) -> list[str]:
    """Translations as they are scored: each unknown word is one symbol, which `scored_references` never holds."""
    return [line.replace(UNKNOWN_WORD, UNKNOWN_MARK) for line in lines]


def scored_references(lines: Sequence[str]) -> list[str]:
    """References as they are scored: a ``⁇`` of theirs, which would match an unknown word, becomes ``??``."""
    return [line.replace(UNKNOWN_MARK, "??") for line in lines]


def unknown_scores(lines: Sequence[str], total: int, what: str) -> dict[str, Score]:
    """How many unknown words stand in these outputs, and their share.

    Args:
        lines: outputs as text, with ``<unk>`` for unknown words.
        total: all of their words.
        what: whose words these are, for the signature.
    """
    count = sum(line.count(UNKNOWN_WORD) for line in lines)
    return {
        "unknown_words": score(count, "words", f"{UNKNOWN_WORD} in the outputs"),
        "unknown_share": score(100 * count / total if total else 0.0, "%", f"{UNKNOWN_WORD} among {what}"),
    }
