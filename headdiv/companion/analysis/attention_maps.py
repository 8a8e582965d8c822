"""Attention maps: the weights of one module's heads over the tokens of one example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headdiv.core.errors import DataError
from headdiv.nn.records import HeadRecord

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of the heads of one module.

    Attributes:
        queries: N tokens that attend, including special tokens such as ``<s>``, as the model reads them.
        keys: S tokens that are attended to.
        weights: (H, N, S); a row of a head sums to 1.
    """

    queries: list[str]
    keys: list[str]
    weights: np.ndarray

    def head(self, number: int) -> pd.DataFrame:
        """The weights of one head, counted from 1: a row for each query, a column for each key.

        Raises:
            DataError: there is no such head.
        """
        if not 1 <= number <= len(self.weights):
            raise DataError(f"head {number}: the heads are 1 to {len(self.weights)}")
        import pandas as pd  # here: nothing else in the library needs it

        return pd.DataFrame(self.weights[number - 1], index=self.queries, columns=self.keys)


def maps_of_records(records: Iterable[HeadRecord], tokens: Mapping[str, list[str]]) -> dict[str, AttentionMap]:
    """The maps of one example by attention module ("encoder 1", "decoder 2", "cross 1").

    Args:
        records: of a forward pass over a batch of one example, with attention weights.
        tokens: the queries' tokens by kind of attention.
    """
    maps = {}
    for record in records:
        kind = record.spec.kind
        weights = record.weights[0].float().cpu().numpy()  # of the only window
        maps[record.spec.name] = AttentionMap(tokens[kind], tokens["encoder" if kind == "cross" else kind], weights)
    return maps
