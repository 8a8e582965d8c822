"""What every reader of data files promises: records in their order, packed or not, and damage that is named."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from faulty import PACKINGS, fails, pack, packed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_ted import xml
from test_xsum import summary_of

from headdiv.companion.data.readers import squad, ted, xsum
from headdiv.companion.data.readers.documents import read_documents
from headdiv.companion.data.readers.parallel import pair_sides
from headdiv.companion.data.readers.records import BadRecords
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
        by_record: bytes that are not UTF-8 are a bad record, not an error of the whole file.
    """

    name: str
    record: Callable[[str, int], bytes]
    file: Callable[[list[bytes]], Any]
    read: Callable[[Any, BadRecords], list[str]]
    reason: str
    place: str
    packings: tuple[str, ...] = tuple(PACKINGS)
    by_record: bool = False


def plain(text, number):
    return text.encode()


def lines(records):
    return b"".join(record + b"\n" for record in records)


def xml_bytes(records):
    return xml(("7", [record.decode(errors="surrogateescape") for record in records])).encode(errors="surrogateescape")


def side(path, bad_records):
    both = ted.read_side(path)
    return [source for source, _ in pair_sides(both, both, bad_records)]


def plain_documents(path, bad_records):
    found = read_documents(path, bad_records, document_start="^= ")
    return [text.removeprefix("= \n") for _, text in found]


def archived_talks(path, bad_records):
    (both,) = ted.read_archive(path, "de", "en", "train")
    return [source for source, _ in pair_sides(*both, bad_records)]


def question(text, number):
    """A paragraph with one question."""
    asked = {"id": str(number), "question": "?", "answers": [{"text": "wo" if number == 2 else text[:2]}]}
    asked["answers"][0]["answer_start"] = max(text.find(asked["answers"][0]["text"]), 0)
    return json.dumps({"context": text, "qas": [asked]}, ensure_ascii=False).encode()


def questions(records):
    return b'{"data": [{"title": "a", "paragraphs": [' + b", ".join(records) + b"]}]}"


def news(path, bad_records):
    split_file = path.with_name("split.json")
    split_file.write_text(json.dumps({"test": [str(number) for number in range(1, len(TEXTS) + 1)]}))
    return [article.document for article in xsum.read_archive(path, split_file, "test", bad_records)]


SENTENCE = "the sentence is empty, expected one on every "
READERS = {
    "sentences": Reader("a.en", plain, lines, side, f"{SENTENCE}line", "line 2"),
    "tagged text": Reader("train.tags.de-en.en", plain, lines, side, f"{SENTENCE}line", "line 2", ("", ".gz")),
    "TED's XML": Reader(
        "a.xml", plain, lambda records: xml_bytes(records), side,
        f"{SENTENCE}segment", "doc 7, seg 2", ("", ".gz"),
    ),
    "TED's archive": Reader(
        "a", plain, lambda records: [(f"de-en/train.tags.de-en.{one}", lines(records)) for one in ("de", "en")],
        archived_talks, f"{SENTENCE}line", "de-en/train.tags.de-en.de, line 2", TAR,
    ),
    "documents": Reader(
        "a.jsonl", lambda text, number: json.dumps({"text": text}, ensure_ascii=False).encode(), lines,
        lambda path, bad_records: [text for _, text in read_documents(path, bad_records)],
        '"text": input should not be empty', "line 2", by_record=True,
    ),
    "plain text": Reader(
        "a.txt", lambda text, number: b"= \n" + text.encode(), lines,
        plain_documents,
        "", "document 2 (from line 3)", by_record=True,
    ),
    "articles": Reader(
        "a.jsonl", lambda text, number: json.dumps(
            {"id": str(number), "document": text, "summary": "s"}, ensure_ascii=False).encode(), lines,
        lambda path, bad_records: [article.document for article in xsum.read_articles(path, bad_records)],
        '"document": input should not be empty', "line 2", by_record=True,
    ),
    "XSum's archive": Reader(
        "a", lambda text, number: summary_of(str(number), text, "s")[1],
        lambda records: [(f"bbc/{number}.summary", record) for number, record in enumerate(records, 1)],
        news, '"document": input should not be empty', "2.summary", TAR, by_record=True,
    ),
    "questions": Reader(
        "a.json", question, questions,
        lambda path, bad_records: [found.context for found in squad.read_squad([path], bad_records)],
        '"context": input should not be empty', "article 'a', paragraph 2", ("",),
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
    with pytest.raises(DataError, match="not UTF-8") as found:
        read(reader, path)
    assert str(found.value).startswith(str(path))
    if reader.by_record:
        assert f"{path}, {reader.place}: not UTF-8 text (byte 0xfc at byte " in str(found.value)
        assert read(reader, path, strict=False) == ([TEXTS[0], TEXTS[2]], {"not UTF-8 text": 1})
    else:  # lines that are left out would shift all that follow
        with fails("not UTF-8"):
            read(reader, path, strict=False)


@pytest.mark.parametrize(("name", "packing"), PACKED)
def test_a_packed_file_that_is_cut_off_or_damaged_is_named(tmp_path, name, packing):
    reader = READERS[name]
    path = write(tmp_path, reader, packing, parts=1)
    whole = path.read_bytes()
    damaged = [whole[: len(whole) // 2], whole[:-1], whole[:-5], whole[:1], b"<html>404</html>"]
    damaged += [whole[:-2] + bytes([whole[-2] ^ 0xFF]) + whole[-1:], whole + b"<html>404</html>"]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cut off or damaged") as found:
            read(reader, path)
        assert str(found.value).startswith(str(path))


@pytest.mark.parametrize(("name", "packing"), FORMS)
def test_files_that_are_missing_or_empty_or_folders_are_named(tmp_path, name, packing):
    reader = READERS[name]
    path = tmp_path / f"{reader.name}{packing}"
    with fails(f"{path}: no such file"):
        read(reader, path)
    for empty in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(empty)
        with pytest.raises(DataError) as found:
            read(reader, path)
        assert str(found.value).startswith(str(path))
    path.unlink()
    path.mkdir()
    with fails(f"{path}: cannot be read (Is a directory)"):
        read(reader, path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FORMS), st.integers(0, 999), st.integers(0, 999), st.binary(max_size=9), st.booleans())
def test_whatever_the_bytes_are_records_or_one_error_come_of_them(tmp_path, form, first, last, put_in, strict):
    """A piece of a good file, anywhere in it, is replaced."""
    name, packing = form
    path = write(tmp_path, READERS[name], packing)
    whole = path.read_bytes()
    first, last = sorted((first * len(whole) // 999, last * len(whole) // 999))
    path.write_bytes(whole[:first] + put_in + whole[last:])
    said = str(path)
    try:
        records, _ = read(READERS[name], path, strict)
    except DataError as error:
        records, said = [], str(error)
    assert said.startswith(str(path))
    assert "\n" not in said
    assert all(isinstance(record, str) and record.strip() for record in records)
