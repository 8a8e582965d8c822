"""Readers of XSum: documents with their one-sentence summaries, from JSON lines or from the public archive."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from headdiv.companion.data.readers.lines import (
    BadRecordError,
    BadRecords,
    decode,
    json_object,
    members,
    raw_lines,
    text_of,
)
from headdiv.core.errors import DataError
from headdiv.core.files import read_json

# Labels of the web page's buttons, which are lines of many texts in the archive. XSum's widely used JSON form
# lacks them, so the archive is read without them too.
BUTTONS = {
    *("Share this with", "Email", "Facebook", "Messenger", "Twitter", "Pinterest", "WhatsApp", "Linkedin", "LinkedIn"),
    *("Copy this link", "These are external links and will open in a new window"),
}
SUFFIX = ".summary"


class Article(NamedTuple):
    """A document with its summary, and its id in the data set."""

    id: str
    document: str
    summary: str


def read_articles(path: Path | str, bad_records: BadRecords) -> list[Article]:
    """Read articles from JSON lines ``{"id": "…", "document": "…", "summary": "…"}``, in the file's order.

    Empty lines are skipped. A line is a bad record where it is not such an object, or where an earlier article has its
    id.

    Raises:
        DataError: the file cannot be read, or a line cannot be used and records are read strictly.
    """
    articles: dict[str, Article] = {}
    for number, line in enumerate(raw_lines(Path(path)), start=1):
        if not line.strip():
            continue
        with bad_records.at(f"{path}, line {number}"):
            record = json_object(line)
            article = Article(*(text_of(record, key) for key in Article._fields))
            if article.id in articles:
                raise BadRecordError("id given twice")
            articles[article.id] = article
    return list(articles.values())


def read_archive(archive: Path | str, split_file: Path | str, split: str, bad_records: BadRecords) -> list[Article]:
    """Read the articles of one split from XSum's public archive, without unpacking it to disk.

    The archive is ``XSUM-EMNLP18-Summary-Data-Original.tar.gz``, from https://github.com/EdinburghNLP/XSum.
    Its members are files ``<id>.summary`` in a folder; each has sections that begin with a line
    ``[SN]<name>[SN]``. The section FIRST-SENTENCE is the summary and RESTBODY the document; both are read
    without empty lines and without the lines in `BUTTONS`.

    Args:
        archive: the archive, a tar packed with gzip.
        split_file: ``XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json``, a JSON object of lists of ids.
        split: one of its keys: "train", "validation" or "test".
        bad_records: gets every article that is not UTF-8, lacks a section, or has an empty document (some have nothing
            but `BUTTONS`) or summary; and every id that the archive lacks.

    Returns:
        The articles, sorted by id, since the archive's order is arbitrary.

    Raises:
        DataError: a file is missing or damaged, there is no such split, or a record cannot be used and records are
            read strictly.
    """
    splits = read_json(split_file)
    if split not in splits:
        raise DataError(f"{split_file}: there is no split {split!r}, expected one of: {', '.join(sorted(splits))}")
    missing = set(splits[split])

    def id_of(name: str) -> str:
        path = PurePosixPath(name)
        return path.stem if path.suffix == SUFFIX else ""

    articles = []
    for name, content in members(Path(archive), lambda name: id_of(name) in missing):
        missing.discard(id_of(name))
        with bad_records.at(f"{archive}, {name}"):
            lines = [line.removesuffix("\r") for line in decode(content).split("\n")]
            document, summary = (_section(lines, section) for section in ("RESTBODY", "FIRST-SENTENCE"))
            articles.append(Article(id_of(name), document, summary))
    for id in sorted(missing):
        with bad_records.at(f"{archive}, {id}{SUFFIX}"):
            raise BadRecordError("the archive lacks an article of the split")
    return sorted(articles)


def _section(lines: list[str], name: str) -> str:
    """The text of a section, without buttons."""
    stripped = [line.strip() for line in lines]
    heading = f"[SN]{name}[SN]"
    if heading not in stripped:
        raise BadRecordError(f"the section {heading} is missing")
    text = []
    for line in lines[stripped.index(heading) + 1 :]:
        if line.strip().startswith("[SN]") and line.strip().endswith("[SN]"):
            break
        if line.strip() and line not in BUTTONS:
            text.append(line)
    return text_of({name: "\n".join(text).strip()}, name)
