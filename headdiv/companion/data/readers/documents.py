"""A streaming reader of documents: JSON lines in SlimPajama's form, or plain text; packed or not.

Nothing is held but the current document, so memory does not grow with the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import regex

from headdiv.companion.data.readers import lines
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, decode, parse, shown
from headdiv.core.errors import DataError

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

SECONDS = 1  # for which document_start may search a line; some patterns take longer than anybody can wait

SET_KEY = b'"redpajama_set_name"'
SET_NAME = re.compile(SET_KEY + rb'\s*:\s*"([^"\\]*)"')
SET_OF = {name: source for source, name in SLIMPAJAMA.items()}


class _Text(Form):
    text: RecordText


class _Document(_Text):
    meta: Any = None


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
    line is a record, empty ones are skipped. Any other name but ``.json``, with or without ``.gz`` or ``.zst``:
    plain text, whose documents are the records, without empty lines at their begin and end. For line ends and
    packed files see `headdiv.companion.data.readers.lines`.

    Args:
        path: the file; a packed one may consist of several frames or members.
        bad_records: gets records that cannot be used: not JSON, no text, not UTF-8, empty, or too long. A packed
            stream that is cut off or damaged counts as one, and ends the file before the record in which it breaks.
        source: give the documents of this set alone (a key of `SLIMPAJAMA`); lines of others are not
            parsed. A line without a known set is a bad record.
        start: how many records to skip, without parsing them.
        document_start: in plain text, a line in which this regular expression is found begins a document
            (WikiText: ``^ = [^=].* = $``). None: blank lines separate documents.

    Yields:
        (records of the file up to and with this one: the ``start`` to go on after it, the text).

    Raises:
        DataError: the file is missing, unreadable or empty, or has fewer than ``start`` records; a record
            cannot be used and ``bad_records`` are strict (the message names file and record); ``source`` is
            unknown or asked of plain text; the name ends in ``.json``, which does not say what the file is.
    """
    path = Path(path)
    if lines.unpacked(path).suffix == ".json":  # JSON lines, by C4's names, would be read as one plain text
        raise DataError(f"{path}: found a name in .json, expected .jsonl for JSON lines, or .txt for plain text")
    json_lines = lines.unpacked(path).suffix == ".jsonl"
    if source is not None and source not in SLIMPAJAMA:
        raise DataError(f"{source!r} is not a source of SlimPajama, expected one of {', '.join(SLIMPAJAMA)}")
    if source is not None and not json_lines:
        raise DataError(f"{path}: plain text does not say which source a document is of, expected .jsonl")
    begins = None if document_start is None else regex.compile(document_start)
    raw = lines.raw_lines(path, "documents")
    if json_lines:
        records = ((f"line {number}", line) for number, line in enumerate(raw, start=1))
        return _documents(path, "line", records, partial(_json_text, source=source), bad_records, start)
    return _documents(path, "document", _plain_records(raw, begins), _plain_text, bad_records, start)


def _documents(
    path: Path,
    unit: str,
    records: Iterator[tuple[str, bytes | None]],
    parse: Callable[[bytes | None], str | None],
    bad_records: BadRecords,
    start: int,
) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, (name, record) in enumerate(records, start=1):
            text = None
            if number > start:
                with bad_records.at(f"{path}, {name}"):
                    text = parse(record)
            if text is not None:
                yield number, text
    except lines.DamagedStreamError as error:
        bad_records.add(f"{path}, after {unit} {number}", "the packed stream is cut off or damaged", error.detail)
        return
    if number < start:
        raise DataError(f"{path}: found {number} {unit}s, expected to go on after {start}: the file has changed")


# --- a record's text ---


def _plain_text(record: bytes | None) -> str:
    return parse(_Text, {"text": decode(lines.whole(record))}).text


def _json_text(line: bytes | None, source: str | None) -> str | None:
    """The text of a line; None where it is empty or of another source."""
    line = lines.whole(line)
    if not line.strip() or (source is not None and _other_set(line, source)):
        return None
    document = parse(_Document, line)
    if source is not None:
        name = document.meta.get("redpajama_set_name") if isinstance(document.meta, dict) else None
        if not isinstance(name, str) or name not in SET_OF:
            raise BadRecordError('"meta" does not name one of SlimPajama\'s sets', f"found {shown(name)}")
        if SET_OF[name] != source:
            return None
    return document.text


def _other_set(line: bytes, source: str) -> bool:
    """Whether the line is certainly of another set than ``source``.

    The key's closing quote cannot stand inside a JSON string without a backslash before it, so a document
    that talks about the key is not taken for one. A line cut short counts for the set it names: it is then
    reported by one source alone.
    """
    at = line.rfind(SET_KEY)  # from the end, where SlimPajama puts it: a long text is not searched
    found = SET_NAME.match(line, at) if at >= 0 else None
    return found is not None and SET_OF.get(found[1].decode("utf-8", "replace"), source) != source


def _matches(pattern: regex.Pattern[str], line: str, number: int) -> bool:
    try:
        return pattern.search(line, timeout=SECONDS) is not None
    except TimeoutError:
        raise DataError(
            f"document_start {pattern.pattern!r}: searched line {number} for more than {SECONDS} s; expected a pattern "
            "without a repetition inside a repetition"
        ) from None


def _plain_records(
    rows: Iterator[bytes | None], begins: regex.Pattern[str] | None
) -> Iterator[tuple[str, bytes | None]]:
    """Plain text's documents as (name for messages, bytes); None in place of one that is too long."""
    first, kept, size, count = 0, [], 0, 0

    def document() -> tuple[str, bytes | None]:
        while kept and not kept[-1].strip():
            kept.pop()
        return f"document {count} (from line {first})", b"\n".join(kept) if size <= lines.LONGEST else None

    for number, line in enumerate(rows, start=1):
        empty = line is not None and not line.strip()
        if begins is None:
            new = empty
        else:  # bytes that are not UTF-8 must not hide where a document begins; they are reported with it
            new = line is not None and _matches(begins, line.decode("utf-8", "replace"), number)
        if new and first:
            yield document()
            first, kept, size = 0, [], 0
        if first or not empty:  # blank lines before a document belong to none
            if not first:
                first, count = number, count + 1
            size += lines.LONGEST + 1 if line is None else len(line) + 1
            kept.append(line or b"")
            if size > lines.LONGEST:
                kept.clear()
    if first:
        yield document()
