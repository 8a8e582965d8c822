"""The examples of docs/library.md, as they stand there, one after the other."""

import re
from pathlib import Path

import torch

from headdiv.methods import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "library.md"


def test_the_page_runs_from_top_to_bottom(monkeypatch):
    monkeypatch.setattr(METHODS, "_added", dict(METHODS._added))
    torch.manual_seed(0)
    names = {"__name__": "page"}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        exec(compile(code, PAGE.name, "exec"), names)
    assert names["output"].shape == (8, 9, 64)
    assert len(names["frame"]) == 8
    assert [point.kept for point in names["curve"]] == [8, 6, 4, 2, 0]
    assert sum(names["heads"].counts.values()) == 6
    assert names["padded"].weights.shape == (8, 4, 10, 10)
    assert not torch.equal(names["patched"], names["encoder"](names["corrupted"]))
