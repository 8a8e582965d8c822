"""Self-attention is told by what query and key are, not by which Python object holds them."""

import copy

import pytest
import torch
from examples import deacon
from torch import nn

from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention

D, H = 12, 3


def drop_in(kind="encoder", options=None, **more):
    torch.manual_seed(0)
    return MultiheadAttention(D, H, make_method(options or deacon("direct", 2, gha_steps=5)), kind=kind, **more)


def batch(B=3, N=6):
    x = torch.randn(N, B, D, generator=torch.Generator().manual_seed(3))
    return x, torch.arange(N) >= torch.arange(N, N - B, -1)[:, None]


def state(module, call):
    """Output, weights, gradients, running statistics, and the moments that DEACON moves by, after one pass."""
    output, weights = call(module)
    (output.square().sum() + weights.square().sum()).backward()
    stage = module.attention.output
    return output, weights, [p.grad for p in module.parameters()], dict(module.named_buffers()), stage.inputs.moments


def same_object(x, padding):
    return lambda module: module(x, x, x, padding)


def hooked(x, padding):
    def call(module):
        module.register_full_backward_hook(lambda *_: None)
        return module(x.requires_grad_(), x, x, padding)

    return call


def viewed(x, padding):
    lines = x.transpose(0, 1).contiguous()
    return lambda module: module(*(lines.transpose(0, 1) for _ in range(3)), padding)


def copied(x, padding):
    """As code that moves or casts every argument by itself."""

    def call(module):
        module.register_forward_pre_hook(lambda _, args: tuple(one.clone() for one in args))
        return module(x, x, x, padding)

    return call


@pytest.mark.parametrize("way", [hooked, viewed, copied])
def test_a_hook_a_view_and_a_copy_of_the_same_tensor_are_self_attention(way):
    module = drop_in()
    expected = state(copy.deepcopy(module), same_object(*batch()))
    torch.testing.assert_close(state(module, way(*batch())), expected)
    x, _ = batch()
    if way is viewed:
        causal = drop_in().eval()
        rows = x.transpose(0, 1).contiguous()
        found = causal(*(rows.transpose(0, 1) for _ in range(3)), is_causal=True)
        torch.testing.assert_close(found, causal(x, x, x, is_causal=True))


def test_a_copy_that_is_not_a_number_is_one_all_the_same():
    x, padding = batch()
    x[0, 0] = torch.nan
    module = drop_in(options={"name": "baseline"})
    found, expected = module(x.clone(), x.clone(), x, padding), module(x, x, x, padding)
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_cross_attention_of_a_memory_to_itself_is_said_by_its_kind():
    """Its padding is of keys alone, as in torch."""
    x, padding = batch()
    theirs = nn.MultiheadAttention(D, H)
    ours = drop_in("cross", {"name": "baseline"})
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x, x, x, padding), theirs(x, x, x, padding))


def test_what_cannot_be_told_under_a_trace_is_refused():
    x, padding = batch()
    module = drop_in(options={"name": "baseline"})
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager")
    with pytest.raises(ValueError, match=r"query and key are two tensors of one shape.* kind='cross'"):
        compiled(x.clone(), x, x, padding)
    cross = torch.compile(drop_in("cross", {"name": "baseline"}), backend="eager")
    torch.testing.assert_close(
        cross(x.clone(), x, x, padding), drop_in("cross", {"name": "baseline"})(x, x, x, padding)
    )


GIVEN = {  # query, key and value of one tensor
    "the same": lambda x: (x, x, x),
    "views": lambda x: tuple(x.transpose(0, 1).transpose(0, 1) for _ in range(3)),
    "copies": lambda x: (x, x.clone(), x * 1),
    "scaled gradients": lambda x: (x, 0.5 * x + 0.5 * x.detach(), x),
    "query detached": lambda x: (x.detach(), x, x),
    "key and value detached": lambda x: (x, x.detach(), x.detach()),
    "value detached": lambda x: (x, x, x.detach()),
    "another leaf": lambda x: (x, x.detach().clone().requires_grad_(), x),
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("given", GIVEN)
def test_equal_inputs_have_the_gradients_of_torchs_attention_each_its_own(given, padded):
    theirs = nn.MultiheadAttention(D, H)
    ours = drop_in(options={"name": "baseline"})
    ours.load_state_dict(theirs.state_dict())
    rows, padding = batch()
    found = []
    for module in (theirs, ours):
        x = rows.clone().requires_grad_()
        inputs = GIVEN[given](x)
        output, _ = module(*inputs, padding if padded else None)
        output[~padding.T].square().sum().backward()
        found.append([x.grad, *(each.grad for each in inputs if each.is_leaf and each is not x)])
    torch.testing.assert_close(found[1], found[0])


def test_a_method_of_one_projection_refuses_values_whose_gradient_it_would_give_to_the_keys():
    x, _ = batch()
    x.requires_grad_()
    module = drop_in(options={"name": "moa", "experts": 4, "k": 2})
    module(x, x, x.transpose(0, 1).transpose(0, 1))
    with pytest.raises(ValueError, match="key and value must be the same tensor"):
        module(x, x, x.detach())
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(x, x, x.detach()), module(x, x, x))
