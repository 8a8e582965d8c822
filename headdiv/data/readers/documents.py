"""A streaming reader of documents: JSON lines in SlimPajama's form, or plain text; packed or not.

Nothing is ever held but the document at hand, so memory does not grow with the corpus. A record that
is longer than `LONGEST` is refused without being gathered, so that a file in the wrong form (one endless
line) cannot exhaust the memory either.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from headdiv.core.errors import DataError
from headdiv.data.readers.bad_records import BadRecords

# Sources by the names of DEACON's Table 2, and what SlimPajama calls them in meta.redpajama_set_name.
SLIMPAJAMA = {
    "CommonCrawl": "RedPajamaCommonCrawl",
    "C4": "RedPajamaC4",
    "GitHub": "RedPajamaGithub",
    "Books": "RedPajamaBook",
    "Wikipedia": "RedPajamaWikipedia",
    "ArXiv": "RedPajamaArXiv",
    "StackExchange": "RedPajamaStackExchange",
}

# DEACON, Table 2: percent of the training tokens.
TABLE_2 = {
    "CommonCrawl": 67.0,
    "C4": 15.0,
    "GitHub": 4.5,
    "Books": 4.5,
    "Wikipedia": 4.5,
    "ArXiv": 2.5,
    "StackExchange": 2.0,
}

LONGEST = 64 * 1024 * 1024  # bytes of one record; books of a few megabytes are the longest in SlimPajama
PIECE = 65536  # bytes that are read, or unpacked by gzip, at once
PACKED_PIECE = 4096  # bytes given to zstandard at once: what they unpack to has no bound but this one

SET_KEY = b'"redpajama_set_name"'
SET_NAME = re.compile(SET_KEY + rb'\s*:\s*"([^"\\]*)"')
SET_OF = {name: source for source, name in SLIMPAJAMA.items()}


class _BrokenStream(Exception):
    """A packed file that is cut off or damaged."""


def read_documents(
    path: Path | str,
    bad_records: BadRecords,
    *,
    source: str | None = None,
    start: int = 0,
    document_start: str | None = None,
) -> Iterator[tuple[int, str]]:
    r"""Read the documents of one file in order, holding one at a time.

    The name says what the file is. ``.jsonl``, ``.jsonl.gz``, ``.jsonl.zst``: one JSON object a line with
    the document under "text" and, in SlimPajama's form, its set under "meta" → "redpajama_set_name"; every
    line is a record, blank ones are passed over. Any other name, with ``.gz`` or ``.zst`` behind it or
    not: plain text, whose documents are the records. A document's text goes from its first line that is
    not blank to its last such line, with the lines as they stand between them (``\r\n`` read as ``\n``)
    and without the last line's end. A byte order mark at the start of the file is taken off.

    Args:
        path: the file; a packed one may consist of several frames or members.
        bad_records: told of records that cannot be used: lines that are not JSON or lack a string "text",
            bytes that are not UTF-8, halves of surrogate pairs, empty documents, records longer than
            `LONGEST`. A packed stream that is cut off or damaged counts as one record, and ends the
            file: the record in which it breaks off is not given.
        source: give the documents of this set alone (a key of `SLIMPAJAMA`); lines of others are not
            parsed. Lines whose set cannot be told are refused.
        start: how many records to pass over, without parsing them.
        document_start: in plain text, a line in which this regular expression is found begins a document
            (WikiText: ``^ = [^=].* = $``). None: blank lines stand between documents.

    Yields:
        (records of the file up to and with this one: the ``start`` to go on after it, the text).

    Raises:
        DataError: the file is missing, unreadable or empty, or has fewer than ``start`` records; a record
            cannot be used and ``bad_records`` are strict (the message names file and record); ``source`` is
            unknown or asked of plain text; ``document_start`` is no regular expression.
    """
    path = Path(path)
    packed = path.suffix in (".gz", ".zst")
    json_lines = (path.with_suffix("") if packed else path).suffix == ".jsonl"
    if source is not None and source not in SLIMPAJAMA:
        raise DataError(f"{source!r} is not a source of SlimPajama, expected one of {', '.join(SLIMPAJAMA)}")
    if source is not None and not json_lines:
        raise DataError(f"{path}: plain text does not say which source a document is of, expected .jsonl")
    try:
        begins = None if document_start is None else re.compile(document_start)
    except re.error as error:
        raise DataError(f"document_start {document_start!r} is not a regular expression ({error})") from None
    if json_lines:
        return _json_documents(path, bad_records, source, start)
    return _plain_documents(path, bad_records, begins, start)


def _json_documents(path: Path, bad_records: BadRecords, source: str | None, start: int) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(_lines(path), start=1):
            if number <= start or (line is not None and (not line or line.isspace())):
                continue
            if source is not None and line is not None and _other_set(line, source):
                continue
            text = _json_text(line, f"{path}, line {number}", bad_records, source)
            if text is not None:
                yield number, text
    except _BrokenStream as error:
        bad_records.add(f"{path}, after line {number}", "the packed stream is cut off or damaged", str(error))
        return
    _check_start(path, number, start, "lines")


def _plain_documents(
    path: Path, bad_records: BadRecords, begins: re.Pattern[str] | None, start: int
) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, (line, raw) in enumerate(_plain_records(_lines(path), begins), start=1):
            if number > start:
                where = f"{path}, document {number} (from line {line})"
                text = _decode(raw, where, bad_records)
                if text is not None and _usable(text, where, bad_records):
                    yield number, text
    except _BrokenStream as error:
        bad_records.add(f"{path}, after document {number}", "the packed stream is cut off or damaged", str(error))
        return
    _check_start(path, number, start, "documents")


def _check_start(path: Path, found: int, start: int, what: str) -> None:
    if found < start:
        raise DataError(f"{path}: found {found} {what}, expected to go on after {start}: the file has changed")


# --- a record's text ---


def _other_set(line: bytes, source: str) -> bool:
    """Whether the line is surely of another set than ``source``; a line that does not tell is not.

    The key's closing quote cannot stand inside a JSON string without a backslash before it, so a document
    that talks about the key is not taken for one. A line cut short counts for the set it names: it is then
    refused by one source alone.
    """
    at = line.rfind(SET_KEY)  # from the end, where SlimPajama puts it: a long text is not searched
    found = SET_NAME.match(line, at) if at >= 0 else None
    return found is not None and SET_OF.get(found[1].decode("utf-8", "replace"), source) != source


def _json_text(line: bytes | None, where: str, bad_records: BadRecords, source: str | None) -> str | None:
    decoded = _decode(line, where, bad_records)
    if decoded is None:
        return None
    try:
        record = json.loads(decoded)
    except json.JSONDecodeError as error:
        bad_records.add(where, "not valid JSON", f"{error.msg} at column {error.colno}")
        return None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
        bad_records.add(where, "not valid JSON", str(error))
        return None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        found = f'"text" is {_kind(record.get("text"))}' if isinstance(record, dict) else f"{_kind(record)}"
        bad_records.add(where, 'not an object with a string "text"', found)
        return None
    if source is not None:
        meta = record.get("meta")
        name = meta.get("redpajama_set_name") if isinstance(meta, dict) else None
        if not isinstance(name, str) or name not in SET_OF:
            bad_records.add(where, '"meta" does not name one of SlimPajama\'s sets', f"found {name!r}"[:80])
            return None
        if SET_OF[name] != source:
            return None
    return record["text"] if _usable(record["text"], where, bad_records) else None


def _kind(value: object) -> str:
    names = {type(None): "missing or null", bool: "a truth value", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _decode(raw: bytes | None, where: str, bad_records: BadRecords) -> str | None:
    if raw is None:
        bad_records.add(where, f"longer than {LONGEST} bytes")
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        bad_records.add(where, "not UTF-8 text", f"byte 0x{raw[error.start]:02x} at byte {error.start} of the record")
        return None


def _usable(text: str, where: str, bad_records: BadRecords) -> bool:
    if not text or text.isspace():
        bad_records.add(where, "the document is empty")
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can spell "\ud800" alone, which no text can hold
        bad_records.add(where, "half of a surrogate pair", f"at character {error.start} of the text")
        return False
    return True


# --- bytes to records ---


def _plain_records(lines: Iterator[bytes | None], begins: re.Pattern[str] | None) -> Iterator[tuple[int, bytes | None]]:
    """Plain text's documents as (number of the first line, bytes); None in place of one that is too long."""
    first, parts, size = 0, [], 0
    for number, line in enumerate(lines, start=1):
        line = None if line is None else line.removesuffix(b"\r")
        blank = line is not None and not line.strip()
        if begins is None:
            new = blank
        else:  # bytes that are not UTF-8 must not hide where a document begins; they are refused with it
            new = line is not None and begins.search(line.decode("utf-8", "replace")) is not None
        if new and first:
            yield first, _joined(parts, size)
            first, parts, size = 0, [], 0
        if first or not blank:  # blank lines before a document belong to none
            first = first or number
            size += LONGEST + 1 if line is None else len(line) + 1
            parts.append(line or b"")
            if size > LONGEST:
                parts.clear()
    if first:
        yield first, _joined(parts, size)


