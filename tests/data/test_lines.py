"""The reader of lines that all formats share, the checks of records, and parallel text."""

import re

import pytest
from faulty import PACKINGS, fails, packed, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data.readers import lines
from headdiv.companion.data.readers.lines import DamagedStreamError, raw_lines, read_lines
from headdiv.companion.data.readers.parallel import pair_sides
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, parse_json, text_field
from headdiv.companion.data.readers.ted import read_side
from headdiv.core.errors import DataError

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Ein Mann läuft.\nZwei Hunde.", ["Ein Mann läuft.", "Zwei Hunde."]),
        ("one\n\n three \n", ["one", "", " three "]),
        ("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh\r\nnext\r\r\nlast\r",
         ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh", "next\r", "last"]),
        ("\ufeffone\n\ufefftwo\n", ["one", "\ufefftwo"]),
    ],
)  # fmt: skip
def test_lines_of_files_plain_and_packed(tmp_path, packing, parts, content, expected):
    assert read_lines(put(tmp_path / f"a{packing}", content, parts)) == expected


@in_folder
@given(st.lists(st.binary(max_size=5), max_size=9), st.sampled_from(PACKINGS), st.integers(1, 9))
def test_lines_are_those_of_split_whatever_the_pieces(tmp_path, parts, packing, piece):
    content = b"x" + b"\n".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "PIECE", piece)
        patch.setattr(lines, "PACKED_PIECE", piece)
        found = list(raw_lines(put(tmp_path / f"a{packing}", content, 2), "lines"))
    expected = content.removesuffix(b"\n").split(b"\n")
    assert found == [line.removesuffix(b"\r") for line in expected]


def test_skippable_and_empty_frames(tmp_path):
    path = tmp_path / "a.zst"
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    path.write_bytes(skippable + packed(b"one\n", ".zst") + packed(b"", ".zst") + skippable)
    assert read_lines(path) == ["one"]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_line_without_end_is_not_gathered(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(lines, "LONGEST", 30)
    monkeypatch.setattr(lines, "PIECE", piece)
    path = put(tmp_path / "a", f"{'x' * 31}\n{'y' * 30}\n{'z' * 500}")
    assert list(raw_lines(path, "lines")) == [None, b"y" * 30, None]
    with fails(f"{path}, line 1: longer than 30 bytes"):
        read_lines(path)


@pytest.mark.parametrize("packing", PACKINGS)
def test_files_that_cannot_be_read(tmp_path, packing):
    path = tmp_path / f"a{packing}"
    with fails(f"{path}: no such file"):
        read_lines(path)
    for empty in (b"", b"\xef\xbb\xbf"):
        with fails(f"{path}: the file is empty, expected one sentence a line"):
            read_lines(put(path, empty))
    with fails(f"{path}, line 2: not UTF-8 text (byte 0xfc at byte 2 of the record)"):
        read_lines(put(path, "äö\nxy".encode() + b"\xfcz\n"))
    path.unlink()
    path.mkdir()
    with fails(f"{path}: cannot be read (Is a directory)"):
        read_lines(path)


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_damaged_streams_name_the_line_reached(tmp_path, packing):
    path = tmp_path / f"a{packing}"
    content = "".join(f"line {n} {n * 7919 % 10007}\n" for n in range(20000)).encode()
    whole = packed(content, packing, 3)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"after line \d+: the packed stream is cut off or damaged") as caught:
        read_lines(path)
    assert 5000 < int(re.search(r"after line (\d+)", str(caught.value))[1]) < 15000
    checksum = bytearray(whole)
    checksum[-2] ^= 0xFF
    for damaged in (whole[:-1], whole[:-5], whole[:1], checksum, whole + b"<html>404</html>", b"<html>404</html>"):
        path.write_bytes(damaged)
        with pytest.raises(DamagedStreamError, match=r"damaged \(.*\); delete the file and fetch it again"):
            read_lines(path)


