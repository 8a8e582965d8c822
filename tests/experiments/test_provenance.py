"""Where a result comes from: how busy the machine was, and the commit."""

import math
import os
import platform
import subprocess
from pathlib import Path

import pytest

from headdiv.companion import provenance


def test_other_load_is_what_is_beside_the_runs_own_threads(monkeypatch):
    """Load averages are those of a filter that has not yet seen all of a short run's own load."""
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 2.5, 2.0))
    assert provenance.other_load(1e9, 1) == pytest.approx(1.0)
    assert provenance.other_load(60, 2) == pytest.approx(3 - 2 * (1 - math.exp(-1)))
    assert provenance.other_load(400, 2) == pytest.approx(2.5 - 2 * (1 - math.exp(-400 / 300)))
    assert provenance.other_load(1e9, 5) == 0


def test_a_commit_with_changes_says_so(tmp_path, monkeypatch):
    """Changes of what decides a result; notes beside it do not count."""
    monkeypatch.setenv("HEADDIV_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "a.yaml").touch()
    assert provenance.commit() is None
    monkeypatch.setenv("HEADDIV_COMMIT", "0123456789ab")
    assert provenance.commit() == "0123456789ab"
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    clean = provenance.commit()
    assert len(clean) == 12
    (tmp_path / "notes").touch()
    assert provenance.commit() == clean
    (tmp_path / "config" / "a.yaml").write_text("b")
    assert provenance.commit() == f"{clean}+changes"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: X\n\nmodel name\t: Y\n", "X (family 26, model 2)"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", platform.processor() or platform.machine()),
    ],
)  # fmt: skip
def test_a_processor_has_its_generation_where_the_system_says_it(monkeypatch, cpuinfo, expected):
    monkeypatch.setattr(Path, "read_text", lambda path: {"/proc/cpuinfo": cpuinfo}[str(path)])
    provenance._cpuinfo.cache_clear()
    try:
        assert provenance.processor() == expected
    finally:
        provenance._cpuinfo.cache_clear()
