"""Where training batches come from: streams know their position, so that interrupted training resumes exactly."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from headdiv.core import distributed
from headdiv.core.errors import TrainingError

Batches = Iterable[Any] | Callable[[int], Iterable[Any]]  # or a function of the epoch, counted from 0


class BatchStream(ABC):
    """The training batches in their order, with a position that can be stored and restored."""

    done = 0  # batches of the current epoch already handed out

    @abstractmethod
    def batches(self, epoch: int) -> int:
        """Number of batches of an epoch, counted from 0."""

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Any]:
        """The remaining batches of an epoch."""

    def state(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, as JSON."""
        return {"done": self.done}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self.done = state["done"]

    def report(self) -> dict[str, Any]:
        """Facts about what was read that are worth recording, as JSON."""
        return {}


class IterableBatchStream(BatchStream):
    """A list, a `torch.utils.data.DataLoader` or another iterable with a length, iterated again in every epoch.

    Resuming within an epoch iterates from its start, with torch's generator as it was then, and skips the batches that
    are done: exact if the order is fixed or drawn from torch's generator, or from the ``generator`` of the iterable or
    of its sampler. (Where a function returns the batches, no other generator is known.)
    With several ranks, each iterates over its own share, as with `torch.utils.data.DistributedSampler`.
    """

    def __init__(self, batches: Batches) -> None:
        self.source = batches if callable(batches) else lambda epoch: batches
        samplers = getattr(batches, "sampler", None), getattr(getattr(batches, "batch_sampler", None), "sampler", None)
        generators = [torch.default_generator, *(getattr(part, "generator", None) for part in (batches, *samplers))]
        self.generators = list(dict.fromkeys(g for g in generators if isinstance(g, torch.Generator)))
        self.start: list[torch.Tensor] = []  # the generators' states when the epoch began

    def batches(self, epoch: int) -> int:
        """See `BatchStream`."""
        with torch.random.fork_rng(devices=[]):  # counting draws nothing
            batches = self.source(epoch)
            try:
                return len(batches)
            except TypeError:
                raise TrainingError(
                    f"batches: found {type(batches).__name__} without a length; expected a list, a data loader with a "
                    "length, or a function of the epoch that returns one"
                ) from None

    def epoch(self, number: int) -> Iterator[Any]:
        """See `BatchStream`."""
        current_state = torch.get_rng_state()
        self.start = self.start or self._random_states()
        for generator, state in zip(self.generators, self.start, strict=True):
            generator.set_state(state)
        iterator = iter(self.source(number))
        if self.done:
            next(itertools.islice(iterator, self.done - 1, None), None)
            torch.set_rng_state(current_state)
        for batch in iterator:
            self.done += 1
            yield batch
        self.done, self.start = 0, self._random_states()

    def _random_states(self) -> list[torch.Tensor]:
        return [generator.get_state() for generator in self.generators]

    def state(self) -> dict[str, Any]:
        """See `BatchStream`."""
        ranks = [distributed.gathered(state) for state in self.start]  # (ranks, bytes) each
        return {"done": self.done, "start": [[bytes(row.tolist()).hex() for row in rows] for rows in ranks]}

    def restore(self, state: dict[str, Any]) -> None:
        """See `BatchStream`."""
        self.done = state["done"]
        own = [by_rank[distributed.rank()] for by_rank in state["start"]]  # of each generator
        self.start = [torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8) for text in own]
