"""What headdiv asks of an attention module.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, N query slots, S key slots, H heads,
D model width, K head width (d_k); one token at a time N lines of n texts, as in `headdiv.nn.caches`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from headdiv.nn.caches import BeamState, PositionCache, RowCache
from headdiv.nn.packing import AttentionLayout, PackedRows, one_token_each, padded_rows
from headdiv.nn.records import HeadModule


class AttentionModule(HeadModule, ABC):
    """What headdiv asks of an attention module: the base class of `MultiHeadAttention` and of methods' own modules.

    A subclass needs a `forward` pass, and calls `record` in it so that its heads can be measured, edited and masked. It
    then runs in the model of every task and in the drop-in. It decodes by recomputing every text so far; override
    `self_cache`, `cross_cache` and `step` to be faster.
    """

    @abstractmethod
    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """(T, D) queries and, for encoder-decoder attention, (T', D) memory -> (T, D)."""

    @property
    def rowwise(self) -> bool:
        """Whether, in training too, rows affect each other only through attention, not through statistics or counts.

        Padding among the rows then changes only its own output.
        """
        return False

    # ---- one token at a time

    def self_cache(self, lines: BeamState, like: Tensor) -> PositionCache:
        """An empty cache for these lines, with dtype and device of ``like``; `step` reads it."""
        return RowCache.empty(lines, self.spec.d_model, like)

    def cross_cache(self, lines: BeamState, memory: Tensor, mask: Tensor) -> PositionCache:
        """The same for the texts' padded memory (n, S, D); mask (n, S) is added to the scores."""
        return RowCache(lines, memory, mask)

    def step(self, x: Tensor, cache: Any) -> Tensor:
        """One new position for each line, (N, D) -> (N, D); a self-attention cache grows by it."""
        if cache.mask is None:
            cache.add(x)
            prefixes = cache.prefixes()  # (N, P, D)
            rows = _window_rows(prefixes)
            return self._forward_windows(prefixes, None, AttentionLayout(rows, rows, None))[:, -1]
        queries = cache.lines.spread(x)  # (n, W, D)
        mask = cache.mask[:, None, None].expand(-1, -1, queries.shape[1], -1)  # (n, 1, W, S)
        slots = one_token_each(queries.shape[0] * queries.shape[1], cache.lines.position, x.device)
        layout = AttentionLayout(_window_rows(queries), _window_rows(cache.rows), mask, rows_of_edits=slots)
        return cache.lines.collect(self._forward_windows(queries, cache.rows.flatten(0, 1), layout))

    def edited_in_step(self, heads: Tensor, cache: Any) -> Tensor:
        """The heads' outputs (N, H, K) of one position after all edits and masks, for `step`."""
        if self.edits:
            heads = self.edited(heads, one_token_each(len(heads), cache.lines.position, heads.device))
        return self.masked(heads)

    def _forward_windows(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        """`forward` of windows (R, N, D) -> (R, N, D), without head records."""
        recorders, self.recorders = self.recorders, ()
        try:
            return self(x.flatten(0, 1), memory, layout).unflatten(0, x.shape[:2])
        finally:
            self.recorders = recorders


def _window_rows(x: Tensor) -> PackedRows:
    """The rows of (R, N, D): each window one whole sentence."""
    return padded_rows(torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))
