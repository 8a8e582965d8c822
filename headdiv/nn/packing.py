"""Ragged batches without padding: real tokens in rows, attention in windows.

A batch's tokens are the T rows of one matrix, sentence after sentence; embeddings, projections, feed-forward layers,
normalisation and loss see these rows and nothing else. Only attention needs a rectangular form. `assign_windows` puts
several whole sentences side by side into windows of equal width, and a mask keeps them apart: 93 to 97 % of the
slots are filled, where one padded row per sentence fills half.

Letters: B sentences, T rows, R windows, N query slots and S key slots of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from headdiv.core.errors import DataError

MAX_POSITIONS = 4096  # tokens of a sentence that the Transformer has positions for
WIDE = 64 * 64  # weights of a window and head: up to here `ScaledDotProduct` is as fast, beyond torch's fused one wins
MASKED = -1e9  # finite: a slot that may see nothing must not become NaN, since its gradient is multiplied by 0


@dataclass(frozen=True)
class PackedRows:
    """The tokens of one language (or of one decoder) in a batch: rows, and their slots in the windows."""

    lengths: Tensor  # (B,) tokens of each sentence, in row order
    positions: Tensor  # (T,) place of each row in its sentence, from 0
    slots: Tensor  # (T,) flat slot of each row
    row_of_slot: Tensor  # (R·N,) 0 where the slot is empty
    sentences: Tensor  # (R, N) number of the slot's sentence; −1 where it is empty
    full: bool  # no slot is empty and slots are in row order: windows are a view of the rows
    longest: int  # tokens of the longest sentence (of `padded_rows`, the width); reading it from a GPU means waiting
    gaps: bool = False  # whether a sentence has no token; `pack` alone sets it

    @property
    def tokens(self) -> int:
        """T, the number of real tokens."""
        return self.positions.shape[0]

    def to(self, device: torch.device | str) -> PackedRows:
        """The same on another device."""
        return PackedRows(*(x.to(device) if isinstance(x, Tensor) else x for x in vars(self).values()))

    def sentence_of_row(self) -> Tensor:
        """(T,) number of each row's sentence."""
        numbers = torch.arange(len(self.lengths), device=self.lengths.device)
        return torch.repeat_interleave(numbers, self.lengths, output_size=self.tokens)


def attention_mask(queries: PackedRows, keys: PackedRows, causal: bool = False) -> Tensor:
    """(R, 1, N, S) added to the scores: 0 within a sentence, `MASKED` elsewhere and on later keys."""
    allowed = queries.sentences[:, :, None] == keys.sentences[:, None, :]
    allowed &= (queries.sentences >= 0)[:, :, None]
    if causal:  # slots of a sentence are in order, so later in the window is later in the sentence
        n = allowed.shape[-1]
        allowed &= torch.ones(n, n, dtype=torch.bool, device=allowed.device).tril()
    mask = torch.zeros(allowed.shape, device=allowed.device)
    return mask.masked_fill_(~allowed, MASKED)[:, None]


@dataclass(frozen=True)
class AttentionLayout:
    """Queries, keys and the mask between them, for one kind of attention.

    Without a mask every slot attends to itself and all earlier ones of its window (a language model's full windows).
    """

    queries: PackedRows
    keys: PackedRows
    mask: Tensor | None  # (R, 1, N, S), added to the scores; (R, H, N, S) where each head has its own mask
    # Of the weights. Where it is a number, attention is computed as torch.nn.MultiheadAttention does: the mask has a
    # gradient, and only -inf excludes.
    dropout: float | None = None
    dropped: list[Tensor] = field(default_factory=list)  # weights after dropout, as torch returns them, are put here

    def to(self, device: torch.device | str) -> AttentionLayout:
        """The same on another device."""
        queries = self.queries.to(device)
        keys = queries if self.keys is self.queries else self.keys.to(device)
        return replace(self, queries=queries, keys=keys, mask=None if self.mask is None else self.mask.to(device))

    def written_out(self) -> Tensor:
        """The mask, even where it is only implied."""
        return attention_mask(self.queries, self.keys, causal=True) if self.mask is None else self.mask

    @property
    def blind(self) -> Tensor | None:
        """(R, 1 or H, N, 1) which queries may see no key: their weights are 0. None: each sees one."""
        if self.dropout is None and (self.keys is self.queries or not self.keys.gaps):
            return None
        blind = (self.mask <= (MASKED if self.dropout is None else -torch.inf)).all(-1, keepdim=True)
        readable = blind.device.type == "cpu" and not is_compiling()  # reading from a GPU means waiting
        return None if readable and not blind.any() else blind

    @property
    def full(self) -> bool:
        """Whether no slot is empty: windows of a language model, of the same shape in every batch."""
        return self.queries.full and self.keys.full

    @property
    def wide(self) -> bool:
        """Whether a window has too many weights to hold for the backward pass."""
        return self.queries.sentences.shape[1] * self.keys.sentences.shape[1] > WIDE


