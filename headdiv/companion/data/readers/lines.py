r"""Lines of files, plain or packed with gzip or zstandard: the reader that all formats share.

Only ``\n`` ends a line: other characters that Unicode counts as line ends (U+2028, U+0085, a form feed) stay inside,
since splitting at them would shift a parallel text by a line. One ``\r`` before the end of a line and a byte order
mark at the start of the file are taken off. A line longer than `LONGEST` is not gathered, so that a file in the wrong
form (one endless line) cannot exhaust the memory.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from headdiv.companion.data.readers.records import BadRecordError, decode
from headdiv.core.errors import DataError

LONGEST = 64 * 1024 * 1024  # bytes of a line; books of a few megabytes are the longest in SlimPajama
PIECE = 65536  # bytes that are read, or unpacked by gzip, at once
PACKINGS = (".gz", ".zst")  # endings of packed files
PACKED_PIECE = 4096  # bytes given to zstandard at once: what they unpack to has no bound but this one


class DamagedStreamError(DataError):
    """A packed file is cut off or damaged after ``line`` lines; ``detail`` is what the unpacking library says."""

    def __init__(self, path: Path, line: int, detail: str) -> None:
        super().__init__(
            f"{path}, after line {line}: the packed stream is cut off or damaged ({detail}); "
            "delete the file and fetch it again"
        )
        self.detail = detail


def raw_lines(path: Path, expected: str) -> Iterator[bytes | None]:
    r"""The lines of a file without their ends; None in place of one that is longer than `LONGEST`.

    Args:
        path: the file; ``.gz`` and ``.zst`` are unpacked, of several members or frames as of one.
        expected: what the file should hold, for the message about an empty one.

    Raises:
        DataError: the file is missing, unreadable or empty.
        DamagedStreamError: a packed file is cut off or damaged.
    """
    number = 0
    try:
        for line in split_lines(_pieces(path)):
            number += 1
            yield line
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise DamagedStreamError(path, number, str(error)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not number:
        raise DataError(f"{path}: the file is empty, expected {expected}")


def unpacked(path: Path) -> Path:
    """A file's name without the ending that says how it is packed."""
    return path.with_suffix("") if path.suffix in PACKINGS else path


def read_lines(path: Path | str) -> list[str]:
    """All lines of a UTF-8 text; errors as those of `raw_lines`, and where bytes are not UTF-8."""
    return decode_lines(raw_lines(Path(path), "one sentence a line"), str(path))


def decode_lines(lines: Iterable[bytes | None], name: str) -> list[str]:
    """Lines, as `raw_lines` and `split_lines` give them, as text; ``name`` is the file's, for messages.

    Raises:
        DataError: a line is not UTF-8 or too long.
    """
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(decode(whole(line)))
        except BadRecordError as fault:
            raise DataError(f"{name}, line {number}: {fault}") from None
    return texts


def whole(record: bytes | None) -> bytes:
    """The record, unless it was too long to be gathered (None): then a `BadRecordError`."""
    if record is None:
        raise BadRecordError(f"longer than {LONGEST} bytes")
    return record


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes | None]:
    """Cut bytes that come in pieces into lines; see `raw_lines`."""
    begun: list[bytes] = []  # of the current line
    size = 0
    first = True

    def line(end: bytes) -> bytes | None:
        text = b"".join([*begun, end]) if size <= LONGEST else None
        return text if text is None else text.removeprefix(codecs.BOM_UTF8 if first else b"").removesuffix(b"\r")

    for piece in pieces:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            size += len(end)
            yield line(end)
            begun.clear()
            size, first = 0, False
        size += len(rest)
        if size <= LONGEST:
            begun.append(rest)
        else:
            begun.clear()
    if size and (last := line(b"")) != b"":  # a byte order mark alone is no line
        yield last


def _pieces(path: Path) -> Iterator[bytes]:
    """The unpacked bytes of a file."""
    with path.open("rb") as file:
        if path.suffix == ".zst":
            yield from _unpack_zst(file)
        elif path.suffix == ".gz":
            with gzip.open(file, "rb") as unpacked:
                while piece := unpacked.read1(PIECE):
                    yield piece
        else:
            while piece := file.read(PIECE):
                yield piece


def _unpack_zst(file: BinaryIO) -> Iterator[bytes]:
    """Unpack all frames. (The library's own stream reader takes a frame that is cut off for a whole one.)"""
    unpacker = zstandard.ZstdDecompressor()
    frame = None
    while packed := file.read(PACKED_PIECE):
        while packed:
            frame = frame or unpacker.decompressobj()
            if unpacked := frame.decompress(packed):
                yield unpacked
            packed = b""
            if frame.eof:
                packed, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the file ends in the middle of a frame")
