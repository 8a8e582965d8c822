"""Whole files or none, and the one spelling of JSON that hashes are taken of."""

import hashlib
import json
import math

import pytest

from headdiv.core import files
from headdiv.core.errors import DataError
from headdiv.core.files import (
    canonical_json,
    checksum,
    fingerprint,
    read_json,
    replacing,
    short_hash,
    write_json,
    write_text,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("earlier", [None, "old"])
def test_a_file_appears_whole(tmp_path, earlier):
    target = tmp_path / "deep" / "er" / "a.txt"
    if earlier:
        write_text(target, earlier)
    with replacing(target) as temporary:
        assert temporary.parent == target.parent
        temporary.write_text("new")
        assert target.exists() == bool(earlier)
    assert target.read_text() == "new"
    assert names(target.parent) == ["a.txt"]


@pytest.mark.parametrize("earlier", [False, True])
def test_a_folder_appears_whole(tmp_path, earlier):
    target = tmp_path / "folder"
    if earlier:
        target.mkdir()
        (target / "old").touch()
    with replacing(target) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert names(target) == ["new"]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_one_and_nothing_beside_it(tmp_path, kind, failure):
    target = tmp_path / "a"
    if kind == "folder":
        target.mkdir()
        (target / "old").touch()
    else:
        target.write_text("old")

    def fail():
        with replacing(target) as temporary:
            if kind == "folder":
                temporary.mkdir()
                (temporary / "half").touch()
            elif kind == "file":
                temporary.write_text("half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert names(tmp_path) == ["a"]
    assert names(target) == ["old"] if kind == "folder" else target.read_text() == "old"


def test_a_block_that_writes_nothing_is_an_error_and_leaves_the_old_one(tmp_path):
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(target):
        pass
    assert target.read_text() == "old"


def test_text_and_json_come_back(tmp_path):
    value = {"Wörter": ["ein „Hund“", "a\u2028b"], "share": 0.1, "none": None}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert "Wörter" in text
    assert text.endswith("}\n")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan(tmp_path, bad):
    path = tmp_path / "a.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": [bad]})
    assert read_json(path) == 1
    assert names(tmp_path) == ["a.json"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(bad)


def test_what_is_wrong_with_a_json_file_is_said(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(DataError) as found:
        read_json(path)
    assert str(found.value) == f"{path}: no such file"
    path.write_text('{"a": 1,\n "b": }\n')
    with pytest.raises(DataError) as found:
        read_json(path)
    assert str(found.value) == f"{path}, line 2: not valid JSON (Expecting value)"


def test_checksums_are_the_published_ones(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert checksum(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert checksum(path, "md5") == "900150983cd24fb0d6963f7d28e17f72"


def test_the_fingerprint_of_a_file_is_its_checksum(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert fingerprint(path) == fingerprint(str(path)) == checksum(path)
    path.write_bytes(b"abd")
    assert fingerprint(path) == checksum(path)
    path.write_bytes(b"")
    assert fingerprint(path) == checksum(path)


def test_of_a_large_file_size_beginning_and_end_are_told(tmp_path, monkeypatch):
    """Hashing a corpus of many GB would take longer than to prepare it."""
    mib = 1 << 20
    monkeypatch.setattr(files, "WHOLE", 3 * mib)
    path, content = tmp_path / "a", bytearray(4 * mib)
    path.write_bytes(content)
    before = fingerprint(path)
    expected = hashlib.sha256(str(4 * mib).encode() + bytes(2 * mib)).hexdigest()
    assert before == expected != checksum(path)
    told = {before}
    for at in (0, mib - 1, 3 * mib, 4 * mib - 1):
        changed = content.copy()
        changed[at] = 1
        path.write_bytes(changed)
        told.add(fingerprint(path))
    path.write_bytes(content + b"\0")
    told.add(fingerprint(path))
    assert len(told) == 6
    content[2 * mib] = 1  # in between nobody looks
    path.write_bytes(content)
    assert fingerprint(path) == before
    path.write_bytes(content[: 3 * mib])
    assert fingerprint(path) == checksum(path)


def test_a_file_that_is_not_there_has_no_fingerprint(tmp_path):
    with pytest.raises(FileNotFoundError):
        fingerprint(tmp_path / "a")


def test_canonical_json_has_one_spelling():
    assert canonical_json({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == '{"a":{"ü":"x"},"b":[1,2.5,null,true]}'
    assert canonical_json({"a": 1, "b": 2}) == canonical_json(json.loads('{ "b": 2, "a": 1 }'))


def test_hashes_stay_what_they_are():
    assert short_hash({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == "55f2191f7fd5ac60"
    assert short_hash({}) == "44136fa355b3678a"  # the first digits of `printf '{}' | sha256sum`
    assert short_hash({"a": 1}) != short_hash({"a": 1.5})