def added_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> Tensor:
    """A mask of booleans (True: excluded) or numbers, as an addend for the scores."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"{name} must be of booleans or of floating point, found {mask.dtype}")
    if mask.shape not in shapes:
        raise ValueError(f"{name} must have the shape {' or '.join(map(str, shapes))}, found {tuple(mask.shape)}")
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
    return mask.to(dtype)


def assign_windows(*lengths: Sequence[int], width: int = 48) -> list[list[int]]:
    """Put sentences into windows that hold at most ``width`` tokens of every language at once.

    First fit by decreasing length. A sentence longer than ``width`` widens all windows to its length.

    Args:
        lengths: one sequence for each language, of equal size B.
        width: slots of a window. 48 is fastest on the CPU for sentences of 10 to 20 tokens; 1 gives
            every sentence its own window (the usual padded form).

    Returns:
        The sentences' numbers, window by window.

    Raises:
        DataError: a sentence has more tokens than `MAX_POSITIONS`; attention would need the square of that.
    """
    tokens = np.stack([np.asarray(language, dtype=np.int64) for language in lengths])  # (languages, B)
    if not tokens.size:
        return []
    if tokens.max() > MAX_POSITIONS:
        raise DataError(f"a sentence of {tokens.max()} tokens: the model has positions for {MAX_POSITIONS}")
    capacity = np.maximum(tokens.max(axis=1), width)
    order = np.argsort(-tokens.max(axis=0), kind="stable")
    if width <= 1:
        return [[int(i)] for i in range(tokens.shape[1])]
    free = np.empty((len(tokens), 0), dtype=np.int64)
    windows: list[list[int]] = []
    for i in order:
        fits = np.flatnonzero((free >= tokens[:, i : i + 1]).all(axis=0))
        if len(fits):
            window = int(fits[0])
        else:
            window = len(windows)
            windows.append([])
            free = np.concatenate([free, capacity[:, None]], axis=1)
        windows[window].append(int(i))
        free[:, window] -= tokens[:, i]
    return windows


def pack(lengths: Sequence[int], windows: Sequence[Sequence[int]]) -> PackedRows:
    """Rows and slots of one language. Rows follow the windows, so sentence order is that of ``windows``, flattened."""
    lengths_in_order = np.array([lengths[i] for window in windows for i in window], dtype=np.int64)
    filled = np.array([sum(lengths[i] for i in window) for window in windows], dtype=np.int64)
    width, total = int(filled.max(initial=0)), int(lengths_in_order.sum())
    slot_is_filled = np.arange(width)[None] < filled[:, None]  # (R, N)
    slots = np.flatnonzero(slot_is_filled)
    row_of_slot = np.zeros(slot_is_filled.size, dtype=np.int64)
    row_of_slot[slots] = np.arange(total)
    starts = np.repeat(np.cumsum(lengths_in_order) - lengths_in_order, lengths_in_order)
    sentences = np.full(slot_is_filled.size, -1, dtype=np.int64)
    sentences[slots] = np.repeat(np.arange(len(lengths_in_order)), lengths_in_order)
    return PackedRows(
        lengths=torch.from_numpy(lengths_in_order),
        positions=torch.from_numpy(np.arange(total) - starts),
        slots=torch.from_numpy(slots),
        row_of_slot=torch.from_numpy(row_of_slot),
        sentences=torch.from_numpy(sentences.reshape(slot_is_filled.shape)),
        full=total == slot_is_filled.size,
        longest=int(lengths_in_order.max(initial=0)),
        gaps=not lengths_in_order.all(),
    )


def padded_rows(real: Tensor) -> PackedRows:
    """Rows of which each line of (B, N) is its own window, whichever positions are real."""
    B, N = real.shape
    slots = real.flatten().nonzero().flatten()
    row_of_slot = torch.zeros(B * N, dtype=torch.int64, device=real.device)
    row_of_slot[slots] = torch.arange(slots.shape[0], device=real.device)
    sentences = torch.arange(B, device=real.device)[:, None].expand(B, N).masked_fill(~real, -1)
    positions = (real.cumsum(1) - 1).flatten()[slots]
    full = not is_compiling() and len(slots) == B * N  # as `real.all()` says, but without waiting for a GPU once more
    return PackedRows(real.sum(1), positions, slots, row_of_slot, sentences, full, longest=N)


def full_rows(B: int, N: int, device: torch.device) -> PackedRows:
    """The rows of B lines of N without padding, each its own window."""
    lengths, slots = torch.full((B,), N, device=device), torch.arange(B * N, device=device)
    positions = torch.arange(N, device=device).repeat(B)
    sentences = torch.arange(B, device=device)[:, None].expand(B, N)
    return PackedRows(lengths, positions, slots, slots, sentences, full=True, longest=N)


def one_token_each(texts: int, lines: int, position: int, device: torch.device) -> PackedRows:
    """The rows of one token of each line at this position; the ``lines`` of each of the ``texts`` share a window."""
    rows = full_rows(texts * lines, 1, device)
    positions = torch.full_like(rows.positions, position)
    return replace(rows, positions=positions, sentences=rows.sentences.view(texts, lines))


def real_rows(x: Tensor, rows: PackedRows) -> Tensor:
    """(B, N, D) -> (T, D), where each line is its own window."""
    x = x.reshape(-1, x.shape[2])
    return x if rows.full else x[rows.slots]


def pad_rows(x: Tensor, rows: PackedRows, fill: float = 0.0) -> Tensor:
    """(T, …) -> (B, longest, …): one sentence per line, ``fill`` after its end."""
    width = rows.longest if len(rows.lengths) else 1  # softmax and argmax need a column
    padded = x.new_full((len(rows.lengths), width, *x.shape[1:]), fill)
    padded[rows.sentence_of_row(), rows.positions] = x
    return padded
