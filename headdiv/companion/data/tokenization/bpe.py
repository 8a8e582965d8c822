"""Byte-level byte-pair encoding by Hugging Face ``tokenizers``: train one, or load one such as GPT-NeoX's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from headdiv.core.errors import DataError
from headdiv.core.files import read_json

END_TEXT = "<|endoftext|>"  # the special token between documents
MIN_COUNT = 2  # of a pair in the training text: a pair that occurs once is not worth an entry


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
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; ``end`` becomes ``<|endoftext|>``, and ids cut inside a character U+FFFD.

        A text comes back as it was, or normalised by a loaded tokeniser that does so (GPT-NeoX: NFC).
        """
        return self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)


def train_bpe(texts: Iterable[str], vocabulary_size: int) -> str:
    """Train a tokeniser, as JSON for `load_bpe`; the same texts in the same order always give the same one.

    Its entries are ``<|endoftext|>`` with id 0, the 256 bytes, and merges of pairs that occur at least twice.

    Raises:
        DataError: the texts have too few pairs to reach the size, which is 257 at least.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=MIN_COUNT,
        special_tokens=[END_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    entries = tokenizer.get_vocab_size()
    if entries != vocabulary_size:
        raise DataError(
            f"data.vocabulary_size: {vocabulary_size:,} asked for, but the training text yields {entries:,} entries; "
            "give more text or ask for fewer"
        )
    return tokenizer.to_str()


def load_bpe(path: Path | str) -> Bpe:
    """Load a tokeniser in the JSON form of ``tokenizers``: `train_bpe`'s, or one such as GPT-NeoX-20B's.

    The vocabulary is that of the file's BPE model. The tokens that the file adds to it are dropped: those
    with ids of their own (GPT-NeoX's 23 runs of spaces, from id 50,254 on) since without them V = 50,254,
    which the DEACON paper's 354,818,048 parameters need; the others so that ``<|endoftext|>`` in a text is
    encoded as ordinary characters.

    Raises:
        DataError: the file is missing, not JSON or no BPE tokeniser, or it lacks ``<|endoftext|>``.
    """
    content = read_json(path)
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise DataError(f"{path}: found no model, expected a tokeniser whose model is of type BPE")
    # Files from before the library's release 0.11 do not name the model's type, but BPE alone has merges.
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise DataError(f"{path}: found {model.get('type')}, expected a tokeniser whose model is of type BPE")
    vocabulary = model.get("vocab") or {}
    if END_TEXT not in vocabulary:
        raise DataError(f"{path}: the BPE model's vocabulary of {len(vocabulary)} entries lacks {END_TEXT}")
    # Texts must not be truncated or padded: windows are cut later.
    content = content | {"added_tokens": [], "truncation": None, "padding": None}
    try:
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # what the library raises is of no class of its own
        raise DataError(f"{path}: not a tokeniser that `tokenizers` can read ({error})") from None
    return Bpe(tokenizer, len(vocabulary), vocabulary[END_TEXT])