# ---- records


def test_strict_names_place_reason_and_what_was_found():
    with fails("a.jsonl, line 3: not valid JSON (char 7); data.strict: false leaves"):
        BadRecords().add("a.jsonl, line 3", "not valid JSON", "char 7")
    with fails("a, line 3: empty document; "):
        BadRecords().add("a, line 3", "empty document")


def test_lenient_counts_by_reason():
    bad_records = BadRecords(strict=False)
    for line in range(3):
        with bad_records.at(f"a, line {line}"):
            raise BadRecordError("empty document", str(line))
    bad_records.add("a, line 9", "not valid JSON")
    assert bad_records.counts == {"empty document": 3, "not valid JSON": 1}


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b'{"text": "cut he', "not valid JSON (Unterminated string starting at at column 10)"),
        (b"{'text': 'a'}", "not valid JSON (Expecting property name enclosed in double quotes at column 2)"),
        (b'{"text": "a"} {"text": "b"}', "not valid JSON (Extra data at column 15)"),
        (b"[" * 100_000, "not valid JSON (maximum recursion depth exceeded"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not valid JSON (Exceeds the limit"),
        (b'{"text": "\xe4"}', "not UTF-8 text (byte 0xe4 at byte 10 of the record)"),
        (b'["a"]', 'wrong type (a list in place of an object with "text")'),
        (b"7", 'wrong type (a whole number in place of an object with "text")'),
        (b'{"txt": "a"}', 'no "text" (expected text)'),
        (b'{"text": ["a"]}', 'wrong type ("text" is a list, expected text)'),
        (b'{"text": null}', 'wrong type ("text" is null, expected text)'),
        (b'{"text": true}', 'wrong type ("text" is true, expected text)'),
        (b'{"text": ""}', 'empty "text"'),
        (b'{"text": " \\n\\u00a0"}', 'empty "text"'),
        (b'{"text": "a \\ud83d b"}', '"text" is not valid Unicode (half a surrogate pair at character 2)'),
    ],
)  # fmt: skip
def test_faults_of_json_records(raw, fault):
    with fails(fault, BadRecordError):
        text_field(parse_json(raw), "text")


# ---- parallel text


def sides(folder, source, target):
    return [read_side(put(folder / name, text)) for name, text in (("a.en", source), ("a.de.gz", target))]


def test_pairs(tmp_path):
    both = sides(tmp_path, "one\ntwo\n", "eins\nzwei\n")
    assert pair_sides(*both, expected=2) == [("one", "eins"), ("two", "zwei")]
    with fails(f"{tmp_path}/a.en and {tmp_path}/a.de.gz: found 2 pairs, expected 29000"):
        pair_sides(*both, expected=29000)


def test_unequal_line_counts_are_an_error_however_lenient(tmp_path):
    """Left-out lines would shift all that follow."""
    with fails(f"{tmp_path}/a.en has 3 lines but {tmp_path}/a.de.gz has 2, expected equally many"):
        pair_sides(*sides(tmp_path, "1\n2\n3\n", "1\n2\n"), expected=3, bad_records=BadRecords(strict=False))


@pytest.mark.parametrize("blank", ["", "   ", "\u00a0\t", "\r"])
def test_empty_sentences_are_errors_or_counted(tmp_path, blank):
    both = sides(tmp_path, f"one\ntwo\n{blank}\nfour\n", f"eins\n{blank}\ndrei\nvier\n")
    with fails(f"{tmp_path}/a.de.gz, line 2: the sentence is empty, expected one on every line; data.strict: false"):
        pair_sides(*both)
    bad_records = BadRecords(strict=False)
    assert pair_sides(*both, expected=4, bad_records=bad_records) == [("one", "eins"), ("four", "vier")]
    assert bad_records.counts == {"the sentence is empty, expected one on every line": 2}
    assert len(pair_sides(*both, keep_empty=True)) == 4
