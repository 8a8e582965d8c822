"""Readers of XSum: documents with their one-sentence summaries, from JSON lines or from the public archive."""

from __future__ import annotations

import codecs
import gzip
import json
import reprlib
import tarfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from headdiv.core.errors import DataError
from headdiv.core.files import read_json
from headdiv.data.readers import archives
from headdiv.data.readers.bad_records import BadRecords

# Lines of the web page's buttons that stand in many texts of the archive. XSum's widely used JSON form
# is made without them, so the archive is read without them too.
BUTTONS = frozenset(
    {
        "Share this with",
        "Email",
        "Facebook",
        "Messenger",
        "Twitter",
        "Pinterest",
        "WhatsApp",
        "Linkedin",
        "LinkedIn",
        "Copy this link",
        "These are external links and will open in a new window",
    }
)
SUFFIX = ".summary"
LARGEST = 1 << 24  # bytes of an article in the archive; a larger one is refused, not read into memory


class Article(NamedTuple):
    """A document with its summary, and the id its data set gives it."""

    id: str
    document: str
    summary: str


class _UnusableError(Exception):
    """A record that cannot be used: the reason and what was found, as `BadRecords.add` takes them."""

    def __init__(self, reason: str, found: str = "") -> None:
        super().__init__(reason, found)


def read_articles(path: Path | str, bad_records: BadRecords) -> list[Article]:
    r"""Read articles from JSON lines ``{"id": …, "document": …, "summary": …}``, in the file's order.

    A name that ends in ``.gz`` is read through gzip. Only ``\n`` ends a line; a byte order mark at the
    start of the file is taken off; further keys are ignored. Texts are taken as they stand.

    A line is refused that is not UTF-8 or not a JSON object, that lacks a key or has a value that is not
    a string, is only white space or has half a surrogate pair, or whose id an earlier article has.

    Args:
        path: the file.
        bad_records: is told of every line that cannot be used, by file and line.

    Returns:
        The articles; an empty list when every line was refused.

    Raises:
        DataError: the file is missing, unreadable or empty, or is a damaged gzip stream; or a line is
            refused and records are read strictly.
    """
    path = Path(path)
    articles: list[Article] = []
    lines: dict[str, int] = {}  # where each id was first met
    number = 0
    for number, raw in _numbered_lines(path):
        try:
            article = _from_json(raw)
            if article.id in lines:
                raise _UnusableError("the id is given twice", f"{_clip(article.id)}, first in line {lines[article.id]}")
        except _UnusableError as error:
            bad_records.add(f"{path}, line {number}", *error.args)
        else:
            lines[article.id] = number
            articles.append(article)
    if not number:
        raise DataError(f"{path}: the file is empty, expected one JSON object a line")
    return articles


