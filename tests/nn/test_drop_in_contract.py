"""The drop-in where a query sees no key, for every method; and in environments, for one method of each hook.

Compiled, exported and under activation checkpointing it computes what it does otherwise; nothing is counted
twice, and heads may be recorded.
"""

import copy

import pytest
import torch
from examples import every_method, of_attention
from torch.export import Dim
from torch.utils.checkpoint import checkpoint

from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.records import record_heads

D = 16
OF_EACH_HOOK = {  # what a method changes: an example
    "projections": {"name": "moa", "experts": 4, "k": 2},
    "heads": {"name": "drop-head", "start": 0.5},
    "before the output": {"name": "homeostasis", "attention": "kwta", "s_att": 0.5},
    "output stage": {"name": "deacon", "m": 2},
    "row by row": {"name": "mixing", "start": 0.0},
    "loss": {"name": "dpp", "term": "output"},
}


def of_each_hook(*but):
    chosen = [pytest.param(options, id=hook) for hook, options in OF_EACH_HOOK.items() if options["name"] not in but]
    return pytest.mark.parametrize("options", chosen)


def drop_in(options, training=False, **more):
    torch.manual_seed(0)
    options = {**options, "m": 2} if options["name"] == "deacon" else of_attention(options)
    return MultiheadAttention(D, 2, make_method(options), batch_first=True, **more).train(training)


def arguments(B, N):
    """Self-attention of B sentences of N, N − 1, … words."""
    x = torch.randn(B, N, D, generator=torch.Generator().manual_seed(3))
    return x, x, x, torch.arange(N) >= torch.arange(N, N - B, -1)[:, None]


LATER = torch.ones(6, 6, dtype=torch.bool).triu(0)  # strictly causal: the first word sees none
NOBODY = torch.tensor([[True] * 6, [False] * 6, [False] * 5 + [True]])  # of a memory, the first one is padding alone
LEFT = torch.arange(6) < torch.tensor([[3], [0], [6]])  # padding


def nearly_blind(module, masks):
    """Outputs, weights and records of a step with weights; outputs and gradients are as without and finite."""
    x, outputs = arguments(3, 6)[0].requires_grad_(), []
    for weights in (False, True):
        fresh = copy.deepcopy(module)
        torch.manual_seed(1)
        with record_heads(fresh, weights) as records:
            output, given = fresh(x, x, x, **masks, need_weights=weights)
        added = fresh.method.aux_loss(fresh, records, 0.5, 8) if weights else None
        (output.square().sum() + (0 if added is None else added)).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in [x, *fresh.parameters()])
        outputs.append(output)
    torch.testing.assert_close(*outputs)
    assert given.isfinite().all()
    heads = records[0].padded()
    blind = ~heads.weights.any(-1)  # (B, H, N)
    assert not heads.outputs[blind].any()
    return blind


@every_method("combined")
def test_where_a_query_sees_no_key_recording_changes_nothing_and_weights_are_0(options):
    """Neither the first word of any sentence, nor the first sentence."""
    module = drop_in(options, training=True, kind="cross")
    blind = nearly_blind(module, {"key_padding_mask": NOBODY, "attn_mask": LATER})
    assert blind[:, :, 0].all()
    assert blind[0].all()


@of_each_hook()
def test_queries_that_are_padding_in_front_change_nothing(options):
    nearly_blind(drop_in(options, training=True), {"key_padding_mask": LEFT, "is_causal": True})


@every_method("combined")
def test_of_padding_alone_zeros_stay_connected_and_nothing_is_learnt(options):
    """Otherwise the next step under DistributedDataParallel fails. Of an empty batch as well."""
    module = drop_in(options, training=True)
    before = copy.deepcopy(module.state_dict())
    for B in (0, 2):
        x, every = torch.randn(B, 4, D), torch.ones(B, 4, dtype=torch.bool)
        with record_heads(module) as records:
            output, weights = module(x, x, x, every)
        assert output.shape == (B, 4, D)
        assert weights.shape == (B, 4, 4)
        assert not output.any()
        assert not weights.any()
        added = module.method.aux_loss(module, records, 0.5, 8)
        assert added is None or added.isfinite()
        output.sum().backward()
        assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in module.parameters())
        module.method.after_backward(module, 0.5)
    for name, value in module.state_dict().items():
        assert not value.is_floating_point() or "rate" in name or torch.equal(value, before[name])  # a schedule


