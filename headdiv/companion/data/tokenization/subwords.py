"""Words as pieces: joint byte-pair encoding (Sennrich et al. 2016, https://aclanthology.org/P16-1162).

A word is its characters, the last with an end mark; the most frequent pair of neighbours is merged, repeatedly.
Pieces are written as in subword-nmt: every piece of a word but the last ends in ``@@``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from headdiv.companion.models.batching import SPECIALS, UNKNOWN
from headdiv.core.files import read_json, write_json

END_OF_WORD = "</w>"
JOINER = "@@"
MIN_COUNT = 2  # of a pair in the training text: a pair that occurs once is not merged
UNKNOWN_PIECE = SPECIALS[UNKNOWN]


class Subwords:
    """An encoding of words: the training text's characters, and pairs of symbols in the order in which they merge."""

    def __init__(self, characters: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
        self.characters = list(characters)
        self.merges = [(left, right) for left, right in merges]
        symbols = [UNKNOWN_PIECE, *_alphabet(self.characters, self.characters), *map("".join, self.merges)]
        self._symbols = list(dict.fromkeys(symbols))
        entries = {symbol: number for number, symbol in enumerate(self._symbols)}
        self._tokenizer = Tokenizer(
            models.BPE(entries, self.merges, unk_token=UNKNOWN_PIECE, end_of_word_suffix=END_OF_WORD)
        )

    def encode_all(self, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
        """The pieces of the words of each sentence; each distinct word is encoded once.

        A character that the training text lacks becomes ``<unk>``; the rest of its word is encoded as usual.
        """
        words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
        encodings = self._tokenizer.encode_batch_fast(words)
        pieces = {word: self._pieces(encoding.ids) for word, encoding in zip(words, encodings, strict=True)}
        return [[piece for word in sentence for piece in pieces[word]] for sentence in sentences]

    def encode(self, words: Sequence[str]) -> list[str]:
        """The pieces of one sentence's words."""
        return self.encode_all([words])[0]

    def _pieces(self, ids: list[int]) -> list[str]:
        *symbols, last = (self._symbols[id] for id in ids)
        joined = [symbol if symbol == UNKNOWN_PIECE else f"{symbol}{JOINER}" for symbol in symbols]
        return [*joined, last.removesuffix(END_OF_WORD)]

    def content(self) -> dict[str, Any]:
        """The encoding as the JSON that `save` writes."""
        return {"characters": "".join(self.characters), "merges": [" ".join(pair) for pair in self.merges]}

    def save(self, path: Path | str) -> None:
        """Write the encoding as JSON."""
        write_json(path, self.content())

    @classmethod
    def load(cls, path: Path | str) -> Subwords:
        """Read what `save` wrote; other keys of the file are ignored."""
        content = read_json(path)
        return cls(content["characters"], [tuple(merge.split(" ")) for merge in content["merges"]])


def train(sentences: Iterable[Sequence[str]], merges: int) -> Subwords:
    """Learn merges from the words of sentences; the same text always gives the same ones.

    ``merges``: how many to learn, at least 1; fewer are learnt where no pair is left that occurs twice.
    """
    sentences = [sentence for sentence in sentences if sentence]
    characters = sorted({character for sentence in sentences for word in sentence for character in word})
    ends = sorted({word[-1] for sentence in sentences for word in sentence})
    alphabet = _alphabet(characters, ends)
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix=END_OF_WORD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + merges,
        min_frequency=MIN_COUNT,
        # The library would number last characters in a random order, and pairs of equal frequency are merged by number.
        special_tokens=alphabet,
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    tokenizer.train_from_iterator(map(" ".join, sentences), trainer)
    learnt = json.loads(tokenizer.to_str())["model"]["merges"]
    # Two merges may make the same symbol, which is a single entry: there can be more merges than entries.
    return Subwords(characters, learnt[:merges])


def join(pieces: Iterable[str]) -> list[str]:
    """Words from pieces; a word whose last piece is missing is a word too."""
    words, prefix = [], ""
    for piece in pieces:
        prefix += piece.removesuffix(JOINER)
        if not piece.endswith(JOINER):
            words.append(prefix)
            prefix = ""
    if prefix:
        words.append(prefix)
    return words


def _alphabet(characters: Iterable[str], ends: Iterable[str]) -> list[str]:
    return [*characters, *(f"{character}{END_OF_WORD}" for character in ends)]