def read_archive(archive: Path | str, split_file: Path | str, split: str, bad_records: BadRecords) -> Iterator[Article]:
    """Read the articles of one split from XSum's public archive, without unpacking it to disk.

    The archive is ``XSUM-EMNLP18-Summary-Data-Original.tar.gz``, from https://github.com/EdinburghNLP/XSum.
    Its members are called ``<id>.summary`` in a folder; each has sections that begin with a line
    ``[SN]<name>[SN]``. The section FIRST-SENTENCE is the summary and RESTBODY the document; both are read
    without empty lines and without the lines in `BUTTONS`.

    Only regular members with the base name of an id of the split are read; links, folders and all
    others are passed over, and no member's name is used as a path. At any time one article and the
    split's ids are in memory.

    An article is refused that is over 16 MiB, is not UTF-8, lacks a section or has it twice, has an empty
    document (some have nothing but `BUTTONS`) or summary, or stands in the archive a second time. After
    the last article, every id of the split that the archive lacks is refused.

    Args:
        archive: the archive, a tar packed with gzip.
        split_file: ``XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json``, a JSON object of lists of ids.
        split: one of its keys: "train", "validation" or "test".
        bad_records: is told of every article that cannot be used.

    Returns:
        The articles in the order of the archive, which is arbitrary: sort them by id where the order matters.

    Raises:
        DataError: at once: the split file cannot be read, is not in its form, or has no such split. While
            the articles are taken: the archive is missing, unreadable, cut off or damaged (the message
            names the last member reached), or a record is refused and records are read strictly.
    """
    ids = _ids_of_split(Path(split_file), split, bad_records)
    return _archived_articles(Path(archive), ids, split, bad_records)


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for raw in file:
                line = raw if number else raw.removeprefix(codecs.BOM_UTF8)
                if line:  # a byte order mark alone is no line
                    number += 1
                    yield number, line.removesuffix(b"\n")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}, after line {number}: the gzip stream is cut off or damaged ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def _from_json(raw: bytes) -> Article:
    try:
        record = json.loads(_decode(raw))
    except json.JSONDecodeError as error:
        raise _UnusableError("the line is not JSON", f"column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets nested as deep
        raise _UnusableError("the line is not JSON that can be read", str(error)) from None
    if not isinstance(record, dict):
        raise _UnusableError("the line is not a JSON object", _clip(record))
    for key in Article._fields:
        if key not in record:
            raise _UnusableError(f"the key {key!r} is missing", f"keys: {_clip(sorted(record))}")
        if not isinstance(record[key], str):
            raise _UnusableError(f"the {key} is not a string", _clip(record[key]))
        try:
            record[key].encode()
        except UnicodeEncodeError as error:
            half = ascii(record[key][error.start])
            raise _UnusableError(f"the {key} has half a surrogate pair", f"{half} at character {error.start}") from None
    return _checked(Article(record["id"], record["document"], record["summary"]))


def _checked(article: Article) -> Article:
    for key, text in article._asdict().items():
        if not text.strip():
            raise _UnusableError(f"the {key} is empty")
    return article


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{raw[error.start]:02x} at byte {error.start} of the record"
        raise _UnusableError("the record is not UTF-8", found) from None


def _clip(value: Any) -> str:
    short = reprlib.Repr()  # unlike repr, never recurses far into nested values
    short.maxstring = 60
    return short.repr(value)


def _ids_of_split(split_file: Path, split: str, bad_records: BadRecords) -> dict[str, None]:
    """The split's ids as the keys of a dictionary: a set that keeps the order of the file."""
    try:
        content = read_json(split_file)
    except OSError as error:
        raise DataError(f"{split_file}: cannot be read ({error.strerror or error})") from None
    if not isinstance(content, dict):
        raise DataError(f"{split_file}: found {_clip(content)}, expected a JSON object of lists of ids")
    if split not in content:
        raise DataError(f"{split_file}: there is no split {split!r}, expected one of: {', '.join(sorted(content))}")
    listed = content[split]
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{split_file}, split {split}: found {_clip(listed)}, expected a list of ids")
    ids: dict[str, None] = {}
    for number, id in enumerate(listed, start=1):
        if not isinstance(id, str):
            raise DataError(f"{split_file}, split {split}, id {number}: found {_clip(id)}, expected a string")
        if id in ids:
            bad_records.add(f"{split_file}, split {split}, id {number}", "the id is listed twice", _clip(id))
        ids[id] = None
    return ids


def _archived_articles(archive: Path, ids: dict[str, None], split: str, bad_records: BadRecords) -> Iterator[Article]:
    lacking = dict(ids)
    for id, content in _members(archive, ids):
        try:
            if id not in lacking:
                raise _UnusableError("the article is in the archive twice")
            del lacking[id]
            article = _from_sections(id, content)
        except _UnusableError as error:
            bad_records.add(f"{archive}, {id}{SUFFIX}", *error.args)
        else:
            yield article
    for id in lacking:
        found = f"split {split} lists {_clip(id)}; lacking in all: {len(lacking)}"
        bad_records.add(str(archive), "the archive lacks an article of the split", found)


def _members(archive: Path, ids: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """The ids and contents (cut a byte past `LARGEST`) of the regular members that are called after an id."""

    def wanted(member: tarfile.TarInfo) -> bool:
        name = PurePosixPath(member.name).name
        return name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in ids

    for member, content in archives.members(archive, wanted, LARGEST):
        yield PurePosixPath(member.name).name.removesuffix(SUFFIX), content


def _from_sections(id: str, content: bytes) -> Article:
    if len(content) > LARGEST:
        raise _UnusableError("the article is too large", f"expected at most {LARGEST} bytes")
    lines = [line.removesuffix("\r") for line in _decode(content).split("\n")]
    return _checked(Article(id, document=_section(lines, "RESTBODY"), summary=_section(lines, "FIRST-SENTENCE")))


def _section(lines: list[str], name: str) -> str:
    marked = [line.strip() for line in lines]
    mark = f"[SN]{name}[SN]"
    if marked.count(mark) != 1:
        raise _UnusableError(f"the section {mark} is {'given twice' if mark in marked else 'missing'}")
    start = marked.index(mark) + 1
    text = []
    for line, stripped in zip(lines[start:], marked[start:], strict=True):
        if stripped.startswith("[SN]") and stripped.endswith("[SN]"):
            break
        if stripped and line not in BUTTONS:
            text.append(line)
    return "\n".join(text).strip()
