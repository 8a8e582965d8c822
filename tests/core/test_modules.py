"""Of modules that PEFT keeps beside each other, the one that runs is found."""

import copy

import pytest
import torch
from torch import nn

from headdiv.core.modules import Holder, active_modules


def test_of_an_adapters_copies_and_the_original_the_one_that_runs_is_found():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["0"], modules_to_save=["1"])
    model = peft.get_peft_model(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), config)
    model.add_adapter("other", config)
    ran = []
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_hook(lambda module, *_: ran.append(module))

    def active_name():
        ran.clear()
        model(torch.randn(2, 4))
        names = active_modules(model, nn.LayerNorm)
        assert list(names.values()) == ran
        return next(iter(names)).rpartition("1.")[2]

    assert active_name() == "modules_to_save.default"
    model.set_adapter("other")
    assert active_name() == "modules_to_save.other"
    with model.disable_adapter():
        assert active_name() == "original_module"


def test_an_original_that_another_layer_shares_is_found_there():
    """PEFT wraps a module under the first of its names."""
    peft = pytest.importorskip("peft")
    norm = nn.LayerNorm(4)
    config = peft.LoraConfig(target_modules=["0"], modules_to_save=["1"])
    model = peft.get_peft_model(nn.Sequential(nn.Linear(4, 4), norm, nn.Tanh(), norm), config)
    assert [name.rpartition("model.")[2] for name in active_modules(model, nn.LayerNorm)] == [
        "1.modules_to_save.default", "3",
    ]  # fmt: skip


def test_a_holder_is_that_of_the_copied_layer_and_stays_where_a_part_alone_is_copied():
    layer = nn.Sequential(nn.Identity())
    layer[0].holder = Holder(layer)
    whole, part = copy.deepcopy(layer), copy.deepcopy(layer[0])
    assert whole[0].holder.module is whole
    assert part.holder.module is layer
    assert [*layer.modules()] == [layer, layer[0]]
