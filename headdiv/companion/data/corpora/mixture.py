"""An endless stream of token windows from several sources, mixed by weights; and the windows of held-out text.

Each document is the token ``end`` and its own tokens. Documents are concatenated and cut into windows of context + 1
tokens that overlap by one: inputs are ``window[:-1]``, targets ``window[1:]``, and each token is a target exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headdiv.companion.data.readers.documents import read_documents
from headdiv.companion.data.readers.records import BadRecords
from headdiv.core.errors import DataError
from headdiv.core.files import short_hash

Encode = Callable[[list[str]], list[list[int]]]  # each text to its tokens, whatever the others are
Read = Callable[..., Iterator[tuple[int, str]]]  # read_documents, all but the path and ``start`` given


class Mixture:
    """The stream: windows from all sources, always the same for the same arguments, without an end.

    The next document comes from the source with the largest deficit (share · tokens of all sources - its own
    tokens), so the shares follow the weights within a few documents, without a draw. A source whose last shard
    ends begins again at its first. Documents are read until ``block`` windows can be cut; these are permuted, and
    the remaining tokens (at most ``context``) begin the next block. Memory holds one block.

    Args:
        sources: each source's shards, in order (see `read_documents` for their form).
        weights: each source's share of the tokens, above zero, to any sum; the names are those of ``sources``.
        encode: gives the tokens of each text; called with one document.
        end: the id before each document.
        context: tokens that a model sees, at least 1.
        seed: of the permutations.
        bad_records: gets records that cannot be used, each once, although every pass and source meets it.
        block: windows that are shuffled together, at least 1. A long last document makes a block larger.
        by_set: each source takes only the documents of its own set from its shards, for SlimPajama, where all
            sources list the same files; the names are then keys of `SLIMPAJAMA`.
        document_start: see `read_documents`.

    Raises:
        DataError: later, from `next` and `restore`: a shard cannot be read (see `read_documents`), or a source has no
            documents.
    """

    def __init__(
        self,
        sources: Mapping[str, Sequence[Path | str]],
        weights: Mapping[str, float],
        encode: Encode,
        *,
        end: int,
        context: int,
        seed: int,
        bad_records: BadRecords,
        block: int = 256,
        by_set: bool = False,
        document_start: str | None = None,
    ) -> None:
        self._encode, self._end, self._context = encode, end, context
        self._seed, self._block_size = seed, block
        self._bad_records = bad_records
        names = sorted(sources)  # the caller's order must not matter
        whole = math.fsum(weights.values())
        self._shares = {name: weights[name] / whole for name in names}
        self._sources = {
            name: _Source(
                name,
                [Path(shard) for shard in sources[name]],
                partial(
                    read_documents,
                    bad_records=bad_records,
                    source=name if by_set else None,
                    document_start=document_start,
                ),
            )
            for name in names
        }
        shards = {name: [shard.name for shard in source.shards] for name, source in self._sources.items()}
        self._stream = short_hash([shards, self._shares, end, context, seed, block, by_set, document_start])
        self._block = 0  # blocks read so far
        self._carried = np.empty(0, dtype=np.int32)
        self._windows = np.empty((0, context + 1), dtype=np.int32)  # of the current block, permuted
        self._taken = 0  # of them
        self._begin: dict[str, Any] = {}  # the state where the current block began

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each source's documents up to the current block's end, each with its ``end``."""
        return {name: source.tokens for name, source in self._sources.items()}

    @property
    def passes(self) -> dict[str, int]:
        """Complete passes over each source before its last document."""
        return {name: source.place.passes for name, source in self._sources.items()}

    def next(self, count: int) -> np.ndarray:
        """The next windows: int32 (count, context + 1)."""
        parts = [self._windows[:0]]
        while count > 0:
            if self._taken == len(self._windows):
                self._read_block()
            part = self._windows[self._taken : self._taken + count]
            self._taken += len(part)
            count -= len(part)
            parts.append(part)
        return np.concatenate(parts)

    def state(self) -> dict[str, Any]:
        """The position for `restore`: JSON-able, at most ``context`` tokens and a line a source."""
        if self._taken == len(self._windows):
            return self._snapshot()
        return self._begin | {"taken": self._taken}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue at the position of a `state`; the current block is read again.

        Raises:
            DataError: the state is of a stream with other arguments or shards of other names (their folder
                may have changed).
        """
        if state["stream"] != self._stream:
            raise DataError(
                f"the state is of another stream: found {state['stream']}, expected {self._stream}; the names of "
                "shards, weights, end, context, seed, block, by_set and document_start must be the same"
            )
        for name, source in self._sources.items():
            place = state["sources"][name]
            source.go_to(_Place(place["shard"], place["record"], place["passes"]), place["tokens"])
        self._bad_records.places = set(state["refused"])
        self._block = state["block"]
        self._carried = np.array(state["carried"], dtype=np.int32)
        self._windows, self._taken = self._windows[:0], 0
        if state["taken"]:
            self._read_block()
            self._taken = state["taken"]

    def _snapshot(self) -> dict[str, Any]:
        return {
            "stream": self._stream,
            "block": self._block,
            "taken": 0,
            "carried": self._carried.tolist(),
            "refused": sorted(self._bad_records.places),
            "sources": {
                name: source.place._asdict() | {"tokens": source.tokens} for name, source in self._sources.items()
            },
        }

    def _read_block(self) -> None:
        self._begin = self._snapshot()
        parts, size = [self._carried], len(self._carried)
        while size - 1 < self._block_size * self._context:
            parts.append(self._next_source().next_document(self._encode, self._end))
            size += len(parts[-1])
        windows, self._carried = _cut(np.concatenate(parts), self._context)
        order = np.random.default_rng([self._seed, self._block]).permutation(len(windows))
        self._windows, self._taken = windows[order], 0
        self._block += 1

    def _next_source(self) -> _Source:
        """The source with the largest deficit; of equals the one with the largest share, then the first by name."""
        total = sum(self.tokens.values())
        need = {name: (share * total - self._sources[name].tokens, share) for name, share in self._shares.items()}
        return self._sources[max(need, key=need.__getitem__)]


class _Place(NamedTuple):
    """Position of a source's next document: after ``record`` records of a shard, in pass ``passes`` (from 0)."""

    shard: int
    record: int
    passes: int


