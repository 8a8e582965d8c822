"""Tokenising, vocabularies, and back to text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from headdiv.core.errors import DataError
from headdiv.data.tokenization.torchtext06 import vocabulary_words
from headdiv.nn.batching import END, SPECIALS, UNKNOWN

PARALLEL = 20_000  # lines from which on starting processes pays


@cache
def _moses(language: str) -> tuple[Any, Any]:
    from sacremoses import MosesDetokenizer, MosesTokenizer

    return MosesTokenizer(lang=language), MosesDetokenizer(lang=language)


@cache
def _spacy(language: str) -> Any:
    import spacy  # here, since it takes seconds

    try:
        return spacy.blank(language).tokenizer
    except ImportError:  # so it calls a language that it does not know
        raise DataError(f"spaCy has no rules for the language {language!r}, expected a code such as 'en'") from None


def tokenize(
    line: str,
    language: str,
    lowercase: bool = False,
    split_dashes: bool = True,
    fold_late: bool = False,
    tokenizer: str = "moses",
) -> list[str]:
    """Words by Moses rules with nothing escaped, or by those of spaCy's blank pipeline.

    Case is folded after spaCy's rules, and of two spaces one is a word to them: lower-cased Multi30k, every word kept,
    then has the vocabularies (9,797 and 18,669) that follow from the homeostasis paper's parameter counts.

    Args:
        line: the text.
        language: whose rules.
        lowercase: fold case.
        split_dashes: Moses: split words at dashes: ``a-b`` -> ``a @-@ b``.
        fold_late: Moses: fold case after the rules, not before. They depend on case: ``It sat. Then`` is split before
            the full stop, ``it sat. then`` is not.
        tokenizer: "moses" or "spacy".

    Raises:
        DataError: spaCy does not know the language. (Moses rules then are those of English.)
    """
    if tokenizer == "spacy":
        found = [word.text for word in _spacy(language)(line.strip())]
        return [word.lower() for word in found] if lowercase else found
    text = line.lower() if lowercase and not fold_late else line
    words = _moses(language)[0].tokenize(text.strip(), aggressive_dash_splits=split_dashes, escape=False)
    return [word.lower() for word in words] if lowercase and fold_late else words


def tokenize_all(lines: Sequence[str], language: str, lowercase: bool = False, **rules: Any) -> list[list[str]]:
    """`tokenize` for many lines; from `PARALLEL` on by all processors where Moses rules, which are slow, are used."""
    one = partial(tokenize, language=language, lowercase=lowercase, **rules)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if len(lines) < PARALLEL or processors == 1 or rules.get("tokenizer") == "spacy":
        return [one(line) for line in lines]
    with ProcessPoolExecutor(processors, mp_context=get_context("spawn")) as pool:
        return list(pool.map(one, lines, chunksize=500))


def detokenize(words: Sequence[str], language: str) -> str:
    """Words to text by Moses rules; the inverse of `tokenize` up to white space.

    For spaCy's words it is an approximation: Multi30k's test references, tokenized and detokenized, have a BLEU of
    99.97 in German and 98.4 in English (hyphens: ``t - shirt``).
    """
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
