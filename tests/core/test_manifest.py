"""Checksums beside what is stored: damage is named, and so is what has none."""

import subprocess

import pytest

from headdiv.core import manifest
from headdiv.core.errors import DamageError
from headdiv.core.files import write_json


def fill(folder):
    (folder / "deep").mkdir()
    write_json(folder / "deep" / "a b.json", {"a": 1})
    (folder / "c").write_text("text")
    manifest.note(folder)


def refusal(*arguments):
    with pytest.raises(DamageError) as error:
        manifest.check(*arguments)
    return str(error.value)


def test_damage_is_named(tmp_path):
    fill(tmp_path)
    manifest.check(tmp_path)
    path = tmp_path / "c"
    path.write_text("texd")
    assert refusal(tmp_path) == f"{path}: damaged, its sha256 is 6d6176893d85…, expected 982d9e3eb996…"
    manifest.check(tmp_path, "deep/a b.json")
    path.unlink()
    assert refusal(tmp_path) == refusal(tmp_path, "c") == f"{path}: missing"


def test_what_has_no_checksum_is_damaged(tmp_path):
    fill(tmp_path)
    written = (tmp_path / manifest.MANIFEST).read_bytes()
    (tmp_path / manifest.MANIFEST).write_bytes(b"\xffnot a line\n" + written.splitlines(keepends=True)[0])
    manifest.check(tmp_path, "c")
    assert refusal(tmp_path, "deep/a b.json") == f"{tmp_path}/deep/a b.json: has no checksum in SHA256SUMS"
    (tmp_path / manifest.MANIFEST).unlink()
    assert refusal(tmp_path) == refusal(tmp_path, "c") == f"{tmp_path}/SHA256SUMS: missing or empty"


def test_sha256sum_reads_a_manifest(tmp_path):
    fill(tmp_path)
    done = subprocess.run(["sha256sum", "--strict", "-c", manifest.MANIFEST], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"c: OK\ndeep/a b.json: OK\n", b"")
    (tmp_path / "c").write_text("other")
    manifest.note(tmp_path, "c")  # and leaves the others
    manifest.check(tmp_path)


def test_whether_a_file_is_whole_says_what_is_done_if_not(tmp_path, caplog):
    fill(tmp_path)
    assert not manifest.whole(tmp_path / "none", "it is made again")
    assert manifest.whole(tmp_path / "c", "it is made again")
    assert not caplog.records
    (tmp_path / "c").write_text("")
    assert not manifest.whole(tmp_path / "c", "it is made again")
    (said,) = (entry.getMessage() for entry in caplog.records)
    assert said.startswith(f"{tmp_path}/c: damaged, ")
    assert said.endswith("; it is made again")
