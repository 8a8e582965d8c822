"""A method from one file outside headdiv (tests/own_method.py) does all that the built-in ones do."""

import json
from pathlib import Path

import pytest
import torch
from examples import some_pairs, tiny, watched_pass
from pydantic import Field
from small_model import make_batch
from torch import nn

import headdiv
from headdiv.core.errors import ConfigError
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.registry import make_method

OWN = {"name": "multi-query", "decay": 0.5}


@pytest.fixture(autouse=True)
def registered(own_methods):
    """For the time of a test."""
    import own_method

    headdiv.register(own_method.MultiQuery)  # an import that was made before registers nothing


@pytest.mark.parametrize("given", [5, make_method("deacon", m=2), torch.nn.Linear, headdiv.Method], ids=repr)
def test_only_a_named_class_of_methods_is_registered(given):
    with pytest.raises(ConfigError, match=r"^register: found .*, expected a subclass of headdiv\.Method with a name$"):
        headdiv.register(given)


def test_it_stands_in_other_models():
    """The drop-in: in torch's own layer, with padding and gradients."""
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    layer.self_attn = MultiheadAttention(12, 3, make_method(OWN), batch_first=True)
    x = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1), requires_grad=True)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    _, weights = layer.self_attn(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (2, 3, 5, 5)
    assert not weights[1, :, :, 3:].any()
    layer(x, src_key_padding_mask=padding).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("page", "name"), [("docs/library.md", "push-apart"), ("notebooks/your_method.ipynb", "repulsion")]
)
def test_the_losses_of_the_pages_are_0_for_a_rank_without_a_sentence(page, name):
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    if page.endswith("ipynb"):
        cells = ("".join(cell["source"]) for cell in json.loads(text)["cells"])
        code = next(cell for cell in cells if cell.startswith("class Repulsion"))
    else:
        code = text.partition("@headdiv.register\n")[2].partition("\n\npushed =")[0]
    names = {"__name__": name, "headdiv": headdiv, "torch": torch, "Field": Field}
    exec(compile(code.replace("headdiv.register(Repulsion)", ""), page, "exec"), names)
    method = next(value for value in names.values() if getattr(value, "name", None) == name)()
    model, _ = tiny("baseline")
    for numbers in (range(5), []):
        added = watched_pass(model, method, make_batch(some_pairs(5), numbers))[1]
        assert added.isfinite()
        assert bool(added) == bool(len(numbers))
