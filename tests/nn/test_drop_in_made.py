"""How the drop-in and methods are made: by name, in ranges, with layers that number themselves."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from examples import deacon
from torch import nn

import headdiv
from headdiv.analysis.masking import heads_of
from headdiv.core.errors import ConfigError
from headdiv.methods import make_method
from headdiv.methods.base import Method
from headdiv.methods.deacon import Deacon, collected_moments, pca_layers
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.swaps import HeadIndex, swap_heads

D, H = 12, 3


def test_the_output_starts_at_the_size_that_head_scaling_says():
    found = []
    for scale in (1.0, 0.3):
        torch.manual_seed(0)
        found.append(MultiheadAttention(D, H, {"name": "head-scale", "output_scale": scale}).attention.output.weight)
    torch.testing.assert_close(found[1], 0.3 * found[0])


@pytest.mark.parametrize("given", [make_method("gated"), "gated", {"name": "gated"}], ids=str)
def test_a_method_is_given_as_an_object_a_name_or_options(given):
    module = MultiheadAttention(D, H, method=given)
    assert module.attention.method is module.method
    assert module.method.options == make_method("gated").options


def test_without_a_method_the_heads_are_torchs():
    torch.manual_seed(0)
    ours, theirs, x = MultiheadAttention(D, H), nn.MultiheadAttention(D, H), torch.randn(4, 2, D)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x))
    assert type(ours.method) is Method


def test_options_are_keywords_too():
    assert make_method("deacon", m=2).options == make_method({"name": "deacon", "m": 2}).options == Deacon(m=2).options
    assert repr(Deacon(m=2)) == "Deacon(m=2)"
    assert repr(Method()) == "Method()"
    for make in (partial(make_method, "deacon"), Deacon):
        with pytest.raises(ConfigError, match="m2: unknown key"):
            make(m2=8, m=2)
    for found, values in (({"m": 2}, {}), (Deacon(m=2).options, {"m": 3})):
        with pytest.raises(ConfigError, match=r"^Deacon: found .*; expected its options by name"):
            Deacon(found, **values)


def test_sizes_may_be_numpys():
    made = MultiheadAttention(
        np.int64(D), np.int32(H), "gated", dropout=np.float32(0.1), kdim=np.int64(D), layer=np.int64(1)
    )
    x = torch.randn(4, 2, D)
    assert made(x, x, x)[0].shape == x.shape
    assert made.attention.spec.name == "encoder 2"
    assert type(made.embed_dim) is type(made.num_heads) is int


# ---- layers


def test_layers_that_are_left_out_are_counted_by_kind():
    method = make_method("baseline")
    kinds = ["decoder", "cross", "decoder", "cross"]
    modules = nn.ModuleList(MultiheadAttention(D, H, method, kind=kind) for kind in kinds)
    assert [module.attention.spec.name for module in modules] == ["decoder 1", "cross 1", "decoder 2", "cross 2"]
    given = nn.ModuleList([*modules, MultiheadAttention(D, H, method, kind="cross", layer=6)])
    assert list(heads_of(given))[-1] == "cross 7"


def test_copies_and_modules_by_name_are_numbered_in_the_order_of_the_model():
    layer = nn.TransformerEncoderLayer(D, H, 20, batch_first=True)
    layer.self_attn = MultiheadAttention(D, H, deacon(m=2), batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    places = ["encoder 1", "encoder 2", "encoder 3"]
    assert list(heads_of(model)) == places
    assert [each.spec.name for each in pca_layers(model).values()] == places
    x = torch.randn(2, 4, D)
    with headdiv.record_heads(model) as records:
        model(x)
    assert [record.spec.name for record in records] == places
    assert list(heads_of(copy.deepcopy(model.layers[1]))) == ["encoder 2"]


def copies(method, layers=3):
    """torch's encoder, whose layers are copies of one; its method."""
    method = make_method(method)
    layer = nn.TransformerEncoderLayer(D, H, 20, batch_first=True)
    layer.self_attn = MultiheadAttention(D, H, method, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), method


@pytest.mark.parametrize("number", [
    lambda model, method: method.own_parameters(model),
    lambda model, method: method.before_optimizer_step(model, 0.5),
    lambda model, method: headdiv.ModelHeads(model),
])  # fmt: skip
def test_copies_of_differential_attention_have_the_lambda_of_their_own_layer(number):
    model, method = copies({"name": "differential", "heads": "kept"})
    number(model, method)
    expected = [0.8 - 0.6 * math.exp(-0.3 * layer) for layer in range(3)]
    assert [each.self_attn.attention.start for each in model.layers] == expected


def test_artifacts_and_swaps_of_copies_are_by_layer():
    places = ["encoder 1", "encoder 2", "encoder 3"]
    model, method = copies({"name": "homeostasis", "attention": "kwta", "s_att": 0.5})
    model(torch.randn(2, 4, D))
    method.before_optimizer_step(model, 0.5)
    assert list(method.artifacts(model)["activations"]) == places
    model, method = copies({"name": "deacon", "m": 2})
    assert [each["place"] for each in method.artifacts(model)["pca_weights"].values()] == places
    model, method = copies({"name": "deacon", "m": 2})
    with collected_moments(model) as found:
        model(torch.randn(2, 4, D))
    assert list(found) == places
    model, _ = copies("baseline")
    before = [each.self_attn.attention.in_projection.weight.clone() for each in model.layers]
    swap_heads(model, [("encoder", HeadIndex(0, 0), HeadIndex(2, 1))])
    after = [each.self_attn.attention.in_projection.weight for each in model.layers]
    assert torch.equal(after[1], before[1])
    assert torch.equal(after[2][4:8], before[0][:4])


def test_a_given_layer_is_never_changed():
    modules = nn.ModuleList([MultiheadAttention(D, H), MultiheadAttention(D, H, layer=0), MultiheadAttention(D, H)])
    assert list(heads_of(modules)) == ["encoder 2", "encoder 1", "encoder 3"]


def test_the_name_before_optimizer_step_calls_after_backward(monkeypatch):
    called = []
    monkeypatch.setattr(Deacon, "after_backward", lambda self, model, progress: called.append(progress))
    make_method("deacon", m=2).before_optimizer_step(nn.Linear(1, 1), 0.5)
    assert called == [0.5]
