"""Examples of the guide, as they stand there."""

import re
from pathlib import Path

import torch
from torch import nn

import headdiv
from headdiv.methods.deacon import pca_layers

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


def test_the_example_of_the_guide_learns():
    (code,) = re.findall(r"^## Train your own model\n.*?^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    torch.manual_seed(1)
    names = {"__name__": "example"}
    exec(compile(code, "guide.md", "exec"), names)
    assert [point["epoch"] for point in names["curve"]] == [1, 2, 3]
    assert names["curve"][-1]["validation_nll"] < 0.1  # nats; chance is log 20 = 3
    (layer,) = pca_layers(names["model"]).values()
    assert all(layer.w is not p for group in names["trainer"].learner.optimiser.param_groups for p in group["params"])


class OneLayer(nn.Module):
    def __init__(self):
        super().__init__()
        method = headdiv.make_method({"name": "dpp", "term": "output"})
        self.attention = headdiv.MultiheadAttention(16, 4, method, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0].square().mean()


def test_the_loss_of_the_guide_has_what_the_heads_add():
    (code,) = re.findall(r"^A method that adds to the loss.*?^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    model, batch = OneLayer(), torch.randn(2, 5, 16)
    names = {"headdiv": headdiv, "model": model, "batch": batch, "progress": 0.0, "count": 10}
    exec(compile(code, "guide.md", "exec"), names)
    assert torch.isfinite(names["loss"])
    assert not torch.isclose(names["loss"], model(batch))
