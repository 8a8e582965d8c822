"""The examples of docs/library.md, as they stand there, one after the other."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs" / "library.md"


@pytest.mark.usefixtures("own_methods")
def test_the_page_runs_from_top_to_bottom():
    torch.manual_seed(0)
    names = {"__name__": "page"}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        exec(compile(code, PAGE.name, "exec"), names)
    assert names["output"].shape == (8, 9, 64)
    assert names["pushed"].options.weight == 0.2
    assert len(names["layers"]) == 2
