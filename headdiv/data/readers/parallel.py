"""Readers of plain and parallel text: one sentence a line, UTF-8, plain or compressed with gzip."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from headdiv.core.errors import DataError
from headdiv.data.readers.bad_records import BadRecords


@dataclass(frozen=True)
class TextSide:
    """One side of a parallel text: the sentences of a file, and where each stands.

    Attributes:
        name: for messages: the file, or an archive and its member.
        sentences: in their order.
        places: of each sentence: the number of its line, or the name of its segment ("doc 69, seg 1").
        unit: what sentences are called: "line" or "segment".
    """

    name: str
    sentences: list[str]
    places: Sequence[int | str]
    unit: str = "line"

    def where(self, number: int) -> str:
        """File and place of a sentence, counted from 0, for messages."""
        place = self.places[number]
        return f"{self.name}, line {place}" if isinstance(place, int) else f"{self.name}, {place}"


@contextmanager
def opened(path: Path, reached: Callable[[], str] = str) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked where its name ends in ``.gz``; what goes wrong while they are read is a DataError.

    Args:
        path: the file.
        reached: how far the reading has come ("after line 3"), for messages about damaged gzip streams.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        where = ", ".join(part for part in (str(path), reached()) if part)
        raise DataError(
            f"{where}: the gzip stream is cut off or damaged ({error}); delete the file and fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_lines(path: Path | str) -> list[str]:
    r"""Read the lines of a UTF-8 text; a name that ends in ``.gz`` is read through gzip.

    Only ``\n`` ends a line: other characters that Unicode counts as line ends (U+2028, U+0085, a form
    feed) stay inside a sentence, since splitting at them would shift a parallel text by a line. One
    ``\r`` before the end of a line and a byte order mark at the start of the file are taken off.

    Raises:
        DataError: the file is missing, unreadable or empty, is a damaged gzip stream, or holds bytes
            that are not UTF-8 (the message names file, line and byte offset).
    """
    path = Path(path)
    lines: list[str] = []
    with opened(path, lambda: f"after line {len(lines)}") as file:
        for line in decoded(file, str(path)):
            lines.append(line)  # one by one: a message may ask how many there are
    if not lines:
        raise DataError(f"{path}: the file is empty, expected one sentence a line")
    return lines


def decoded(raw_lines: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a file that is open already, by the rules of `read_lines`; ``name`` is for messages."""
    offset = number = 0  # offset of the current line's first byte, in the unpacked text
    for raw in raw_lines:
        line = raw.removeprefix(codecs.BOM_UTF8) if offset == 0 else raw
        if line:  # a byte order mark alone is no line
            number += 1
            yield _decode(line, name, number, offset + len(raw) - len(line))
        offset += len(raw)


def _decode(line: bytes, name: str, number: int, offset: int) -> str:
    try:
        return line.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}, line {number}: byte 0x{line[error.start]:02x} at byte offset {offset + error.start} "
            "is not UTF-8; expected UTF-8 text"
        ) from None


def read_parallel(
    source: Path | str | TextSide,
    target: Path | str | TextSide,
    *,
    expected: int | None = None,
    bad_records: BadRecords | None = None,
    keep_empty: bool = False,
) -> list[tuple[str, str]]:
    """Read two texts whose lines belong together, as pairs of (source sentence, target sentence).

    Args:
        source: the text in the language to translate from: a file of one sentence a line, or read already.
        target: the text in the language to translate into, likewise.
        expected: how many pairs there must be; None takes any number.
        bad_records: what becomes of pairs with an empty sentence; an error where left out.
        keep_empty: keep them instead.

    Raises:
        DataError: a file cannot be read (see ``read_lines``), the files have unequal numbers of lines
            or not the expected number, or a sentence is empty or only white space.
    """
    bad_records = bad_records or BadRecords()
    sides = source, target = [side if isinstance(side, TextSide) else plain(side) for side in (source, target)]
    if len(source.sentences) != len(target.sentences):
        raise DataError(_unequal(source, target))
    pairs = list(zip(source.sentences, target.sentences, strict=True))
    if expected is not None and len(pairs) != expected:
        raise DataError(f"{source.name} and {target.name}: found {len(pairs)} pairs, expected {expected}")
    if keep_empty:
        return pairs
    kept = []
    for number, pair in enumerate(pairs):
        empty = next((side for side, sentence in zip(sides, pair, strict=True) if not sentence.strip()), None)
        if empty is None:
            kept.append(pair)
        else:
            bad_records.add(empty.where(number), f"the sentence is empty, expected one on every {empty.unit}")
    return kept


def plain(path: Path | str) -> TextSide:
    """A file of one sentence a line; errors as those of `read_lines`."""
    lines = read_lines(path)
    return TextSide(str(path), lines, range(1, len(lines) + 1))


def _unequal(source: TextSide, target: TextSide) -> str:
    counts = [len(side.sentences) for side in (source, target)]
    said = f"{source.name} has {counts[0]} {source.unit}s but {target.name} has {counts[1]}, expected equally many"
    if "line" in (source.unit, target.unit):  # lines are known by their number only
        return said
    both = zip_longest(source.places, target.places)
    first, second = next((a, b) for a, b in both if a != b)
    return f"{said}; where they part, the first has {first or 'nothing'} and the second {second or 'nothing'}"
