"""Records of heads by sentence, in the usual rectangular form.

Letters for shapes: T rows of queries and T' of keys (real tokens), R windows, B sentences of at most N queries and S
keys, H heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headdiv.nn.packing import PackedLayout, pad_rows

if TYPE_CHECKING:
    from headdiv.nn.attention import HeadRecord


@dataclass(frozen=True)
class PaddedHeads:
    """What the heads of one module did, a line for each sentence; 0 after its end.

    Attributes:
        outputs: (B, H, N, K).
        values: (B, H, S, K).
        weights: (B, H, N, S), where they were recorded.
        queries: (B, N), True where there is a token.
        keys: (B, S), the same.
    """

    outputs: Tensor
    values: Tensor
    weights: Tensor | None
    queries: Tensor
    keys: Tensor


def padded_heads(record: HeadRecord) -> PaddedHeads:
    """The record's rows by sentence: real tokens come first, wherever padding was."""
    queries, keys, weights = record.layout.queries, record.layout.keys, record.weights
    outputs, values = (
        pad_rows(x, side).transpose(1, 2) for x, side in ((record.outputs, queries), (record.values, keys))
    )
    there = tuple(pad_rows(torch.ones_like(side.positions, dtype=torch.bool), side, False) for side in (queries, keys))
    if weights is not None:
        weights = _of_own_sentence(weights, queries, keys) * there[0][:, None, :, None] * there[1][:, None, None]
    return PaddedHeads(outputs, values, weights, *there)


def _of_own_sentence(weights: Tensor, queries: PackedLayout, keys: PackedLayout) -> Tensor:
    """(R, H, N', S') in windows -> (B, H, N, S); values after a sentence's end are arbitrary."""
    rows = weights.transpose(1, 2).flatten(0, 1)[queries.slots]  # (T, H, S')
    slots = pad_rows(keys.slots % weights.shape[3], keys)[queries.sentence_of_row()]  # (T, S)
    own = rows.gather(2, slots[:, None].expand(-1, rows.shape[1], -1))  # (T, H, S)
    return pad_rows(own, queries).transpose(1, 2)
