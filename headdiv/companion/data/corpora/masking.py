"""Masked text: which tokens are to be predicted, and what replaces them (BERT: Devlin et al. 2019, 3.1).

A share of the tokens is chosen. Most of these are replaced by the mask token, whose id is the first after the
encoding's, some by a random token; the others stay. The token that begins a document is neither chosen nor drawn.

Letters for shapes: R windows, N tokens of each, V entries of the encoding.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headdiv.companion.data.corpora.lm import LMCorpus, load_lm
from headdiv.companion.data.corpora.mixture import HeldOut, Mixture
from headdiv.companion.data.corpora.seq2seq import unigram_nll
from headdiv.companion.data.tokenization.bpe import Bpe
from headdiv.companion.models.batching import IGNORED
from headdiv.core.errors import DataError

if TYPE_CHECKING:
    from headdiv.companion.tasks.mlm import MLMData

TRAINING, HELD_OUT = 0x6D61736B, 0x626C616E  # first number of a draw's key, so that the two never have equal keys


@dataclass(frozen=True)
class MaskedCorpus(LMCorpus):
    """The language model's corpus, with its held-out text masked."""

    masked: dict[str, np.ndarray]  # by split: see `mask_tokens`


class MaskedStream(Mixture):
    """The stream's windows, masked; the choice depends on the seed and the position in the stream."""

    _config: MLMData
    _masked = 0  # windows so far

    def next(self, count: int) -> np.ndarray:
        """The next windows without their last tokens, which begin the next ones: (count, 2, context), `mask_tokens`."""
        windows = super().next(count)[:, :-1]
        masked = mask_tokens(windows, (TRAINING, self._seed, self._masked), self._bpe, self._config)
        self._masked += count
        return masked

    def state(self) -> dict[str, Any]:
        """See `Mixture`."""
        return super().state() | {"masked": self._masked}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Mixture`."""
        super().restore(state)
        self._masked = state["masked"]


def mask_tokens(tokens: np.ndarray, key: Sequence[int], bpe: Bpe, config: MLMData) -> np.ndarray:
    """Choose tokens to predict, and replace them.

    Each token is chosen by a draw of its own; if none is, the one with the smallest draw is chosen, so that there is
    always something to learn and to score.

    Args:
        tokens: windows (R, N), `IGNORED` where they are padded.
        key: seed of the draws, which follow the order of the tokens, however windows are cut.
        bpe: the encoding.
        config: the shares.

    Returns:
        int32 (R, 2, N): for each window the inputs, 0 … V (V is the mask token), and the targets;
        `IGNORED` where there is no token, and in the targets where nothing is to be predicted.

    Raises:
        DataError: there is no token that could be chosen.
    """
    eligible = _eligible(tokens, bpe)
    truth = tokens[eligible]
    if not len(truth):
        raise DataError(f"{len(tokens)} windows of text: found no token that can be masked, expected at least one")
    choice_draws, kind_draws, token_draws = np.random.default_rng(list(key)).random((3, len(truth)))
    chosen = choice_draws < config.mask_share
    chosen[choice_draws.argmin()] = True
    random_tokens = (token_draws * (bpe.size - 1)).astype(np.int32)
    random_tokens += random_tokens >= bpe.end  # all entries but this one
    blank, random = kind_draws < config.blank_share, kind_draws < config.blank_share + config.random_share
    masked = np.stack([tokens, np.full_like(tokens, IGNORED)], axis=1).astype(np.int32)  # (R, 2, N)
    masked[:, 0][eligible] = np.select([~chosen, blank, random], [truth, np.int32(bpe.size), random_tokens], truth)
    masked[:, 1][eligible] = np.where(chosen, truth, IGNORED)
    return masked


def mask_held_out(text: HeldOut, bpe: Bpe, config: MLMData) -> np.ndarray:
    """Mask a held-out text, by draws that depend on its tokens alone: (R, 2, N), see `mask_tokens`.

    The choice does not depend on method, seed or length of windows, so that perplexities can be compared.
    """
    tokens = text.windows[:, :-1]
    content = zlib.crc32(tokens[_eligible(tokens, bpe)].astype("<i4").tobytes())
    return mask_tokens(tokens, (HELD_OUT, content), bpe, config)


def load_mlm(config: MLMData) -> MaskedCorpus:
    """The corpus, prepared as for language modelling; errors as those of `load_lm`."""
    corpus = load_lm(config, _measure_masked)
    masked = {split: mask_held_out(getattr(corpus, split), corpus.bpe, config) for split in ("valid", "test")}
    return MaskedCorpus(**vars(corpus), masked=masked)


def _eligible(tokens: np.ndarray, bpe: Bpe) -> np.ndarray:
    """Which tokens may be chosen."""
    return (tokens >= 0) & (tokens != bpe.end)


def _measure_masked(config: MLMData, bpe: Bpe, sample: np.ndarray, text: HeldOut) -> dict[str, Any]:
    """Statistics of a held-out text: the number of tokens to predict, and a unigram model's cross-entropy on them."""
    targets = mask_held_out(text, bpe, config)[:, 1]
    targets = targets[targets != IGNORED]
    nll = unigram_nll(sample[_eligible(sample, bpe)], targets, bpe.size)
    return {"predictions": len(targets), "unigram_nll": nll}
