"""Linear layers with rounded rows are torch's, in few shapes."""

import pytest
import torch
from examples import some_pairs, tiny
from small_model import make_batch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from headdiv.nn.linear import Linear

PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.mm.out, torch.ops.aten.addmm.default}


class Shapes(TorchDispatchMode):
    """Collects the shapes of matrix products."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in PRODUCTS:
            self.shapes += [tuple(x.shape) for x in args if isinstance(x, torch.Tensor) and x.dim() == 2]
        return func(*args, **kwargs or {})


def pair(bias=True):
    """A layer and torch's, with the same parameters."""
    torch.manual_seed(0)
    ours, theirs = Linear(24, 40, bias=bias), nn.Linear(24, 40, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def results(module, x, dtype=torch.bfloat16):
    """Output and gradients, of a sum that weighs each element differently."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        y = module(x)
    weight = torch.linspace(-1, 1, y.numel()).view(y.shape)
    return [y.detach(), *torch.autograd.grad((y * weight).sum(), (x, *module.parameters()))]


@pytest.mark.parametrize("shape", [(1,), (64,), (65,), (2, 3, 11), (0,)], ids=str)
@pytest.mark.parametrize(("bias", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_outputs_and_gradients_are_those_of_torch(shape, bias, dtype):
    x = torch.randn(*shape, 24)
    for ours, theirs in zip(*(results(module, x, dtype) for module in pair(bias)), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_an_output_may_be_changed_in_place():
    x = torch.randn(70, 24)
    ours, theirs = (results(nn.Sequential(module, nn.ReLU(inplace=True)), x) for module in pair())
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_without_autocast_it_is_torchs_to_the_bit():
    x = torch.randn(70, 24)
    torch.testing.assert_close(*(results(module, x, dtype=None) for module in pair()), rtol=0, atol=0)


def test_the_compiler_sees_torchs_layer():
    (ours, theirs), x = pair(), torch.randn(7, 24)
    compiled = torch.compile(ours, backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x), theirs(x))


def test_steps_with_other_numbers_of_rows_have_the_same_products():
    rows, products = [], []
    for seed in (1, 2):
        (model, _), batch = tiny("baseline", torch.float32), make_batch(some_pairs(seed=seed), range(6))
        with Shapes() as shapes:
            with torch.autocast("cpu", torch.bfloat16):
                hidden = model(batch)
            hidden.float().sum().backward()
        rows.append((len(batch.source), len(batch.target_in)))
        products.append(shapes.shapes)
    assert rows[0] != rows[1]
    assert products[0]
    assert products[0] == products[1]


def test_float64_stays_as_it_is_in_autocast():
    layer, x = Linear(3, 2, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(x)
    assert output.dtype == torch.float64
    assert torch.equal(output, F.linear(x, layer.weight, layer.bias))
