"""Readers of XSum: documents with their one-sentence summaries, from JSON lines or from the public archive."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from headdiv.companion.data.readers import archives
from headdiv.companion.data.readers.lines import raw_lines, whole
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, decode, parse, shown
from headdiv.core.errors import DataError
from headdiv.core.files import read_json

# Lines of the web page's buttons in many texts of the archive. XSum's widely used JSON form
# is made without them, so the archive is read without them too.
BUTTONS = {
    *("Share this with", "Email", "Facebook", "Messenger", "Twitter", "Pinterest", "WhatsApp", "Linkedin", "LinkedIn"),
    *("Copy this link", "These are external links and will open in a new window"),
}
SUFFIX = ".summary"
LARGEST = 1 << 24  # bytes of an article in the archive; a larger one is not read into memory


class Article(Form):
    """A document with its summary, and the id its data set gives it."""

    id: RecordText
    document: RecordText
    summary: RecordText


def read_articles(path: Path | str, bad_records: BadRecords) -> list[Article]:
    r"""Read articles from JSON lines ``{"id": …, "document": …, "summary": …}``, in the file's order.

    For line ends and packed files see `headdiv.companion.data.readers.lines`. Further keys are ignored.

    Args:
        path: the file.
        bad_records: gets every line that is not UTF-8 or not a JSON object, that lacks a key or has a value that is
            not a usable text, or whose id an earlier article has.

    Raises:
        DataError: the file cannot be read, or a line cannot be used and records are read strictly.
    """
    articles: list[Article] = []
    lines: dict[str, int] = {}  # where each id was first met
    for number, raw in enumerate(raw_lines(Path(path), "one JSON object a line"), start=1):
        with bad_records.at(f"{path}, line {number}"):
            article = parse(Article, whole(raw))
            if article.id in lines:
                raise BadRecordError("id given twice", f"{shown(article.id)}, first in line {lines[article.id]}")
            lines[article.id] = number
            articles.append(article)
    return articles


def read_archive(archive: Path | str, split_file: Path | str, split: str, bad_records: BadRecords) -> Iterator[Article]:
    """Read the articles of one split from XSum's public archive, without unpacking it to disk.

    The archive is ``XSUM-EMNLP18-Summary-Data-Original.tar.gz``, from https://github.com/EdinburghNLP/XSum.
    Its members are called ``<id>.summary`` in a folder; each has sections that begin with a line
    ``[SN]<name>[SN]``. The section FIRST-SENTENCE is the summary and RESTBODY the document; both are read
    without empty lines and without the lines in `BUTTONS`.

    At any time one article and the split's ids are in memory; see `headdiv.companion.data.readers.archives`.

    Args:
        archive: the archive, a tar packed with gzip.
        split_file: ``XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json``, a JSON object of lists of ids.
        split: one of its keys: "train", "validation" or "test".
        bad_records: gets every article that is over 16 MiB, is not UTF-8, lacks a section or has it twice, has an
            empty document (some have nothing but `BUTTONS`) or summary, or is there twice; at the end, every id
            that the archive lacks.

    Returns:
        The articles in the arbitrary order of the archive: sort them by id where the order matters.

    Raises:
        DataError: at once: the split file cannot be read, is not in its form, or has no such split. While
            the articles are taken: the archive is missing, unreadable, cut off or damaged (the message
            names the last member reached), or a record cannot be used and records are read strictly.
    """
    ids = _ids_of_split(Path(split_file), split, bad_records)
    return _archived_articles(Path(archive), ids, split, bad_records)


def _ids_of_split(split_file: Path, split: str, bad_records: BadRecords) -> dict[str, None]:
    """The split's ids as the keys of a dictionary: a set that keeps the order of the file."""
    content = read_json(split_file)
    if not isinstance(content, dict):
        raise DataError(f"{split_file}: found {shown(content)}, expected a JSON object of lists of ids")
    if split not in content:
        raise DataError(f"{split_file}: there is no split {split!r}, expected one of: {', '.join(sorted(content))}")
    listed = content[split]
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{split_file}, split {split}: found {shown(listed)}, expected a list of ids")
    ids: dict[str, None] = {}
    for number, id in enumerate(listed, start=1):
        if not isinstance(id, str):
            raise DataError(f"{split_file}, split {split}, id {number}: found {shown(id)}, expected a string")
        if id in ids:
            bad_records.add(f"{split_file}, split {split}, id {number}", "the id is listed twice", shown(id))
        ids[id] = None
    return ids


def _archived_articles(archive: Path, ids: dict[str, None], split: str, bad_records: BadRecords) -> Iterator[Article]:
    def id_of(member: tarfile.TarInfo) -> str | None:
        path = PurePosixPath(member.name)
        return path.stem if path.suffix == SUFFIX and path.stem in ids else None

    lacking = dict(ids)
    for member, content in archives.members(archive, lambda member: id_of(member) is not None, LARGEST):
        id, article = id_of(member), None
        with bad_records.at(f"{archive}, {id}{SUFFIX}"):
            if id not in lacking:
                raise BadRecordError("the article is in the archive twice")
            del lacking[id]
            article = _from_sections(id, content)
        if article is not None:
            yield article
    for id in lacking:
        found = f"split {split} lists {shown(id)}; lacking in all: {len(lacking)}"
        bad_records.add(str(archive), "the archive lacks an article of the split", found)


def _from_sections(id: str, content: bytes) -> Article:
    if len(content) > LARGEST:
        raise BadRecordError("the article is too large", f"expected at most {LARGEST} bytes")
    lines = decode(content).split("\n")
    document, summary = (_section(lines, name) for name in ("RESTBODY", "FIRST-SENTENCE"))
    return parse(Article, {"id": id, "document": document, "summary": summary})


def _section(lines: list[str], name: str) -> str:
    stripped = [line.strip() for line in lines]
    heading = f"[SN]{name}[SN]"
    if stripped.count(heading) != 1:
        raise BadRecordError(f"the section {heading} is {'given twice' if heading in stripped else 'missing'}")
    start = stripped.index(heading) + 1
    text = []
    for line, content in zip(lines[start:], stripped[start:], strict=True):
        if content.startswith("[SN]") and content.endswith("[SN]"):
            break
        if content and line.removesuffix("\r") not in BUTTONS:
            text.append(line.removesuffix("\r"))
    return "\n".join(text).strip()
