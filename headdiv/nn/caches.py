"""Keys and values of earlier positions, for decoding one token at a time.

A search has n texts with W slots each, and its lines (hypotheses) occupy some of the slots. Keys and values stay
where they were computed, slot by slot: when lines continue others nothing moves, and a mask says which slots of
earlier positions a line descends from. All W lines of a text then meet its keys in one product.

Letters: n texts, W slots of a text, N lines, P positions, G heads with their own keys, Q queries that share these
keys, K head width, S keys (P·W of self-attention).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from headdiv.nn.packing import masked_in

CROWDED = 0.75  # share of texts with lines left, from which on the others' slots are given up


class BeamState:
    """Which slots the lines of a search occupy; at first each text has one, in its first slot.

    Args:
        texts: n.
        width: W.
        length: the largest number of positions.
        like: dtype and device of scores.
    """

    def __init__(self, texts: int, width: int, length: int, like: Tensor) -> None:
        self.texts, self.width, self.position = texts, width, -1
        self.slots = torch.arange(texts, device=like.device) * width  # (N,) of each line, rising
        self.line_of_slot = self._lines_by_slot()  # (n·W,) the line in each slot; the first where there is none
        # 0 where a slot is of a line's own past
        self.mask = like.new_full((texts, width, length * width), masked_in(like.dtype))

    @property
    def keys(self) -> int:
        """P·W, the slots of all positions so far."""
        return (self.position + 1) * self.width

    def advance(self) -> None:
        """Begin a position: every slot sees itself there."""
        self.position += 1
        self.mask[:, :, self.keys - self.width : self.keys].diagonal(dim1=1, dim2=2).zero_()

    def select(self, lines: Tensor) -> Tensor | None:
        """Line i continues the former line lines[i]; texts stay in order.

        Returns:
            Which texts keep their slots, if the others' are given up; else None.
        """
        former = self.slots[lines]
        text = former // self.width
        counts = torch.zeros_like(self.slots[:1]).expand(self.texts).scatter_add(0, text, torch.ones_like(text))
        first = counts.cumsum(0) - counts  # (n,) the first line of each text
        self.slots = text * self.width + torch.arange(len(text), device=text.device) - first[text]
        masks = self.mask.view(self.texts * self.width, -1)[:, : self.keys]
        masks[self.slots] = masks[former]
        alive = counts > 0
        kept = None
        if int(alive.sum()) <= CROWDED * self.texts:
            kept = alive.nonzero().flatten()
            self.slots -= ((~alive).cumsum(0)[text]) * self.width
            self.mask, self.texts = self.mask[kept], len(kept)
        self.line_of_slot = self._lines_by_slot()
        return kept

    def _lines_by_slot(self) -> Tensor:
        lines = torch.arange(len(self.slots), device=self.slots.device)
        return self.slots.new_zeros(self.texts * self.width).scatter(0, self.slots, lines)

    def spread(self, x: Tensor) -> Tensor:
        """(N, …) -> (n, W, …); a slot without a line holds some line's."""
        if len(self.slots) < self.texts * self.width:
            x = x.index_select(0, self.line_of_slot)
        return x.view(self.texts, self.width, *x.shape[1:])

    def collect(self, x: Tensor) -> Tensor:
        """(n, W, …) -> (N, …)."""
        x = x.flatten(0, 1)
        return x if len(self.slots) == len(x) else x.index_select(0, self.slots)


class PositionCache(Protocol):
    """What one attention module keeps of earlier positions: a `Cache`, or its own kind of cache."""

    def keep(self, texts: Tensor) -> None:
        """Give up what belongs to all other texts."""


