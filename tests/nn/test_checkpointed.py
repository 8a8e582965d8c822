"""torch's own activation checkpointing around the drop-in: nothing is counted twice, and heads may be recorded."""

import copy

import pytest
import torch
from examples import EXAMPLES
from torch.utils.checkpoint import checkpoint

from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.attention import record_heads

D = 16
EVERY = [
    pytest.param(options, id=f"{name}-{number}")
    for name, found in EXAMPLES.items()
    if name != "combined"
    for number, options in enumerate(found)
]


def drop_in(options):
    torch.manual_seed(0)
    options = {**options, "m": 2} if options["name"] == "deacon" else options
    method = make_method(options)
    heads = 4 if options["name"] in ("differential", "moh") else 2
    return MultiheadAttention(D, heads, method, batch_first=True), method


def step(module, method, way, record=False):
    """Gradients, buffers and parameters after a step over two batches of two passes each; heads may be recorded."""
    torch.manual_seed(2)
    for seed in (3, 4):
        x = torch.randn(3, 6, D, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        padding = torch.arange(6) >= torch.tensor([6, 5, 4])[:, None]

        def run(x, padding=padding):
            return module(x, x, x, padding, need_weights=False)[0]

        with record_heads(module, weights=record) as records:
            again = [x, x.flip(0)]
            outputs = [run(x) if way is None else checkpoint(run, x, use_reentrant=way == "reentrant") for x in again]
        added = method.aux_loss(module, records, 0.5, 14) if record else None
        (torch.stack(outputs).square().sum() + (0 if added is None else added)).backward()
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    method.after_backward(module, 0.0)
    return gradients, dict(module.named_buffers()), [p.detach() for p in module.parameters()]


@pytest.mark.parametrize("way", ["reentrant", "not reentrant"])
@pytest.mark.parametrize("options", EVERY)
def test_a_batch_is_counted_once(options, way):
    module, method = drop_in(options)
    expected = step(copy.deepcopy(module), method, None)
    torch.testing.assert_close(step(module, method, way), expected)


@pytest.mark.parametrize("options", EVERY)
def test_heads_are_recorded_where_the_backward_pass_comes_later(options):
    module, method = drop_in(options)
    expected = step(copy.deepcopy(module), method, None, record=True)
    torch.testing.assert_close(step(module, method, "not reentrant", record=True), expected, rtol=0, atol=0)


def test_a_backward_pass_within_record_heads_records_nothing_again():
    module, _ = drop_in({"name": "baseline"})
    x = torch.randn(2, 3, D)
    with record_heads(module) as records:
        checkpoint(lambda x: module(x, x, x)[0], x, use_reentrant=False).sum().backward()
    assert len(records) == 1
