"""The examples of docs/heads.md, as they stand there, one after the other."""

import importlib.util
import re
from pathlib import Path

import matplotlib as mpl
import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "heads.md"
*OURS, CAPTUM = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.fixture
def page(monkeypatch):
    mpl.use("agg")
    names = {"__name__": "page"}
    for code in OURS:
        exec(compile(code, PAGE.name, "exec"), names)
    yield names
    mpl.pyplot.close("all")


def test_the_page_runs_from_top_to_bottom(page):
    assert len(page["frame"]) == 8
    assert [point.kept for point in page["curve"]] == [8, 6, 4, 2, 0]
    assert sum(page["heads"].counts.values()) == 6
    assert page["padded"].weights.shape == (8, 4, 10, 10)
    assert not torch.equal(page["patched"], page["encoder"](page["corrupted"]))
    assert len(page["axes"].lines) == 1


@pytest.mark.skipif(importlib.util.find_spec("captum") is None, reason="captum is not installed")
def test_captum_attributes_to_heads(page):
    exec(compile(CAPTUM, PAGE.name, "exec"), page)
    heads = page["encoder"].layers[0].num_heads
    assert page["by_head"].shape == (heads,)
    assert page["by_head"].abs().min() > 0