@dataclass
class Cache:
    """Keys and values of one attention module, (n, G, S, K) each."""

    lines: BeamState
    keys: Tensor
    values: Tensor
    mask: Tensor | None = None  # (n, S), added to the scores of encoder-decoder attention; self-attention has none

    @classmethod
    def empty(cls, lines: BeamState, heads: int, width: int, like: Tensor) -> Cache:
        """For self-attention, with room for G = ``heads`` of this width at every position of the lines."""
        shape = (lines.texts, heads, lines.mask.shape[-1], width)
        return cls(lines, like.new_empty(shape), like.new_empty(shape))

    def add(self, keys: Tensor, values: Tensor) -> None:
        """Store those of this position, (N, G, K) each."""
        slots = slice(self.lines.keys - self.lines.width, self.lines.keys)
        self.keys[:, :, slots] = self.lines.spread(keys).transpose(1, 2)
        self.values[:, :, slots] = self.lines.spread(values).transpose(1, 2)

    def windows(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of each line, (N, G, Q, K), by text, (n, G, W·Q, K), and the keys and values that they meet."""
        q = self.lines.spread(q).transpose(1, 2).flatten(2, 3)
        return q, self.keys[:, :, : self._written], self.values[:, :, : self._written]

    def written_out(self, queries: int = 1) -> Tensor:
        """The mask, as an addend for the scores of this many queries of each line: (n, 1, W·Q, S)."""
        if self.mask is not None:
            return self.mask[:, None, None]
        return self.lines.mask[:, None, :, : self.lines.keys].repeat_interleave(queries, dim=2)

    def rows(self, z: Tensor) -> Tensor:
        """The result for `windows`, line by line: (n, G, W·Q, K) -> (N, G·Q·K)."""
        by_slot = z.unflatten(2, (self.lines.width, -1)).transpose(1, 2)  # (n, W, G, Q, K)
        return self.lines.collect(by_slot.flatten(2))

    def attend(self, q: Tensor) -> Tensor:
        """softmax(q kᵀ/√K + mask) v of each line: (N, G, Q, K) -> (N, G·Q·K)."""
        return self.rows(cached_product(*self.windows(q), self.written_out(q.shape[2])))

    def keep(self, texts: Tensor) -> None:
        """Give up the slots of all other texts."""
        self.keys, self.values = (self._select(x, texts) for x in (self.keys, self.values))
        self.mask = self.mask if self.mask is None else self.mask[texts]

    def _select(self, x: Tensor, texts: Tensor) -> Tensor:
        """The keys or values of these texts alone, (n, G, S, K); parts not yet written are not copied."""
        kept = x.new_empty(len(texts), *x.shape[1:])  # filled without gradients: `out` allows none, a search needs none
        torch.index_select(x.detach()[:, :, : self._written], 0, texts, out=kept[:, :, : self._written])
        return kept

    @property
    def _written(self) -> int:
        """Number of keys written."""
        return self.lines.keys if self.mask is None else self.keys.shape[2]


@dataclass
class RowCache:
    """Rows that an attention module has read, for one that recomputes keys and values from them at every position."""

    lines: BeamState
    rows: Tensor  # (n, S, D); of self-attention S slots of all positions, of encoder-decoder attention the memory
    mask: Tensor | None = None  # (n, S), added to the scores of encoder-decoder attention; self-attention has none

    @classmethod
    def empty(cls, lines: BeamState, width: int, like: Tensor) -> RowCache:
        """For self-attention, with room for a row of this width at every position of the lines."""
        return cls(lines, like.new_zeros(lines.texts, lines.mask.shape[-1], width))

    def add(self, x: Tensor) -> None:
        """Store the rows of this position, (N, D)."""
        self.rows[:, self.lines.keys - self.lines.width : self.lines.keys] = self.lines.spread(x)

    def prefixes(self) -> Tensor:
        """The rows that each line descends from, in their order, and its own: (N, P, D)."""
        past = self.lines.mask[:, :, : self.lines.keys] == 0  # (n, W, P·W), one slot of each position
        past = self.lines.collect(past)  # (N, P·W)
        slots = past.nonzero()[:, 1].view(len(past), -1)  # (N, P)
        text = self.lines.slots // self.lines.width  # (N,)
        return self.rows[text[:, None], slots]

    def keep(self, texts: Tensor) -> None:
        """Give up the slots of all other texts."""
        self.rows = self.rows[texts]
        self.mask = self.mask if self.mask is None else self.mask[texts]


@dataclass
class State:
    """How far a search has come: its lines, and the caches of each layer by kind of attention."""

    lines: BeamState
    layers: list[dict[str, PositionCache]] = field(default_factory=list)

    def select(self, lines: Tensor) -> None:
        """Line i continues the former line lines[i]; see `BeamState.select`."""
        kept = self.lines.select(lines)
        for caches in self.layers if kept is not None else ():
            for cache in caches.values():
                cache.keep(kept)


def cached_product(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """softmax(q kᵀ/√K + mask) v: (n, G, W, K). For a few queries a third of the time of torch's fused kernel."""
    scores = (q @ k.transpose(-2, -1)).mul_(q.shape[-1] ** -0.5).add_(mask)
    return scores.softmax(-1) @ v
