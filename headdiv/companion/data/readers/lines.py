r"""Lines, JSON records and members of data files, plain or packed: what all readers share.

Only ``\n`` ends a line: other characters that Unicode counts as line ends (U+2028, U+0085, a form feed) stay inside,
since splitting at them would shift a parallel text by a line. One ``\r`` before the end of a line and a byte order
mark at the start of the file are taken off.
"""

from __future__ import annotations

import codecs
import gzip
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zstandard
from pydantic_core import from_json

from headdiv.core.errors import DataError

PIECE = 1 << 20  # bytes read at once
PACKINGS = (".gz", ".zst")  # endings of packed files
VISIBLE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]")  # neither white space nor a control character


class BadRecordError(DataError):
    """Why a record cannot be used, in the same words for all records with this fault."""


class BadRecords:
    """What readers do with records that cannot be used: raise, or leave them out and count them.

    Args:
        strict: raise at the first such record; else it is left out and counted in ``counts``, by reason. A record that
            is read again, by another pass or source, is counted once.
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.counts: Counter[str] = Counter()
        self.places: set[str] = set()  # of the records that are counted

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Report a `BadRecordError` of the block with this place ("train.jsonl, line 3").

        Raises:
            DataError: there was one, and records are read strictly.
        """
        try:
            yield
        except BadRecordError as reason:
            if self.strict:
                raise DataError(
                    f"{place}: {reason}; data.strict: false leaves such records out and counts them"
                ) from None
            if place not in self.places:
                self.places.add(place)
                self.counts[str(reason)] += 1


def is_empty(text: str) -> bool:
    """Whether a text is made of nothing but white space and control characters."""
    return VISIBLE.search(text) is None


def decode(record: bytes) -> str:
    """UTF-8 text of a record's bytes, or a `BadRecordError`."""
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRecordError("not UTF-8 text") from None


def json_object(record: bytes) -> dict[str, Any]:
    """The JSON object of a record's bytes, or a `BadRecordError`."""
    try:
        value = from_json(record)
    except ValueError:
        raise BadRecordError("not valid JSON") from None
    if not isinstance(value, dict):
        raise BadRecordError("not a JSON object")
    return value


def text_of(record: dict[str, Any], key: str) -> str:
    """The text under a key of a JSON object, or a `BadRecordError` where there is none, an empty one or no text."""
    text = record.get(key)
    if text is not None and not isinstance(text, str):
        raise BadRecordError(f'"{key}" is not a text')
    if text is None or is_empty(text):
        raise BadRecordError(f'no text under "{key}"')
    return text


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their ends; ``.gz`` and ``.zst`` are unpacked.

    Raises:
        DataError: the file is missing or empty, or a packed file is cut off or damaged.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            pieces = iter(lambda: file.read(PIECE), b"")
            for line in split_lines(_unpack_zst(pieces) if path.suffix == ".zst" else pieces):
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


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut bytes that come in pieces into lines; see the module's docstring."""
    mark, remainder = codecs.BOM_UTF8, b""
    for piece in pieces:
        *lines, remainder = (remainder + piece).split(b"\n")
        for line in lines:
            yield line.removeprefix(mark).removesuffix(b"\r")
            mark = b""
    if remainder:
        yield remainder.removeprefix(mark).removesuffix(b"\r")


def _unpack_zst(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack all frames. (The library's own stream reader does not notice that a frame is cut off.)"""
    unpacker = zstandard.ZstdDecompressor()
    frame = None
    for piece in pieces:
        packed = piece
        while packed:
            frame = frame or unpacker.decompressobj()
            yield frame.decompress(packed)
            packed = b""
            if frame.eof:
                packed, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the file ends in the middle of a frame")


def unpacked(path: Path) -> Path:
    """A file's name without the ending that says how it is packed."""
    return path.with_suffix("") if path.suffix in PACKINGS else path


def read_lines(path: Path | str) -> list[str]:
    """All lines of a UTF-8 text; errors of `raw_lines` and `decode_lines`."""
    return decode_lines(raw_lines(Path(path)), str(path))


def decode_lines(lines: Iterable[bytes], name: str) -> list[str]:
    """Lines as text; a line that is not UTF-8 is a DataError, which names the file by ``name``."""
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(decode(line))
        except BadRecordError as reason:
            raise DataError(f"{name}, line {number}: {reason}") from None
    return texts


def members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the files in a ``.tar.gz`` whose names are wanted, in its order; nothing is unpacked to disk.

    Raises:
        DataError: the archive is missing or damaged. (One that is cut off between two members just ends early.)
    """
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if member.isreg() and wanted(member.name):
                    yield member.name, tar.extractfile(member).read()
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file") from None
    except tarfile.TarError as error:
        raise DataError(f"{archive}: the archive is cut off or damaged ({error}); fetch it again") from None
