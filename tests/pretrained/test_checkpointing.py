"""Gradient checkpointing of transformers changes nothing in attached models, whatever is done with their heads."""

import pytest
import torch
from attachable import arguments, model_of
from torch.utils.checkpoint import checkpoint

import headdiv
from headdiv.core.errors import ConfigError

METHODS = [
    {"name": "baseline"},
    {"name": "disagreement", "term": "output"},
    {"name": "disagreement", "term": "position"},  # of the weights
    {"name": "deacon", "architecture": "direct", "m": 3},
    {"name": "homeostasis", "attention": "kwta", "s_att": 0.5},
    {"name": "drop-head", "start": 0.5},
]


def gradients(kind, options, checkpointed):
    """Of two forward passes, one of them with a head masked, and one backward pass; and the state after the update."""
    torch.manual_seed(0)
    model = model_of(kind).train()
    heads, method = headdiv.pretrained.attach(model), headdiv.insert(model, options)
    if checkpointed:
        model.gradient_checkpointing_enable()
    place, total = next(iter(heads.counts)), 0.0
    for seed, gone in ((1, []), (2, [(place, 2)])):
        with headdiv.record_heads(model) as records, heads.without(gone):
            total = total + model(**arguments(model, seed=seed, labels=True)).loss
        added = method.aux_loss(model, records, 0.5, 12)
        total = total if added is None else total + added
    total.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    method.before_optimizer_step(model, 0.5)
    return gradients, model.state_dict()


CASES = [*(("bert", options) for options in METHODS), *(("t5", options) for options in METHODS[2:4])]


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_gradients_and_counts_are_those_without_it(kind, options):
    expected, results = (gradients(kind, options, checkpointed) for checkpointed in (False, True))
    torch.testing.assert_close(results, expected, rtol=1e-5, atol=1e-5)


def test_records_are_the_same_and_have_a_gradient():
    model = model_of("bert").train()
    heads = headdiv.pretrained.attach(model)
    model.gradient_checkpointing_enable()
    with heads.record() as outer, heads.record(weights=False) as records:
        model(**arguments(model))
    assert [record.spec.name for record in records] == [*heads.counts]
    assert all(record.weights is None for record in records)
    sum(record.weights.square().sum() for record in outer).backward()
    assert model.bert.encoder.layer[0].attention.self.query.weight.grad.abs().max() > 0
    assert len(records) == len(outer) == 2
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match="use_reentrant=False"):
        model(**arguments(model))


def test_it_may_be_switched_on_and_off_and_is_transformers_own_again_when_detached():
    model = model_of("bert").train()
    heads, batch = headdiv.pretrained.attach(model), arguments(model)
    layer = model.bert.encoder.layer[0]
    model.gradient_checkpointing_enable()
    original = layer._gradient_checkpointing_func
    model(**batch)
    assert layer._gradient_checkpointing_func is not original
    model.gradient_checkpointing_disable()
    model.gradient_checkpointing_enable()
    model(**batch)
    heads.detach()
    assert layer._gradient_checkpointing_func is not original
    assert type(layer._gradient_checkpointing_func) is type(original)


def test_checkpointing_by_hand_is_refused_where_too_little_would_be_seen():
    model = model_of("bert").train()
    headdiv.insert(model, {"name": "mixing"})
    layer = model.bert.encoder.layer[0]
    forward = layer.forward
    layer.forward = lambda *args, **options: checkpoint(forward, *args, use_reentrant=False, **options)
    loss = model(**arguments(model, labels=True)).loss
    with pytest.raises(ConfigError, match=r"run again in the backward pass.*gradient_checkpointing_enable"):
        loss.backward()
    del layer.forward
    whole = checkpoint(lambda: model(**arguments(model, labels=True)).loss, use_reentrant=False)
    whole.backward()
