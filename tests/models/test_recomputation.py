"""Activation checkpointing changes memory, and not a bit of what is learnt."""

import pytest
import torch
from examples import CONFIG, OF_CONTRACTS, some_pairs
from small_runs import learner_of, small_config

from headdiv.companion.models.batching import make_batch
from headdiv.companion.models.sizes import ModelConfig
from headdiv.companion.models.transformer import Layer, Transformer, checkpoint_layers, initialise
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.methods import make_method

TRAIN = TrainConfig(label_smoothing=0.1, learning_rate=0.01, warmup_steps=1)
OF_EACH_HOOK = ("moa-2", "drop-head-1", "mixing-1", "homeostasis-2", "deacon-1", "dpp-1")


def trained(options, recompute, config=TRAIN):
    """Sums and weights, buffers included, after two steps, the first of two batches; and passes through a layer."""
    method, passes = make_method(options), []
    model = Transformer(ModelConfig(**CONFIG.model_dump()), 15, 15, method)
    initialise(model, 1)
    if recompute:
        checkpoint_layers(model)
    next(layer for layer in model.modules() if isinstance(layer, Layer)).register_forward_pre_hook(
        lambda *_: passes.append(torch.is_grad_enabled())
    )
    torch.manual_seed(3)
    learner = learner_of(model.train(), method, config)
    batches = [make_batch(some_pairs(seed=seed), range(6)) for seed in (1, 2, 3)]
    sums = [learner.step(batches[:2], 1, 10), learner.step(batches[2:], 2, 10)]
    return sums, model.state_dict(), len(passes)


@pytest.mark.parametrize(("name", "wide"), [*zip(OF_EACH_HOOK, (64 * 64, 0) * 3, strict=True)])
def test_methods_learn_the_same_to_the_last_bit(name, wide, monkeypatch):
    """One method of each hook, with torch's fused product or without."""
    monkeypatch.setattr("headdiv.nn.packing.WIDE", wide)
    (sums, weights, once), (sums_again, weights_again, twice) = (
        trained(OF_CONTRACTS[name], recompute) for recompute in (False, True)
    )
    assert sums == sums_again
    assert (once, twice) == (3, 6)
    assert weights.keys() == weights_again.keys()
    for name, value in weights.items():
        assert torch.equal(value, weights_again[name]), name


def test_in_half_precision_too():
    narrow = TRAIN.model_copy(update={"precision": "bfloat16"})
    (sums, weights, _), (sums_again, weights_again, _) = (
        trained({"name": "baseline"}, recompute, narrow) for recompute in (False, True)
    )
    assert sums == sums_again
    assert all(torch.equal(value, weights_again[name]) for name, value in weights.items())


def test_a_run_keeps_its_name():
    config, checkpointed = (
        small_config("lm", **sections) for sections in ({}, {"train": {"activation_checkpointing": True}})
    )
    assert checkpointed.hash == config.hash
    assert "activation_checkpointing" not in config.model_dump(mode="json")["train"]
