"""Every stored table, redrawn from the stored runs: the same CSV, byte for byte, and the same cells in Markdown."""

import subprocess

import pytest
from pins import ROOT

from headdiv.companion.report.tables import table_data

STORED = subprocess.run(
    ["git", "ls-files", "results/*/tables/*.csv"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()


def cells(markdown):
    """The rows of all of its tables."""
    return [[cell.strip() for cell in line.split("|")] for line in markdown.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("path", STORED)
def test_a_stored_table_is_redrawn_as_it_is(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, profile, _, name = path.removesuffix(".csv").split("/")
    data = table_data(profile, name.replace("_", "/", 1))
    assert data.csv() == (ROOT / path).read_text()
    assert cells(data.markdown()) == cells((ROOT / path).with_suffix(".md").read_text())