@pytest.mark.parametrize("environment", ["autocast", "half precision"])
@of_each_hook()
def test_in_half_precision_outputs_and_gradients_are_nearly_those_of_float32(options, environment):
    """Choices between nearly equal units may differ."""
    module, outputs = drop_in(options), []
    for narrow in (False, True):
        fresh, inputs = copy.deepcopy(module), arguments(3, 6)
        if narrow and environment == "half precision":
            fresh, inputs = fresh.bfloat16(), (*(x.bfloat16() for x in inputs[:3]), inputs[3])
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow and environment == "autocast"):
            output = fresh(*inputs, need_weights=False)[0]
        output.float().square().sum().backward()
        assert all(p.grad.isfinite().all() for p in fresh.parameters() if p.grad is not None)
        outputs.append(output.float())
    assert (outputs[1] - outputs[0]).norm() < 0.2 * outputs[0].norm()


@of_each_hook()
def test_on_the_meta_device_there_are_shapes(options):
    module = drop_in(options, training=True, device="meta")
    x = arguments(3, 6)[0].to("meta")
    output, weights = module(x, x, x)
    assert (output.shape, weights.shape) == ((3, 6, D), (3, 6, 6))
    output.sum().backward()


@pytest.mark.slow
@of_each_hook("moa")
def test_an_exported_module_takes_any_number_and_length_of_sentences(options):
    """Not of MoA: the number of rows that an expert serves depends on the data."""
    module, sizes = drop_in(options), {0: Dim("B", min=1, max=64), 1: Dim("N", min=1, max=64)}
    exported = torch.export.export(module, arguments(3, 6), dynamic_shapes=(sizes,) * 4).module()
    results = exported(*arguments(5, 9))
    torch.testing.assert_close(results, module(*arguments(5, 9)))


@pytest.mark.slow
@of_each_hook()
def test_training_with_padding_compiles_into_one_graph(options):
    module = drop_in(options, training=True)
    torch._dynamo.reset()
    runs = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        for variant in (torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager"), module):
            torch.manual_seed(1)
            output, weights = variant(*arguments(3, 6))
            (output.square().sum() + weights.square().sum()).backward()
            runs.append((output, weights, [p.grad for p in variant.parameters() if p.grad is not None]))
    torch.testing.assert_close(*runs)


# ---- activation checkpointing


def step(module, method, checkpointed):
    """Gradients, buffers and parameters after a step over two batches of two passes each, with heads recorded."""
    torch.manual_seed(2)
    for seed in (3, 4):
        x = torch.randn(3, 6, D, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        padding = torch.arange(6) >= torch.tensor([6, 5, 4])[:, None]

        def run(x, padding=padding):
            return module(x, x, x, padding, need_weights=False)[0]

        with record_heads(module) as records:
            inputs = [x, x.flip(0)]
            outputs = [checkpoint(run, x, use_reentrant=False) if checkpointed else run(x) for x in inputs]
        added = method.aux_loss(module, records, 0.5, 14)
        (torch.stack(outputs).square().sum() + (0 if added is None else added)).backward()
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    method.after_backward(module, 0.0)
    return gradients, dict(module.named_buffers()), [p.detach() for p in module.parameters()]


@of_each_hook()
def test_a_batch_is_counted_and_recorded_once(options):
    """Heads are recorded where the backward pass comes later: to the bit."""
    module = drop_in(options, training=True)
    expected = step(copy.deepcopy(module), module.method, False)
    torch.testing.assert_close(step(module, module.method, True), expected, rtol=0, atol=0)


def test_a_backward_pass_within_record_heads_records_nothing_again():
    module = drop_in({"name": "baseline"}, training=True)
    x = torch.randn(2, 3, D)
    with record_heads(module) as records:
        checkpoint(lambda x: module(x, x, x)[0], x, use_reentrant=False).sum().backward()
    assert len(records) == 1
