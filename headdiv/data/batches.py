"""Batches by token budget, drawn at random, laid out for packed computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headdiv.attention import AttentionLayout
from headdiv.packing import Side, assign_windows, attention_mask, lay_out

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs as word indices, without begin and end marks."""

    source: list[np.ndarray]
    target: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Batch:
    """One batch of sentence pairs on packed rows; T source rows, U target rows."""

    numbers: Tensor  # (B,) which pairs of the corpus these are, in row order
    source: Tensor  # (T,)
    target_in: Tensor  # (U,) begins with BEGIN
    target_out: Tensor  # (U,) ends with END
    encoder: AttentionLayout
    decoder: AttentionLayout
    cross: AttentionLayout

    @property
    def source_side(self) -> Side:
        """Where the source tokens stand."""
        return self.encoder.queries

    @property
    def target_side(self) -> Side:
        """Where the target tokens stand."""
        return self.decoder.queries

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        if torch.device(device).type == "cpu":
            return self
        source, target = self.source_side.to(device), self.target_side.to(device)
        masks = (layout.mask.to(device) for layout in (self.encoder, self.decoder, self.cross))
        return Batch(
            *(x.to(device) for x in (self.numbers, self.source, self.target_in, self.target_out)),
            AttentionLayout(source, source, next(masks)),
            AttentionLayout(target, target, next(masks)),
            AttentionLayout(target, source, next(masks)),
        )


def make_batch(pairs: Pairs, numbers: Sequence[int], window: int = 48) -> Batch:
    """Lay out the pairs with these ``numbers``; END is put behind the source, BEGIN and END around the target."""
    source_lengths = [len(pairs.source[i]) + 1 for i in numbers]
    target_lengths = [len(pairs.target[i]) + 1 for i in numbers]
    windows = assign_windows(source_lengths, target_lengths, width=window)
    source, target = lay_out(source_lengths, windows), lay_out(target_lengths, windows)
    order = np.array([numbers[i] for window_ in windows for i in window_], dtype=np.int64)
    begin, end = np.array([BEGIN]), np.array([END])
    return Batch(
        numbers=torch.from_numpy(order),
        source=_flat([part for i in order for part in (pairs.source[i], end)]),
        target_in=_flat([part for i in order for part in (begin, pairs.target[i])]),
        target_out=_flat([part for i in order for part in (pairs.target[i], end)]),
        encoder=AttentionLayout(source, source, attention_mask(source, source)),
        decoder=AttentionLayout(target, target, attention_mask(target, target, causal=True)),
        cross=AttentionLayout(target, source, attention_mask(target, source)),
    )


def _flat(parts: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))


def batch_numbers(
    pairs: Pairs, tokens: int, *, seed: int | None, epoch: int = 0, bucketed: bool = False
) -> list[list[int]]:
    """Which pairs go together: each batch holds at most ``tokens`` target tokens (the end mark counted).

    Random batches look like the corpus, which batch normalisation needs. Bucketed ones hold sentences of
    similar length, as is usual elsewhere; on packed rows they are no faster.

    Args:
        pairs: the corpus.
        tokens: the budget. A single longer pair makes a batch of its own.
        seed: None keeps the corpus's order; otherwise order is drawn from (seed, epoch) alone.
        epoch: counted from 0.
        bucketed: sort by length before batches are cut, then shuffle the batches.
    """
    lengths = np.array([len(target) + 1 for target in pairs.target], dtype=np.int64)
    rng = None if seed is None else np.random.default_rng([seed, epoch])
    order = np.arange(len(pairs)) if rng is None else rng.permutation(len(pairs))
    if bucketed:
        order = order[np.argsort(lengths[order], kind="stable")]
    batches: list[list[int]] = []
    size = tokens + 1
    for i in order.tolist():
        if size + lengths[i] > tokens:
            batches.append([])
            size = 0
        batches[-1].append(i)
        size += int(lengths[i])
    if bucketed and rng is not None:
        rng.shuffle(batches)
    return batches
