"""All that is used of torchtext, whose development has ended.

Release 0.6.0 is the last in pure Python; later ones are compiled against one torch each and fail to
import with today's. Nothing else in the project imports it, and trained models are read without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def vocabulary_words(counts: Counter[str], min_frequency: int, specials: Sequence[str]) -> list[str]:
    """Specials, then the words seen at least ``min_frequency`` times, most frequent first, ties by spelling."""
    from torchtext.vocab import Vocab

    return Vocab(counts, min_freq=min_frequency, specials=list(specials), specials_first=True).itos


def token_bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """BLEU-4 over given tokens, one reference each, 0 to 100: a check beside sacrebleu, which tokenises itself."""
    from torchtext.data.metrics import bleu_score

    return 100 * float(bleu_score([list(h) for h in hypotheses], [[list(r)] for r in references]))
