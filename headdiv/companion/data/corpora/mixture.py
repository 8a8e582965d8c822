"""An endless stream of token windows from several sources, mixed by weights; and the windows of held-out text.

Each document is the token ``end`` and its own tokens. Documents are concatenated and cut into windows of context + 1
tokens that overlap by one: inputs are ``window[:-1]``, targets ``window[1:]``, and each token is a target exactly once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headdiv.companion.data.readers.documents import read_documents
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.tokenization.bpe import Bpe
from headdiv.core.errors import DataError

if TYPE_CHECKING:
    from headdiv.companion.tasks.lm import LMData

WHOLE = "all"  # name of the single source where the text is not mixed


@dataclass
class _Source:
    """One source's position: after ``record`` records of a shard, in pass ``passes`` (from 0); and tokens so far."""

    shard: int = 0
    record: int = 0
    passes: int = 0
    tokens: int = 0

    def documents(self, name: str, shards: Sequence[Path], read: Callable[..., Any]) -> Iterator[str]:
        """The texts from this position on, pass after pass, without an end."""
        first, start, passes = self.shard, self.record, self.passes
        has_documents = first > 0 or start > 0  # assumed of a position in the middle, which may be after the last one
        while True:
            for shard in range(first, len(shards)):
                for record, text in read(shards[shard], start=start):
                    has_documents = True
                    self.shard, self.record, self.passes = shard, record, passes
                    yield text
                start = 0
            if not has_documents:
                raise DataError(f"source {name!r}: no document in its {len(shards)} shards")
            first, passes, has_documents = 0, passes + 1, False


class Mixture:
    """The stream: windows from all sources, always the same for the same arguments, without an end.

    The next document comes from the source with the largest deficit (share · tokens of all sources - its own
    tokens), so the shares follow the weights within a few documents, without random draws. A source whose last shard
    ends begins again at its first. Documents are read until ``block`` windows can be cut; these are permuted, and
    the remaining tokens (at most ``context``) begin the next block. Memory holds one block, which a long last document
    makes larger.

    Args:
        shards: the files, in order, of which each source takes its own documents (see `read_documents`).
        bpe: gives the tokens of each text.
        config: its ``mixture``, ``context``, ``block`` and ``document_start``.
        seed: of the permutations.
        bad_records: gets records that cannot be used; each is counted once, although every pass and source meets it.

    Raises:
        DataError: later, from `next` and `restore`: a shard cannot be read (see `read_documents`), or a source has no
            documents.
    """

    def __init__(self, shards: Sequence[Path], bpe: Bpe, config: LMData, seed: int, bad_records: BadRecords) -> None:
        self._shards, self._bpe, self._config, self._seed = shards, bpe, config, seed
        self._bad_records = bad_records
        weights = config.mixture or {WHOLE: 1.0}
        self._shares = {name: weights[name] / math.fsum(weights.values()) for name in sorted(weights)}
        self._block = 0  # blocks read so far
        self._carried = np.empty(0, dtype=np.int32)
        self._windows = np.empty((0, config.context + 1), dtype=np.int32)  # of the current block, permuted
        self._taken = 0  # windows of the block that were returned
        self._block_start: dict[str, Any] = {}  # the state where the current block began
        self._open_sources({name: _Source() for name in self._shares})

    def _open_sources(self, sources: dict[str, _Source]) -> None:
        """Continue reading from these positions."""
        read = partial(read_documents, bad_records=self._bad_records, document_start=self._config.document_start)
        self._sources = sources
        self._documents = {
            name: source.documents(name, self._shards, partial(read, source=name if self._config.mixture else None))
            for name, source in sources.items()
        }

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each source's documents up to the current block's end, each with its ``end``."""
        return {name: source.tokens for name, source in self._sources.items()}

    @property
    def passes(self) -> dict[str, int]:
        """Complete passes over each source before its last document."""
        return {name: source.passes for name, source in self._sources.items()}

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
        return self._block_start | {"taken": self._taken}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue at the position of a `state` of the same stream; the current block is read again."""
        self._open_sources({name: _Source(**position) for name, position in state["sources"].items()})
        self._bad_records.places = set(state["refused"])
        self._block = state["block"]
        self._carried = np.array(state["carried"], dtype=np.int32)
        self._windows, self._taken = self._windows[:0], 0
        if state["taken"]:
            self._read_block()
            self._taken = state["taken"]

    def _snapshot(self) -> dict[str, Any]:
        return {
            "block": self._block,
            "taken": 0,
            "carried": self._carried.tolist(),
            "refused": sorted(self._bad_records.places),
            "sources": {name: asdict(source) for name, source in self._sources.items()},
        }

    def _read_block(self) -> None:
        self._block_start = self._snapshot()
        context = self._config.context
        parts, size = [self._carried], len(self._carried)
        while size - 1 < self._config.block * context:
            name = self._next_source()
            document = _encode(next(self._documents[name]), self._bpe)
            self._sources[name].tokens += len(document)
            parts.append(document)
            size += len(document)
        windows, self._carried = _cut(np.concatenate(parts), context)
        order = np.random.default_rng([self._seed, self._block]).permutation(len(windows))
        self._windows, self._taken = windows[order], 0
        self._block += 1

    def _next_source(self) -> str:
        """The source with the largest deficit; of equal ones that with the largest share, then the first by name."""
        tokens = self.tokens
        total = sum(tokens.values())
        return max(self._shares, key=lambda name: (self._shares[name] * total - tokens[name], self._shares[name]))


def _encode(text: str, bpe: Bpe) -> np.ndarray:
    """``end`` and the tokens of a text, int32."""
    return np.array([bpe.end, *bpe.encode_batch([text])[0]], dtype=np.int32)


def _cut(row: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """All whole windows (count, context + 1) of a row of tokens, as a view, and the tokens that begin the next one."""
    windows = np.lib.stride_tricks.sliding_window_view(row, context + 1)[::context]
    return windows, row[len(windows) * context :].copy()


@dataclass(frozen=True)
class HeldOut:
    """Validation or test text in windows, and the sizes of the raw text by which its measures are divided.

    Attributes:
        windows: int32 (windows, context + 1); the last is padded with -1: as a target it is not scored, as an input it
            may be read as any id.
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
    paths: Sequence[Path],
    bpe: Bpe,
    config: LMData,
    bad_records: BadRecords,
    source: str | None = None,
    limit: int | None = None,
) -> HeldOut:
    """Read all documents, or those of one source, in order, and cut them as `Mixture` does, without permuting.

    An ``end`` after the last document lets the end of each be predicted, as in training. Every token but the
    first ``end`` is a target exactly once. ``limit``: stop after the document that reaches this number of tokens.

    Raises:
        DataError: a file cannot be read (see `read_documents`), or none has a document.
    """
    texts = (
        text
        for path in paths
        for _, text in read_documents(path, bad_records, source=source, document_start=config.document_start)
    )
    parts, words, byte_count, tokens = [], 0, 0, 0
    for text in texts:
        parts.append(_encode(text, bpe))
        tokens += len(parts[-1])
        words += len(text.split())
        byte_count += len(text.encode())
        if limit is not None and tokens >= limit:
            break
    if not parts:
        raise DataError(f"{', '.join(map(str, paths))}: found no document, expected at least one")
    row = np.concatenate([*parts, np.array([bpe.end], dtype=np.int32)])
    padding = -(len(row) - 1) % config.context
    windows, _ = _cut(np.pad(row, (0, padding), constant_values=-1), config.context)
    return HeldOut(windows.copy(), len(parts), words, byte_count)
