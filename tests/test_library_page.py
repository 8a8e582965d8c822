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
    assert names["pushed"].options.weight == 0.2
    assert len(names["layers"]) == 2
