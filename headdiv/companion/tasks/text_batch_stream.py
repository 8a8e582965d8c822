"""Training batches of a corpus in memory, and from a stream of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headdiv.companion.data.corpora.mixture import Mixture
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.core import distributed
from headdiv.core.errors import ConfigError
from headdiv.training.batch_streams import BatchStream


class PlannedBatchStream(BatchStream):
    """Batches of a corpus in memory, by plans of example numbers.

    With several ranks, each takes the examples ``[rank::world_size]`` of every batch; its share may be empty.

    Args:
        plan: the batches of an epoch, as example numbers.
        make: packs a batch.
    """

    def __init__(self, plan: Callable[[int], list[list[int]]], make: Callable[[list[int]], Any]) -> None:
        self.plan, self.make = plan, make

    def batches(self, epoch: int) -> int:
        """See `BatchStream`."""
        return len(self.plan(epoch))

    def epoch(self, number: int) -> Iterator[Any]:
        """See `BatchStream`."""
        for numbers in self.plan(number)[self.done :]:
            self.done += 1
            yield self.make(numbers[distributed.rank() :: distributed.world()])
        self.done = 0


class TextBatchStream(BatchStream):
    """Batches of windows from a stream; with several ranks each takes the windows ``[rank::world_size]``."""

    def __init__(
        self,
        stream: Mixture,
        windows: int,
        batches: int,
        make: Callable[[np.ndarray], Any],
        bad_records: BadRecords,
    ) -> None:
        if windows < distributed.world():
            raise ConfigError(
                f"train.tokens_per_batch: a batch has {windows} windows, too few for {distributed.world()} ranks"
            )
        self.stream, self.windows, self._batches, self.make = stream, windows, batches, make
        self.bad_records = bad_records

    def batches(self, epoch: int) -> int:
        return self._batches

    def epoch(self, number: int) -> Iterator[Any]:
        while self.done < self._batches:
            tokens = self.stream.next(self.windows)
            self.done += 1
            yield self.make(tokens[distributed.rank() :: distributed.world()])
        self.done = 0

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "stream": self.stream.state(), "refused": dict(self.bad_records.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        self.stream.restore(state["stream"])  # which reads the current block again, with its bad records
        self.bad_records.counts.clear()
        self.bad_records.counts.update(state["refused"])

    def report(self) -> dict[str, Any]:
        """Tokens read of each source, complete passes over it, and the counts of records left out."""
        refused = dict(self.bad_records.counts)
        return {"tokens": self.stream.tokens, "passes": self.stream.passes, "refused": refused}
