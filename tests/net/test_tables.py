"""Every stored table, redrawn from the stored runs: the same CSV, byte for byte, and the same cells in Markdown."""

import pytest
from tracked import ROOT, git_files

from headdiv.companion.report.tables import table_data

STORED = git_files("results/*/tables/*.csv")


def cells(markdown):
    """The rows of all of its tables."""
    return [[cell.strip() for cell in line.split("|")] for line in markdown.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_stored_table_is_redrawn_as_it_is(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    data = table_data(path.parts[-3], path.stem.replace("_", "/", 1))
    assert data.csv() == path.read_text(encoding="utf-8")
    assert cells(data.markdown()) == cells(path.with_suffix(".md").read_text(encoding="utf-8"))
