"""What every reader of data files promises: records in their order, packed or not, and damage that is named."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from faulty import PACKINGS, fails, news, pack, packed, xml

from headdiv.companion.data.readers import squad, xsum
from headdiv.companion.data.readers.documents import read_documents
from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.readers.parallel import pair_sides, read_archive, read_side
from headdiv.core.errors import DataError

TEXTS = ["One ä.", "Two b.", "Three c."]
TAR = (".tar.gz",)


class Reader(NamedTuple):
    """A reader and its form.

    Attributes:
        name: of its files.
        record: a record's bytes, of a text and its number from 1.
        file: a file's bytes, or an archive's members, of records.
        read: the texts of a file.
        reason: why a record without text cannot be used; "" where there is none such.
        place: of the second record, in messages.
        packings: how its files may be packed.
    """

    name: str
    record: Callable[[str, int], bytes]
    file: Callable[[list[bytes]], Any]
    read: Callable[[Any, BadRecords], list[str]]
    reason: str
    place: str
    packings: tuple[str, ...] = tuple(PACKINGS)


def plain(text, number):
    return text.encode()


def lines(records):
    return b"".join(record + b"\n" for record in records)


def xml_bytes(records):
    return xml(("7", [record.decode(errors="surrogateescape") for record in records])).encode(errors="surrogateescape")


def side(path, bad_records):
    both = read_side(path)
    return [source for source, _ in pair_sides(both, both, bad_records)]


def plain_documents(path, bad_records):
    found = read_documents(path, bad_records, document_start="^= ")
    return [text.removeprefix("= \n") for _, text in found]


def archived_talks(path, bad_records):
    (both,) = read_archive(path, "de", "en", "train")
    return [source for source, _ in pair_sides(*both, bad_records)]


def question(text, number):
    """A paragraph with one question."""
    answer = "Two" if number == 2 else text[:2]
    asked = {"id": str(number), "question": "?", "answers": [{"text": answer, "answer_start": 0}]}
    return json.dumps({"context": text, "qas": [asked]}, ensure_ascii=False).encode()


def questions(records):
    return b'{"data": [{"title": "a", "paragraphs": [' + b", ".join(records) + b"]}]}"


def archived_articles(path, bad_records):
    split_file = path.with_name("split.json")
    split_file.write_text(json.dumps({"test": [str(number) for number in range(1, len(TEXTS) + 1)]}))
    return [article.document for article in xsum.read_archive(path, split_file, "test", bad_records)]


SENTENCE = "the sentence is empty"
READERS = {
    "sentences": Reader("a.en", plain, lines, side, SENTENCE, "line 2"),
    "tagged text": Reader("train.tags.de-en.en", plain, lines, side, SENTENCE, "line 2", ("", ".gz")),
    "TED's XML": Reader(
        "a.xml", plain, lambda records: xml_bytes(records), side,
        SENTENCE, "doc 7, seg 2", ("", ".gz"),
    ),
    "TED's archive": Reader(
        "a", plain, lambda records: [(f"de-en/train.tags.de-en.{one}", lines(records)) for one in ("de", "en")],
        archived_talks, SENTENCE, "de-en/train.tags.de-en.de, line 2", TAR,
    ),
    "documents": Reader(
        "a.jsonl", lambda text, number: json.dumps({"text": text}, ensure_ascii=False).encode(), lines,
        lambda path, bad_records: [text for _, text in read_documents(path, bad_records)],
        'no text under "text"', "line 2",
    ),
    "plain text": Reader(
        "a.txt", lambda text, number: b"= \n" + text.encode(), lines,
        plain_documents,
        "", "line 3",
    ),
    "articles": Reader(
        "a.jsonl", lambda text, number: json.dumps(
            {"id": str(number), "document": text, "summary": "s"}, ensure_ascii=False).encode(), lines,
        lambda path, bad_records: [article.document for article in xsum.read_articles(path, bad_records)],
        'no text under "document"', "line 2",
    ),
    "XSum's archive": Reader(
        "a", lambda text, number: news(str(number), text, "s")[1],
        lambda records: [(f"bbc/{number}.summary", record) for number, record in enumerate(records, 1)],
        archived_articles, 'no text under "RESTBODY"', "bbc/2.summary", TAR,
    ),
    "questions": Reader(
        "a.json", question, questions,
        lambda path, bad_records: [found.context for found in squad.read_squad([path], bad_records)],
        "answer not at answer_start", "question 2, id 2",
    ),
}  # fmt: skip
FORMS = [(name, packing) for name, reader in READERS.items() for packing in reader.packings]
PACKED = [(name, packing) for name, packing in FORMS if packing]


def write(folder, reader, packing, texts=TEXTS, spoil=bytes, parts=2):
    """A file of these texts; ``spoil`` is done to the second record."""
    path = folder / f"{reader.name}{packing}"
    records = [reader.record(text, number) for number, text in enumerate(texts, start=1)]
    content = reader.file([spoil(record) if at == 1 else record for at, record in enumerate(records)])
    if packing in TAR:
        return pack(path, content)
    path.write_bytes(packed(content, packing, parts))
    return path


def read(reader, path, strict=True):
    bad_records = BadRecords(strict)
    return reader.read(path, bad_records), dict(bad_records.counts)


@pytest.mark.parametrize(("name", "packing"), FORMS)
def test_records_come_back_in_their_order_packed_or_not(tmp_path, name, packing):
    reader = READERS[name]
    assert read(reader, write(tmp_path, reader, packing)) == (TEXTS, {})


@pytest.mark.parametrize("name", ["documents", "articles"])
def test_empty_lines_among_json_lines_are_skipped(tmp_path, name):
    path = write(tmp_path, READERS[name], "", spoil=lambda record: b"\n" + record + b"\n \r")
    assert read(READERS[name], path) == (TEXTS, {})


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.reason])
def test_a_record_that_cannot_be_used_is_named_or_left_out_and_counted(tmp_path, name):
    reader = READERS[name]
    path = write(tmp_path, reader, reader.packings[0], [TEXTS[0], " \u00a0", TEXTS[2]])
    with fails(f"{path}, {reader.place}: {reader.reason}"):
        read(reader, path)
    with pytest.raises(DataError, match=r"data\.strict: false leaves such records out"):
        read(reader, path)
    assert read(reader, path, strict=False) == ([TEXTS[0], TEXTS[2]], {reader.reason: 1})


@pytest.mark.parametrize("name", READERS)
def test_bytes_that_are_not_utf8_are_named(tmp_path, name):
    reader = READERS[name]
    path = write(tmp_path, reader, reader.packings[0], spoil=lambda record: record.replace(b"Tw", b"T\xfc"))
    with pytest.raises(DataError, match=r"not UTF-8|not valid JSON") as found:
        read(reader, path)
    assert str(found.value).startswith(str(path))


@pytest.mark.parametrize(("name", "packing"), PACKED)
def test_a_packed_file_that_is_cut_off_is_named(tmp_path, name, packing):
    reader = READERS[name]
    path = write(tmp_path, reader, packing, parts=1)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"<html>404</html>"):
        path.write_bytes(content)
        with fails(f"{path}"):
            read(reader, path)


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_missing_or_empty_are_named(tmp_path, name):
    reader = READERS[name]
    path = tmp_path / f"{reader.name}{reader.packings[0]}"
    with fails(f"{path}: no such file"):
        read(reader, path)
    path.write_bytes(b"")
    with fails(f"{path}: "):
        read(reader, path)
