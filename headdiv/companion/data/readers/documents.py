"""A streaming reader of documents: JSON lines in SlimPajama's form, or plain text; packed or not.

Nothing is held but the current document, so memory does not grow with the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headdiv.companion.data.readers import lines
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, decode, parse
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
        path: the file.
        bad_records: gets records that cannot be used: not JSON, no text, not UTF-8, or empty.
        source: give the documents of this set alone (a key of `SLIMPAJAMA`). A line without a known set is a bad
            record.
        start: how many records to skip, without parsing them.
        document_start: in plain text, a line in which this regular expression is found begins a document
            (WikiText: ``^ = [^=].* = $``). None: blank lines separate documents.

    Yields:
        (records of the file up to and with this one: the ``start`` to go on after it, the text).

    Raises:
        DataError: the file is missing, damaged or empty; a record cannot be used and ``bad_records`` are strict (the
            message names file and record); ``source`` is asked of plain text; the name ends in ``.json``, which does
            not say what the file is.
    """
    path = Path(path)
    suffix = lines.unpacked(path).suffix
    if suffix == ".json":  # JSON lines, by C4's names, would be read as one plain text
        raise DataError(f"{path}: found a name in .json, expected .jsonl for JSON lines, or .txt for plain text")
    if source is not None and suffix != ".jsonl":
        raise DataError(f"{path}: plain text does not say which source a document is of, expected .jsonl")
    if suffix == ".jsonl":
        records = ((f"line {number}", line) for number, line in enumerate(lines.raw_lines(path), start=1))
    else:
        records = _plain_records(lines.raw_lines(path), document_start)
    for number, (name, record) in enumerate(records, start=1):
        text = None
        if number > start:
            with bad_records.at(f"{path}, {name}"):
                text = _json_text(record, source) if suffix == ".jsonl" else _plain_text(record)
        if text is not None:
            yield number, text


def _plain_text(record: bytes) -> str:
    return parse(_Text, {"text": decode(record)}).text


def _json_text(line: bytes, source: str | None) -> str | None:
    """The text of a line; None where it is empty or of another source."""
    if not line.strip():
        return None
    document = parse(_Document, line)
    if source is not None:
        name = document.meta.get("redpajama_set_name") if isinstance(document.meta, dict) else None
        if name not in SLIMPAJAMA.values():
            raise BadRecordError('"meta" does not name one of SlimPajama\'s sets', f"found {name!r}")
        if name != SLIMPAJAMA[source]:
            return None
    return document.text


def _plain_records(rows: Iterator[bytes], document_start: str | None) -> Iterator[tuple[str, bytes]]:
    """Plain text's documents as (name for messages, bytes)."""
    begins = None if document_start is None else re.compile(document_start)
    first, kept, count = 0, [], 0
    for number, line in enumerate(rows, start=1):
        empty = not line.strip()
        new = empty if begins is None else begins.search(line.decode("utf-8", "replace"))
        if new and kept:
            yield f"document {count} (from line {first})", _without_empty_end(kept)
            kept = []
        if kept or not empty:  # blank lines before a document belong to none
            if not kept:
                first, count = number, count + 1
            kept.append(line)
    if kept:
        yield f"document {count} (from line {first})", _without_empty_end(kept)


def _without_empty_end(rows: list[bytes]) -> bytes:
    while not rows[-1].strip():
        rows.pop()
    return b"\n".join(rows)
