"""The reader of lines that all formats share, the checks of records, and parallel text."""

import re

import pytest
from faulty import PACKINGS, fails, packed, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data.readers import lines
from headdiv.companion.data.readers.lines import DamagedStreamError, raw_lines, read_lines
from headdiv.companion.data.readers.parallel import pair_sides
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, parse
from headdiv.companion.data.readers.ted import read_side

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


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_a_stream_that_is_cut_off_names_the_line_reached(tmp_path, packing):
    whole = packed("".join(f"line {n} {n * 7919 % 10007}\n" for n in range(20000)).encode(), packing, 3)
    path = tmp_path / f"a{packing}"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedStreamError) as caught:
        read_lines(path)
    assert 5000 < int(re.search(r"after line (\d+)", str(caught.value))[1]) < 15000


# ---- records


class Sentence(Form):
    text: RecordText


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"text": "cut he', "not valid JSON (EOF while parsing a string at line 1 column 16)"),
        (b'{"text": "a"} {"text": "b"}', "not valid JSON (trailing characters at line 1 column 15)"),
        (b"[" * 100_000, "not valid JSON (recursion limit"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not valid JSON (number out of range"),
        (b'{"text": "a \\ud83d b"}', "not valid JSON ("),
        (b'{"text": "\xe4"}', "not UTF-8 text (byte 0xe4 at byte 10 of the record)"),
        (b'["a"]', "input should be an object (found ['a'])"),
        (["a"], "input should be a valid dictionary (found ['a'])"),
        (b'{"txt": "a"}', "no \"text\" (found {'txt': 'a'})"),
        (b'{"text": true}', '"text": input should be a valid string (found True)'),
        (b'{"text": " \\n\\u00a0"}', '"text": input should not be empty'),
        ({"text": "a \ud83d b"}, '"text": input should have no half of a surrogate pair (found'),
    ],
)  # fmt: skip
def test_faults_of_json_records(content, fault):
    with fails(fault, BadRecordError):
        parse(Sentence, content)


# ---- parallel text


def sides(folder, source, target):
    return [read_side(put(folder / name, text)) for name, text in (("a.en", source), ("a.de.gz", target))]


def test_pairs(tmp_path):
    both = sides(tmp_path, "one\ntwo\n", "eins\nzwei\n")
    assert pair_sides(*both, BadRecords(), expected=2) == [("one", "eins"), ("two", "zwei")]
    with fails(f"{tmp_path}/a.en and {tmp_path}/a.de.gz: found 2 pairs, expected 29000"):
        pair_sides(*both, BadRecords(), expected=29000)
    holed = sides(tmp_path, "one\n\nthree\n", "eins\nzwei\n \n")
    bad_records = BadRecords(strict=False)
    assert pair_sides(*holed, bad_records) == [("one", "eins")]
    assert bad_records.counts.total() == 2
    assert len(pair_sides(*holed, bad_records, keep_empty=True)) == 3


def test_unequal_line_counts_are_an_error_however_lenient(tmp_path):
    """Left-out lines would shift all that follow."""
    with fails(f"{tmp_path}/a.en has 3 lines but {tmp_path}/a.de.gz has 2, expected equally many"):
        pair_sides(*sides(tmp_path, "1\n2\n3\n", "1\n2\n"), BadRecords(strict=False), expected=3)