def _joined(lines: list[bytes], size: int) -> bytes | None:
    if size > LONGEST:
        return None
    while not lines[-1].strip():  # the first is not blank
        lines.pop()
    return b"\n".join(lines)


def _lines(path: Path) -> Iterator[bytes | None]:
    r"""The lines of a file without their ``\n``; None in place of one that is longer than LONGEST."""
    start: list[bytes] = []  # of the current line
    size = 0
    mark = codecs.BOM_UTF8  # until the first line is past
    for piece in _pieces(path):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            size += len(end)
            yield b"".join([*start, end]).removeprefix(mark) if size <= LONGEST else None
            start, size, mark = [], 0, b""
        size += len(rest)
        if size <= LONGEST:
            start.append(rest)
        else:
            start.clear()
    if size:
        yield b"".join(start).removeprefix(mark) if size <= LONGEST else None


def _pieces(path: Path) -> Iterator[bytes]:
    """The unpacked bytes of a file."""
    try:
        with path.open("rb") as file:
            if not file.peek(1):
                raise DataError(f"{path}: the file is empty, expected documents")
            if path.suffix == ".zst":
                yield from _unpack_zst(file)
            elif path.suffix == ".gz":
                with gzip.open(file, "rb") as unpacked:
                    while piece := unpacked.read1(PIECE):
                        yield piece
            else:
                while piece := file.read(PIECE):
                    yield piece
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise _BrokenStream(str(error)) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


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
        raise _BrokenStream("the file ends in the middle of a frame")
