"""The example of the README, as it stands there."""

import re
from pathlib import Path

import torch

from headdiv.methods.deacon import pca_layers

README = Path(__file__).parents[2] / "README.md"


def test_the_example_of_the_readme_learns():
    (code,) = re.findall(r"^## Train your own model\n.*?^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    torch.manual_seed(1)
    names = {"__name__": "example"}
    exec(compile(code, "README.md", "exec"), names)
    assert [point["epoch"] for point in names["curve"]] == [1, 2, 3]
    assert names["curve"][-1]["validation_nll"] < 0.1  # nats; chance is log 20 = 3
    (layer,) = pca_layers(names["model"]).values()
    assert all(layer.w is not p for group in names["trainer"].learner.optimiser.param_groups for p in group["params"])
