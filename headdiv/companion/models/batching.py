"""Batches by token budget, drawn at random, in packed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from headdiv.nn.packing import AttentionLayout, PackedRows, assign_windows, attention_mask, pack

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
UNKNOWN_WORD = SPECIALS[UNKNOWN]
IGNORED = -1  # in windows where there is no token, and in targets where nothing is to be predicted


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs as word indices, without BEGIN and END."""

    source: list[np.ndarray]
    target: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.source)

    def sizes(self, *sides: str) -> np.ndarray:
        """Tokens of each pair on these sides ("source", "target"), one special token counted on each: (pairs,)."""
        return sum((np.array([len(words) + 1 for words in getattr(self, side)]) for side in sides), np.int64(0))


@dataclass(frozen=True)
class Batch:
    """One batch of examples on packed rows; T source rows, U target rows."""

    numbers: Tensor  # (B,) which examples of the corpus these are, in row order
    source: Tensor  # (T,)
    target_in: Tensor  # (U,) begins with BEGIN
    target_out: Tensor  # (U,) ends with END; question answering: (B, 2), first and last row of the answer
    encoder: AttentionLayout
    decoder: AttentionLayout
    cross: AttentionLayout

    @property
    def source_rows(self) -> PackedRows:
        """Where the source tokens stand."""
        return self.encoder.queries

    @property
    def target_rows(self) -> PackedRows:
        """Where the target tokens stand."""
        return self.decoder.queries

    def with_target(self, target_out: Tensor) -> Batch:
        """The same with another target."""
        return replace(self, target_out=target_out)

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        return Batch(**{name: part.to(device) for name, part in vars(self).items()})


def make_batch(pairs: Pairs, numbers: Sequence[int], window: int = 48) -> Batch:
    """Lay out the pairs with these ``numbers``; END is appended to the source, BEGIN and END enclose the target."""
    begin, end = np.array([BEGIN]), np.array([END])
    return assemble(
        numbers,
        [np.concatenate([pairs.source[i], end]) for i in numbers],
        [np.concatenate([begin, pairs.target[i]]) for i in numbers],
        [np.concatenate([pairs.target[i], end]) for i in numbers],
        window=window,
    )


def assemble(
    numbers: Sequence[int],
    source: Sequence[np.ndarray],
    target_in: Sequence[np.ndarray],
    target_out: Sequence[np.ndarray],
    *,
    causal: bool = True,
    window: int = 48,
) -> Batch:
    """Pack examples whose parts are given separately.

    Args:
        numbers: the examples' numbers in their corpus.
        source: what the encoder reads.
        target_in: what the decoder reads.
        target_out: what is to be predicted.
        causal: a row of the target sees earlier rows only.
        window: slots of an attention window, see `assign_windows`.
    """
    lengths = [[len(words) for words in side] for side in (source, target_in)]
    windows = assign_windows(*lengths, width=window)
    sources, targets = (pack(side, windows) for side in lengths)
    order = [i for members in windows for i in members]
    return Batch(
        numbers=torch.tensor([numbers[i] for i in order], dtype=torch.int64),
        source=_flat([source[i] for i in order]),
        target_in=_flat([target_in[i] for i in order]),
        target_out=_flat([target_out[i] for i in order]),
        encoder=AttentionLayout(sources, sources, attention_mask(sources, sources)),
        decoder=AttentionLayout(targets, targets, attention_mask(targets, targets, causal=causal)),
        cross=AttentionLayout(targets, sources, attention_mask(targets, sources)),
    )


def _flat(parts: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts or [np.empty(0)]).astype(np.int64))


def batch_numbers(sizes: np.ndarray, tokens: int, *, seed: int | None, epoch: int = 0) -> list[list[int]]:
    """Which examples go together: the sizes in a batch sum to at most ``tokens``.

    Random batches look like the corpus, which batch normalisation needs; those of similar lengths, as are usual
    elsewhere, would be no faster on packed rows.

    Args:
        sizes: (examples,) tokens of each.
        tokens: the budget. A single larger example is its own batch.
        seed: None keeps the corpus's order; otherwise the order is drawn from (seed, epoch) alone.
        epoch: counted from 0.
    """
    order = np.arange(len(sizes))
    if seed is not None:
        order = np.random.default_rng([seed, epoch]).permutation(len(sizes))
    batches: list[list[int]] = []
    size = tokens + 1
    for i in order.tolist():
        if size + sizes[i] > tokens:
            batches.append([])
            size = 0
        batches[-1].append(i)
        size += int(sizes[i])
    return batches