class _Source:
    """One source's documents without an end."""

    def __init__(self, name: str, shards: list[Path], read: Read) -> None:
        self.name, self.shards, self._read = name, shards, read
        self.go_to(_Place(0, 0, 0), 0)

    def go_to(self, place: _Place, tokens: int) -> None:
        """Continue after the document at ``place``; ``tokens`` is the number of tokens so far."""
        self.place, self.tokens = place, tokens
        self._documents = self._endless(place)

    def next_document(self, encode: Encode, end: int) -> np.ndarray:
        """``end`` and the next document's tokens."""
        self.place, text = next(self._documents)
        document = _encoded(text, encode, end)
        self.tokens += len(document)
        return document

    def _endless(self, place: _Place) -> Iterator[tuple[_Place, str]]:
        """Documents, each with its place."""
        first, record, passes = place
        some = first > 0 or record > 0  # in the middle, the last document may be over already
        while True:
            for shard in range(first, len(self.shards)):
                for after, text in self._read(self.shards[shard], start=record):
                    some = True
                    yield _Place(shard, after, passes), text
                record = 0
            if not some:
                raise DataError(f"source {self.name!r}: no document in its {len(self.shards)} shards")
            first, passes, some = 0, passes + 1, False


def _encoded(text: str, encode: Encode, end: int) -> np.ndarray:
    """``end`` and the tokens of a text, int32."""
    return np.array([end, *encode([text])[0]], dtype=np.int32)


def _cut(row: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """All whole windows (count, context + 1) of a row of tokens, as a view, and what the next one begins with."""
    windows = np.lib.stride_tricks.sliding_window_view(row, context + 1)[::context]
    return windows, row[len(windows) * context :].copy()


@dataclass(frozen=True)
class HeldOut:
    """Validation or test text in windows, and the sizes of the raw text that its measures are divided by.

    Attributes:
        windows: int32 (windows, context + 1); the last is padded with -1: such a target is not scored, and such an
            input may be read as any id.
        words: separated by white space.
        bytes: of the documents' texts in UTF-8.
    """

    windows: np.ndarray
    documents: int
    words: int
    bytes: int

    @property
    def targets(self) -> int:
        """Tokens to predict: those of every document, and an ``end`` after each."""
        return int((self.windows[:, 1:] >= 0).sum())


def held_out(
    paths: Sequence[Path | str],
    encode: Encode,
    *,
    end: int,
    context: int,
    bad_records: BadRecords,
    document_start: str | None = None,
    source: str | None = None,
    limit: int | None = None,
) -> HeldOut:
    """Read all documents in order and cut them as `Mixture` does, unshuffled.

    An ``end`` after the last document lets the end of each be predicted, as in training. Every token but the
    first ``end`` is a target exactly once.

    Args:
        paths: files, read with ``bad_records``, ``document_start`` and ``source`` as by `read_documents`.
        encode: see `Mixture`, also for ``end`` and ``context``.
        limit: stop after the document that reaches this number of tokens.

    Raises:
        DataError: a file cannot be read (see `read_documents`), or there is no document in any.
    """
    read = partial(read_documents, bad_records=bad_records, source=source, document_start=document_start)
    parts, words, size, tokens = [], 0, 0, 0
    for _, text in chain.from_iterable(read(path) for path in paths):
        parts.append(_encoded(text, encode, end))
        tokens += len(parts[-1])
        words += len(text.split())
        size += len(text.encode())
        if limit is not None and tokens >= limit:
            break
    if not parts:
        raise DataError(f"{', '.join(str(path) for path in paths)}: found no document, expected at least one")
    row = np.concatenate([*parts, np.array([end], dtype=np.int32)])
    padding = -(len(row) - 1) % context
    windows, _ = _cut(np.pad(row, (0, padding), constant_values=-1), context)
    return HeldOut(windows.copy(), len(parts), words, size)
