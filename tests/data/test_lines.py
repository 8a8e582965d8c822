"""The reader of lines that all formats share, the checks of records, and parallel text."""

import pytest
from faulty import PACKINGS, fails, packed, put

from headdiv.companion.data.readers.lines import read_lines
from headdiv.companion.data.readers.parallel import pair_sides
from headdiv.companion.data.readers.records import BadRecordError, BadRecords, Form, RecordText, parse
from headdiv.companion.data.readers.ted import read_side


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


def test_skippable_and_empty_frames(tmp_path):
    path = tmp_path / "a.zst"
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    path.write_bytes(skippable + packed(b"one\n", ".zst") + packed(b"", ".zst") + skippable)
    assert read_lines(path) == ["one"]


# ---- records


class Sentence(Form):
    text: RecordText


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"text": "cut he', "not valid JSON (EOF while parsing a string at line 1 column 16)"),
        (b'["a"]', "input should be an object (found ['a'])"),
        (b'{"txt": "a"}', "no \"text\" (found {'txt': 'a'})"),
        (b'{"text": true}', '"text": input should be a valid string (found True)'),
        (b'{"text": " \\n\\u00a0"}', '"text": input should not be empty'),
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
    with fails(
        f"{tmp_path}/a.en, line 3: has no partner, {tmp_path}/a.de.gz ends after 2 sentences; expected equally many"
    ):
        pair_sides(*sides(tmp_path, "1\n2\n3\n", "1\n2\n"), BadRecords(strict=False), expected=3)
