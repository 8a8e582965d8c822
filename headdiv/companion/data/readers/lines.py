r"""Lines of files, plain or packed with gzip or zstandard: the reader that all formats share.

Only ``\n`` ends a line: other characters that Unicode counts as line ends (U+2028, U+0085, a form feed) stay inside,
since splitting at them would shift a parallel text by a line. One ``\r`` before the end of a line and a byte order
mark at the start of the file are taken off.
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

PIECE = 65536  # bytes that are read at once
PACKINGS = (".gz", ".zst")  # endings of packed files


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their ends; ``.gz`` and ``.zst`` are unpacked.

    Raises:
        DataError: the file is missing or empty, or a packed file is cut off or damaged.
    """
    number = 0
    try:
        with path.open("rb") as file:
            for line in split_lines(_pieces(file, path.suffix)):
                number += 1
                yield line
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise DataError(
            f"{path}, after line {number}: the packed file is cut off or damaged ({error}); fetch it again"
        ) from None
    if not number:
        raise DataError(f"{path}: the file is empty")


def unpacked(path: Path) -> Path:
    """A file's name without the ending that says how it is packed."""
    return path.with_suffix("") if path.suffix in PACKINGS else path


def read_lines(path: Path | str) -> list[str]:
    """All lines of a UTF-8 text; errors as those of `raw_lines`, and where bytes are not UTF-8."""
    return decode_lines(raw_lines(Path(path)), str(path))


def decode_lines(lines: Iterable[bytes], name: str) -> list[str]:
    """Lines as text; ``name`` is the file's, for the DataError about a line that is not UTF-8."""
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(decode(line))
        except BadRecordError as fault:
            raise DataError(f"{name}, line {number}: {fault}") from None
    return texts


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut bytes that come in pieces into lines; see `raw_lines`."""
    mark = codecs.BOM_UTF8  # at the start of the first line alone
    begun: list[bytes] = []  # of the current line
    for piece in pieces:
        end, *others = piece.split(b"\n")
        begun.append(end)
        for other in others:
            yield b"".join(begun).removeprefix(mark).removesuffix(b"\r")
            mark, begun = b"", [other]
    if last := b"".join(begun).removeprefix(mark):
        yield last.removesuffix(b"\r")


def _pieces(file: BinaryIO, packing: str) -> Iterator[bytes]:
    """The unpacked bytes of a file."""
    if packing == ".zst":
        yield from _unpack_zst(file)
        return
    with gzip.open(file, "rb") if packing == ".gz" else file as opened:
        while piece := opened.read(PIECE):
            yield piece


def _unpack_zst(file: BinaryIO) -> Iterator[bytes]:
    """Unpack all frames. (The library's own stream reader takes a frame that is cut off for a whole one.)"""
    unpacker = zstandard.ZstdDecompressor()
    frame = None
    while packed := file.read(PIECE):
        while packed:
            frame = frame or unpacker.decompressobj()
            yield frame.decompress(packed)
            packed = b""
            if frame.eof:
                packed, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the file ends in the middle of a frame")
