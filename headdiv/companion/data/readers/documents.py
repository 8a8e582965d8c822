"""A streaming reader of documents: JSON lines in SlimPajama's form, or plain text; packed or not.

Nothing is held but the current document, so memory does not grow with the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headdiv.companion.data.readers.lines import (
    BadRecordError,
    BadRecords,
    decode,
    is_empty,
    json_object,
    raw_lines,
    text_of,
    unpacked,
)
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
    plain text, whose documents are the records, without blank lines at their beginning and end.

    Args:
        path: the file.
        bad_records: gets records that cannot be used: not JSON, no text, not UTF-8, or empty.
        source: give only the documents of this set (a key of `SLIMPAJAMA`). A line without a known set is a bad
            record.
        start: how many records to skip, without parsing them.
        document_start: in plain text, a line in which this regular expression is found begins a document
            (WikiText: ``^ = [^=].* = $``). None: blank lines separate documents.

    Yields:
        (number of this record, from 1: the ``start`` with which to go on after it, its text).

    Raises:
        DataError: the file is missing, damaged or empty; a record cannot be used and ``bad_records`` are strict (the
            message names file and line); ``source`` is asked of plain text; the name ends in ``.json``, which does
            not say what the file is.
    """
    path = Path(path)
    suffix = unpacked(path).suffix
    if suffix == ".json":  # JSON lines, by C4's names, would be read as one plain text
        raise DataError(f"{path}: found a name in .json, expected .jsonl for JSON lines, or .txt for plain text")
    if source is not None and suffix != ".jsonl":
        raise DataError(f"{path}: plain text does not say which source a document is of, expected .jsonl")
    lines = enumerate(raw_lines(path), start=1)
    records = lines if suffix == ".jsonl" else _plain_records(lines, document_start)
    for number, (line, record) in enumerate(records, start=1):
        text = None
        if number > start:
            with bad_records.at(f"{path}, line {line}"):
                text = _json_text(record, source) if suffix == ".jsonl" else _plain_text(record)
        if text is not None:
            yield number, text


def _plain_text(record: bytes) -> str:
    text = decode(record)
    if is_empty(text):
        raise BadRecordError("the document is empty")
    return text


def _json_text(record: bytes, source: str | None) -> str | None:
    """The text of a line; None where it is empty or of another source."""
    if not record.strip():
        return None
    document = json_object(record)
    text = text_of(document, "text")
    if source is not None:
        meta = document.get("meta")
        name = meta.get("redpajama_set_name") if isinstance(meta, dict) else None
        if name not in SLIMPAJAMA.values():
            raise BadRecordError('"meta" does not name one of SlimPajama\'s sets')
        if name != SLIMPAJAMA[source]:
            return None
    return text


def _plain_records(lines: Iterator[tuple[int, bytes]], document_start: str | None) -> Iterator[tuple[int, bytes]]:
    """Plain text's documents, each with the number of its first line."""
    pattern = re.compile(document_start or "")
    first, document = 0, []
    for number, line in lines:
        blank = not line.strip()
        begins = blank if document_start is None else pattern.search(line.decode("utf-8", "replace"))
        if begins and document:
            yield first, _join(document)
            document = []
        if blank and not document:
            continue  # blank lines before a document belong to none
        if not document:
            first = number
        document.append(line)
    if document:
        yield first, _join(document)


def _join(lines: list[bytes]) -> bytes:
    """A document without blank lines at its end."""
    while not lines[-1].strip():
        lines.pop()
    return b"\n".join(lines)
