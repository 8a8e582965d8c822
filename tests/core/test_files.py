"""Whole files or none, checksums, fingerprints, and the canonical JSON that hashes are taken of."""

import hashlib
import math
import os

import pytest
from faulty import exactly

from headdiv.core import files
from headdiv.core.files import (
    canonical_json,
    checksum,
    fingerprint,
    read_json,
    remove_leftovers,
    replacing,
    short_hash,
    write_json,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_file_or_folder_appears_whole(tmp_path, kind):
    target = tmp_path / "deep" / "er" / "a"
    for content in ["old", "new"]:
        with replacing(target) as temporary:
            assert temporary.parent == target.parent
            if kind == "folder":
                temporary.mkdir()
            (temporary if kind == "file" else temporary / content).write_text(content)
            assert target.exists() == (content == "new")
        assert names(target.parent) == ["a"]
        assert target.read_text() == content if kind == "file" else names(target) == [content]


@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
def test_a_failure_leaves_the_old_one_and_nothing_beside_it(tmp_path, kind):
    target = tmp_path / "a"
    target.write_text("old")

    def fail():
        with replacing(target) as temporary:
            if kind == "folder":
                temporary.mkdir()
                (temporary / "half").touch()
            elif kind == "file":
                temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == ["a"]
    assert target.read_text() == "old"


def test_what_is_renamed_is_on_the_disk_before(tmp_path, monkeypatch):
    events = []

    def log_flush(descriptor):
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).split(".")[-1])

    monkeypatch.setattr(os, "fsync", log_flush)
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: events.append("renamed") or replace(*paths))
    with replacing(tmp_path / "folder") as temporary:
        temporary.mkdir()
        (temporary / "a").touch()
    assert events == ["a", "tmp", "renamed", tmp_path.name]


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    leftovers, others = (".a.0123abcd.tmp", ".a.0123abcd.old"), ("a", ".a.tmp", ".b.0123abcd.tmp", ".a.0123abcd.txt")
    for name in (*leftovers, *others):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path, "a")
    assert names(tmp_path) == sorted(others)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_json_has_no_nan(tmp_path, bad):
    path = tmp_path / "a.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": [bad]})
    assert read_json(path) == 1
    assert names(tmp_path) == ["a.json"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(bad)


def test_a_mistake_in_a_json_file_is_named(tmp_path):
    path = tmp_path / "a.json"
    for content, problem in (
        (None, ": no such file"),
        (b'{"a": 1,\n "b": }\n', ", line 2: not valid JSON (Expecting value)"),
        (b'"\xe4"', ": not UTF-8 text (byte offset 1)"),
    ):
        if content:
            path.write_bytes(content)
        with exactly(f"{path}{problem}"):
            read_json(path)


def test_a_checksum_is_that_of_the_file_as_it_is_now(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    assert checksum(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    for number, content in enumerate((b"abcd", b"abce")):
        path.write_bytes(content)
        os.utime(path, ns=(number, number))
        assert checksum(path) == hashlib.sha256(content).hexdigest()


def test_of_a_large_file_size_beginning_and_end_count(tmp_path, monkeypatch):
    """Hashing a corpus of many GB would take longer than to prepare it."""
    mib, number = 1 << 20, iter(range(100))
    monkeypatch.setattr(files, "WHOLE", 3 * mib)

    def stored(content):
        path = tmp_path / str(next(number))
        path.write_bytes(content)
        return fingerprint(path)

    content = bytearray(4 * mib)
    before = stored(content)
    different = {before, stored(content + b"\0")}
    for offset in (0, mib - 1, 3 * mib, 4 * mib - 1):
        changed = content.copy()
        changed[offset] = 1
        different.add(stored(changed))
    assert len(different) == 6
    content[2 * mib] = 1  # the middle is not read
    assert stored(content) == before
    assert stored(content[: 3 * mib]) == hashlib.sha256(content[: 3 * mib]).hexdigest()


def test_hashes_stay_what_they_are():
    assert canonical_json({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == '{"a":{"ü":"x"},"b":[1,2.5,null,true]}'
    assert short_hash({"b": [1, 2.5, None, True], "a": {"ü": "x"}}) == "55f2191f7fd5ac60"
