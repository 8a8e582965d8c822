"""Tokenising, vocabularies, and back to text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from headdiv.data.batches import END, SPECIALS, UNKNOWN
from headdiv.data.torchtext06 import vocabulary_words


@cache
def _moses(language: str) -> tuple[Any, Any]:
    from sacremoses import MosesDetokenizer, MosesTokenizer

    return MosesTokenizer(lang=language), MosesDetokenizer(lang=language)


def tokenize(line: str, language: str, lowercase: bool = False) -> list[str]:
    """Words by Moses rules with dashes split (``a-b`` -> ``a @-@ b``) and nothing escaped."""
    text = line.lower() if lowercase else line
    return _moses(language)[0].tokenize(text.strip(), aggressive_dash_splits=True, escape=False)


def detokenize(words: Sequence[str], language: str) -> str:
    """Words to text as a person would write it; the inverse of `tokenize` up to white space."""
    return _moses(language)[1].detokenize(list(words), unescape=False)


class Vocabulary:
    """Words with an index each; the first are `SPECIALS`."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self._index = {word: index for index, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], min_frequency: int) -> Vocabulary:
        """Count words; those seen at least ``min_frequency`` times get an index."""
        counts = Counter(word for sentence in sentences for word in sentence)
        return cls(vocabulary_words(counts, min_frequency, SPECIALS))

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
