"""The drop-in under torch.compile, torch.export and torch.func computes what it does otherwise."""

import copy

import pytest
import torch
from examples import EXAMPLES
from torch.export import Dim
from torch.func import functional_call, grad, vmap

from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention

D = 16
EVERY = [
    pytest.param(options, id=f"{name}-{number}")
    for name, found in EXAMPLES.items()
    if name != "combined"
    for number, options in enumerate(found)
]
BATCH_STATISTICS = ("deacon", "head-scale")  # in training: buffers change, which torch.func refuses


def drop_in(options, training=False):
    torch.manual_seed(0)
    heads = 4 if options["name"] in ("differential", "moh") else 2
    options = {**options, "m": 2} if options["name"] == "deacon" else options
    return MultiheadAttention(D, heads, make_method(options), batch_first=True).train(training)


def arguments(B, N):
    """Self-attention of B sentences of N, N − 1, … words."""
    x = torch.randn(B, N, D, generator=torch.Generator().manual_seed(3))
    return x, x, x, torch.arange(N) >= torch.arange(N, N - B, -1)[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("options", [each for each in EVERY if not each.id.startswith("moa")])
def test_an_exported_module_takes_any_number_and_length_of_sentences(options):
    """Not of MoA: the number of rows that an expert serves depends on the data."""
    module, sizes = drop_in(options), {0: Dim("B", min=1, max=64), 1: Dim("N", min=1, max=64)}
    exported = torch.export.export(module, arguments(3, 6), dynamic_shapes=(sizes,) * 4).module()
    found = exported(*arguments(5, 9))
    torch.testing.assert_close(found, module(*arguments(5, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("options", EVERY)
def test_training_with_padding_compiles_into_one_graph(options):
    module = drop_in(options, training=True)
    torch._dynamo.reset()
    runs = []
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        for each in (torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager"), module):
            torch.manual_seed(1)
            output, weights = each(*arguments(3, 6))
            (output.square().sum() + weights.square().sum()).backward()
            runs.append((output, weights, [p.grad for p in each.parameters() if p.grad is not None]))
    torch.testing.assert_close(*runs)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(("training", "need_weights"), [(False, True), (False, False), (True, False)])
@pytest.mark.parametrize("options", EVERY)
def test_gradients_of_torch_func_are_autograds(options, need_weights, training):
    if training and options["name"] in BATCH_STATISTICS:
        pytest.skip("statistics of a batch are kept in buffers")
    module = drop_in(options, training)
    x, _, _, padding = arguments(3, 6)
    parameters = dict(module.named_parameters())

    def loss(parameters, x, padding):
        output, weights = functional_call(module, parameters, (x, x, x, padding), {"need_weights": need_weights})
        return output.square().sum() + (0 if weights is None else weights.square().sum())

    def expected(x, padding):
        found = torch.autograd.grad(loss(parameters, x, padding), list(parameters.values()), allow_unused=True)
        return {name: one for name, one in zip(parameters, found, strict=True) if one is not None}

    def compare(found, expected):
        torch.testing.assert_close({name: found[name] for name in expected}, expected)

    torch.manual_seed(1)
    found = grad(loss)(parameters, x, padding)
    torch.manual_seed(1)
    compare(found, expected(x, padding))
    if training or options["name"] == "moa":
        return
    each = vmap(grad(loss), (None, 0, 0))(parameters, x[:, None], padding[:, None])
    for i in range(len(x)):
        compare({name: values[i] for name, values in each.items()}, expected(x[i : i + 1], padding[i : i + 1]))
