"""Byte-level byte pair encoding by Hugging Face ``tokenizers``: train one, or load one such as GPT-NeoX's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headdiv.core.errors import DataError
from headdiv.core.files import read_json

END_TEXT = "<|endoftext|>"  # the special token between documents
PROBE = "Crete\n\n  läuft\t字 😀."  # a text that an encoding must give back
LONGEST_WORD = 20_000  # characters: learning from one takes half a second, and from twice as many four times that
SUSPECT = re.compile(rf"\S{{{LONGEST_WORD}}}|\s{{{LONGEST_WORD}}}")
SEEN = 2  # times: a pair of entries that occurs once in the whole training text is not worth an entry


@dataclass(frozen=True)
class Bpe:
    """A tokeniser of text into the ids 0 … ``size`` - 1.

    Attributes:
        tokenizer: of the ``tokenizers`` library, without added tokens.
        size: entries of the vocabulary: rows of the model's embedding.
        end: the id of ``<|endoftext|>``. No text is ever encoded to it.
    """

    tokenizer: Tokenizer
    size: int
    end: int

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        return [found.ids for found in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; ``end`` becomes ``<|endoftext|>``, and ids cut inside a character U+FFFD.

        A text comes back as it was, or normalised by a loaded tokeniser that does so (GPT-NeoX: NFC). An id that is not
        in the vocabulary, which the library would leave out, is a ValueError.
        """
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < self.size:
                raise ValueError(f"id {i} is not in the vocabulary of {self.size} entries")
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def train_bpe(texts: Iterable[str], vocabulary_size: int) -> str:
    """A tokeniser of ``texts``, as JSON for `load_bpe`; the same texts in the same order always give the same one.

    Its entries are ``<|endoftext|>`` with id 0, the 256 bytes, and merges of pairs that occur at least twice.

    Raises:
        DataError: the texts have too few pairs to reach the size, which is 257 at least.
    """
    tokenizer = Tokenizer(models.BPE())
    splitter = tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = (check_words(text, splitter) for text in texts)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=SEEN,
        special_tokens=[END_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    found = tokenizer.get_vocab_size()
    if found != vocabulary_size:
        raise DataError(
            f"data.vocabulary_size: {vocabulary_size:,} asked for, but the training text yields {found:,} entries; "
            "give more text or ask for fewer"
        )
    return tokenizer.to_str()


def check_words(text: str, splitter: pre_tokenizers.PreTokenizer) -> str:
    """The text; a DataError where learning from a word, as ``splitter`` finds it, would take too long."""
    if SUSPECT.search(text):
        longest = max(end - start for _, (start, end) in splitter.pre_tokenize_str(text))
        if longest > LONGEST_WORD:
            raise DataError(
                f"a word of {longest:,} characters in the training text: a byte-pair encoding is learnt from words of "
                f"up to {LONGEST_WORD:,}; is this plain text?"
            )
    return text


def load_bpe(path: Path | str) -> Bpe:
    """Load a tokeniser in the JSON form of ``tokenizers``: `train_bpe`'s, or one such as GPT-NeoX-20B's.

    The vocabulary is that of the file's BPE model. The tokens that the file adds to it are dropped: those
    with ids of their own (GPT-NeoX's 23 runs of spaces, from id 50,254 on) since without them V = 50,254,
    which the DEACON paper's 354,818,048 parameters need; the others so that ``<|endoftext|>`` in a text is
    encoded as ordinary characters.

    Raises:
        DataError: the file is missing, not JSON or no BPE tokeniser; it encodes at random (dropout), or loses white
            space or characters, which measures by byte and by word count; the ids of its vocabulary are not 0, 1, 2, …;
            or ``<|endoftext|>`` is missing there, or can be encoded from a text.
    """
    content = read_json(path)
    vocabulary = _vocabulary(content, path)
    # A batch must not be cut or filled up: windows are cut later.
    content = content | {"added_tokens": [], "truncation": None, "padding": None}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(content))
        bpe = Bpe(tokenizer, len(vocabulary), vocabulary[END_TEXT])
        *marked, probe = bpe.encode_batch([END_TEXT, f"a{END_TEXT}b", f"a {END_TEXT} b", PROBE])
        back = bpe.decode(probe)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"{path}: not a tokeniser in the form of Hugging Face tokenizers ({error})") from None
    if any(bpe.end in ids for ids in marked):
        what = f"{END_TEXT} in a text is encoded as the special token, expected as ordinary characters"
        raise DataError(f"{path}: {what}")
    kept = (PROBE, tokenizer.normalizer.normalize_str(PROBE) if tokenizer.normalizer else PROBE)
    if back.strip() not in [text.strip() for text in kept]:  # some begin a text with a space
        raise DataError(
            f"{path}: the encoding loses text, {PROBE!r} comes back as {back!r}; expected one that keeps every "
            "character, as those on bytes do (GPT-NeoX's)"
        )
    return bpe


def _vocabulary(content: Any, name: Path | str) -> dict[str, int]:
    model = content.get("model") if isinstance(content, dict) else None
    # Files from before the library's release 0.11 do not name the model's type, but BPE alone has merges.
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or "merges" not in model:
        kind = model.get("type", "no type") if isinstance(model, dict) else "no model"
        raise DataError(f"{name}: found {kind}, expected a tokeniser whose model is of type BPE")
    vocabulary = model.get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else [None]
    if not all(isinstance(i, int) for i in ids) or sorted(ids) != list(range(len(ids))):
        raise DataError(f"{name}: the ids of the BPE model's vocabulary are not 0, 1, 2, … without a gap")
    if END_TEXT not in vocabulary:
        raise DataError(f"{name}: the BPE model's vocabulary of {len(vocabulary)} entries lacks {END_TEXT}")
    if model.get("dropout"):
        raise DataError(f"{name}: the BPE model has dropout {model['dropout']}, expected none: it encodes at random")
    return vocabulary
