"""Words with an index each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from headdiv.companion.models.batching import END, SPECIALS, UNKNOWN
from headdiv.core.errors import DataError


class Vocabulary:
    """Words with an index each; the first are `SPECIALS`."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._index = {word: index for index, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], min_frequency: int) -> Vocabulary:
        """Words that occur at least ``min_frequency`` times, most frequent first, ties by spelling; DataError: none."""
        counts = Counter(word for sentence in sentences for word in sentence)
        if max(counts.values(), default=0) < min_frequency:
            condition = f"occurs {min_frequency} times" if counts else "is there at all"
            raise DataError(f"data.min_frequency: no word of the training text {condition}; every word would be <unk>")
        kept = (word for word, count in counts.items() if count >= min_frequency and word not in SPECIALS)
        return cls([*SPECIALS, *sorted(kept, key=lambda word: (-counts[word], word))])

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Indices; UNKNOWN where a word has none."""
        return np.array([self._index.get(word, UNKNOWN) for word in words], dtype=np.int32)

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Words up to the first END."""
        words = []
        for index in indices:
            if index == END:
                break
            words.append(self.words[index])
        return words
