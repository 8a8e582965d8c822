"""The readers of plain and parallel text, and what they say about damaged files."""

import gzip
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.core.errors import DataError
from headdiv.data.readers.bad_records import BadRecords
from headdiv.data.readers.parallel import read_lines, read_parallel


def put(path, content):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def fails(message):
    return pytest.raises(DataError, match=re.escape(message))


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_lines_plain_and_packed(tmp_path, name, ending):
    path = put(tmp_path / name, "Ein Mann läuft.\nZwei Hunde." + ending)
    assert read_lines(path) == ["Ein Mann läuft.", "Zwei Hunde."]
    assert read_lines(str(path)) == read_lines(path)


def test_only_newline_ends_a_line(tmp_path):
    inner = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh"
    assert read_lines(put(tmp_path / "a", f"{inner}\r\nnext\r\r\nlast\r")) == [inner, "next\r", "last"]


def test_byte_order_mark_is_taken_off_at_the_start_only(tmp_path):
    assert read_lines(put(tmp_path / "a", "\ufeffone\n\ufefftwo\n")) == ["one", "\ufefftwo"]


def test_empty_lines_are_kept(tmp_path):
    assert read_lines(put(tmp_path / "a", "one\n\n three \n")) == ["one", "", " three "]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n\ufeff", codec="utf-8")), min_size=1))
def test_lines_survive_a_round_trip(tmp_path, lines):
    lines = [line.rstrip("\r") for line in lines]
    assert read_lines(put(tmp_path / "a", "".join(f"{line}\n" for line in lines))) == lines


def test_missing_file(tmp_path):
    with fails(f"{tmp_path / 'none.gz'}: no such file"):
        read_lines(tmp_path / "none.gz")


def test_folder_in_place_of_a_file(tmp_path):
    with fails(f"{tmp_path}: cannot be read (Is a directory)"):
        read_lines(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_empty_file(tmp_path, name, content):
    path = put(tmp_path / name, content)
    with fails(f"{path}: the file is empty, expected one sentence a line"):
        read_lines(path)


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize(("mark", "offset"), [(b"", 7), (b"\xef\xbb\xbf", 10)])
def test_bytes_that_are_not_utf8(tmp_path, name, mark, offset):
    path = put(tmp_path / name, mark + "äö\nxy".encode() + b"\xfcz\n")
    with fails(f"{path}, line 2: byte 0xfc at byte offset {offset} is not UTF-8; expected UTF-8 text"):
        read_lines(path)


def test_bad_byte_after_a_mark_on_the_first_line(tmp_path):
    path = put(tmp_path / "a", b"\xef\xbb\xbfab\xff\n")
    with fails("line 1: byte 0xff at byte offset 5"):
        read_lines(path)


def test_truncated_gzip_names_the_line_reached(tmp_path):
    path = tmp_path / "a.gz"
    packed = gzip.compress(b"one\ntwo\nthree\n")
    path.write_bytes(packed[:-3])
    with fails(f"{path}, after line 3: the gzip stream is cut off or damaged (Compressed file ended"):
        read_lines(path)
    text = "".join(f"line {n} {n * 7919 % 10007}\n" for n in range(20000))
    packed = gzip.compress(text.encode())
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"after line [0-9]+: the gzip stream is cut off") as caught:
        read_lines(path)
    assert 5000 < int(re.search(r"after line (\d+)", str(caught.value)).group(1)) < 15000


def test_damaged_gzip(tmp_path):
    path = tmp_path / "a.gz"
    packed = bytearray(gzip.compress(b"one\ntwo\n"))
    packed[-6] ^= 0xFF  # in the stream's own checksum
    path.write_bytes(packed)
    with fails(f"{path}, after line 2: the gzip stream is cut off or damaged (CRC check failed"):
        read_lines(path)
    path.write_bytes(packed[:10] + b"\xff" * 20)
    with fails(f"{path}, after line 0: the gzip stream is cut off or damaged (Error -3"):
        read_lines(path)
    path.write_bytes(b"<html>404</html>")
    with fails("damaged (Not a gzipped file (b'<h')); delete the file and fetch it again"):
        read_lines(path)


def test_pairs(tmp_path):
    en, de = put(tmp_path / "a.en", "one\ntwo\n"), put(tmp_path / "a.de.gz", "eins\nzwei\n")
    assert read_parallel(en, de) == [("one", "eins"), ("two", "zwei")]
    assert read_parallel(str(en), str(de), expected=2) == [("one", "eins"), ("two", "zwei")]


def test_unequal_line_counts(tmp_path):
    en, de = put(tmp_path / "a.en", "one\ntwo\nthree\n"), put(tmp_path / "a.de", "eins\nzwei\n")
    with fails(f"{en} has 3 lines but {de} has 2, expected equally many"):
        read_parallel(en, de, expected=3)


def test_unexpected_count(tmp_path):
    en, de = put(tmp_path / "a.en", "one\ntwo\n"), put(tmp_path / "a.de", "eins\nzwei\n")
    with fails(f"{en} and {de}: found 2 pairs, expected 29000"):
        read_parallel(en, de, expected=29000)


@pytest.mark.parametrize("blank", ["", "   ", "\u00a0\t", "\r"])
def test_empty_sentence_on_either_side(tmp_path, blank):
    full, holed = put(tmp_path / "a.en", "one\ntwo\n"), put(tmp_path / "a.de", f"eins\n{blank}\n")
    for pair in ((full, holed), (holed, full), (holed, holed)):
        with fails(f"{holed}, line 2: the sentence is empty, expected one on every line"):
            read_parallel(*pair)


@pytest.mark.parametrize("blank", ["", "   ", "\u00a0\t"])
def test_empty_sentences_may_be_left_out_and_counted(tmp_path, blank):
    en, de = (
        put(tmp_path / "a.en", f"one\ntwo\n{blank}\nfour\n"),
        put(tmp_path / "a.de", f"eins\n{blank}\ndrei\nvier\n"),
    )
    bad_records = BadRecords(strict=False)
    assert read_parallel(en, de, expected=4, bad_records=bad_records) == [("one", "eins"), ("four", "vier")]
    assert bad_records.counts == {"the sentence is empty, expected one on every line": 2}
    with fails("data.strict: false leaves such records out and counts them"):
        read_parallel(en, de, bad_records=BadRecords())


def test_what_is_wrong_with_whole_files_stays_an_error(tmp_path):
    """Left-out lines would shift all that follow."""
    en, de = put(tmp_path / "a.en", "one\ntwo\nthree\n"), put(tmp_path / "a.de", "eins\nzwei\n")
    with fails(f"{en} has 3 lines but {de} has 2, expected equally many"):
        read_parallel(en, de, bad_records=BadRecords(strict=False))
