"""What headdiv asks of an attention module.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, N query slots, S key slots, H heads,
D model width, K head width (d_k); one token at a time N lines of n texts, as in `headdiv.nn.caches`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from headdiv.nn.caches import Cache
from headdiv.nn.packing import AttentionLayout, full_rows, one_token_each
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

    # ---- one token at a time

    def self_cache(self, lines: int, like: Tensor) -> Cache:
        """An empty cache for this many lines, with dtype and device of ``like``; `step` reads it."""
        return Cache((like.new_empty(lines, 0, self.spec.d_model),))

    def cross_cache(self, memory: Tensor, mask: Tensor) -> Cache:
        """The same for each text's padded memory (n, S, D); mask (n, S) is added to the scores."""
        return Cache((memory,), mask[:, None, None])

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        """One new position for each line, (N, D) -> (N, D); a self-attention cache grows by it."""
        recorders, self.recorders = self.recorders, ()  # nothing is recorded
        try:
            if cache.mask is None:
                cache.add(x)
            (rows,) = cache.kept  # (N, S, D) of self-attention, (n, S, D) of a memory
            keys = full_rows(*rows.shape[:2], x.device)
            if cache.mask is None:
                return self(rows.flatten(0, 1), None, AttentionLayout(keys, keys, None)).view(rows.shape)[:, -1]
            width = len(x) // len(rows)  # lines of each text
            queries = one_token_each(len(rows), width, cache.position, x.device)
            layout = AttentionLayout(queries, keys, cache.mask.expand(-1, -1, width, -1))
            return self(x, rows.flatten(0, 1), layout)
        finally:
            self.recorders = recorders

    def edited_in_step(self, heads: Tensor, cache: Cache) -> Tensor:
        """The heads' outputs (N, H, K) of one position after all edits and masks, for `step`."""
        if self.edits:
            heads = self.edited(heads, one_token_each(len(heads), 1, cache.position, heads.device))
        return self.masked(heads)
