"""The drop-in module against torch.nn.MultiheadAttention, and inside torch's own layers."""

import re

import pytest
import torch
from examples import ARCHITECTURES, deacon
from torch import nn

from headdiv.methods import make_method
from headdiv.nn.drop_in import MultiheadAttention

D, H = 12, 3
BASELINE = {"name": "baseline"}


def pair(batch_first=True, bias=True):
    """Ours and torch's with equal weights, in float64."""
    torch.manual_seed(0)
    ours = MultiheadAttention(D, H, make_method(BASELINE), bias=bias, batch_first=batch_first).double()
    theirs = nn.MultiheadAttention(D, H, bias=bias, batch_first=batch_first).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
        theirs.in_proj_weight.copy_(ours.attention.in_projection.weight)
        theirs.out_proj.weight.copy_(ours.attention.output.weight)
        if bias:
            theirs.in_proj_bias.copy_(ours.attention.in_projection.bias)
            theirs.out_proj.bias.copy_(ours.attention.output.bias)
        else:
            ours.attention.output.bias.zero_()
    return ours, theirs


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_self_attention_with_padding_is_torchs(batch_first, bias, average):
    ours, theirs = pair(batch_first, bias)
    x = random(4, 6, D)
    padding = torch.zeros(4, 6, dtype=torch.bool)
    padding[1, 4:] = padding[2, :2] = padding[3, 3] = True  # behind, before and in the middle
    x_in = x if batch_first else x.transpose(0, 1)
    output, weights = ours(x_in, x_in, x_in, key_padding_mask=padding, average_attn_weights=average)
    expected, expected_weights = theirs(x_in, x_in, x_in, key_padding_mask=padding, average_attn_weights=average)
    if not batch_first:
        output, expected = output.transpose(0, 1), expected.transpose(0, 1)
    torch.testing.assert_close(output[~padding], expected[~padding])
    assert (output[padding] == 0).all()
    line = weights if average else weights.transpose(1, 2)
    expected_line = expected_weights if average else expected_weights.transpose(1, 2)
    torch.testing.assert_close(line[~padding], expected_line[~padding])


def test_attention_to_a_memory_is_torchs():
    ours, theirs = pair()
    x, memory = random(4, 5, D), random(4, 7, D) + 1
    padding = torch.arange(7) >= torch.tensor([7, 3, 1, 5])[:, None]
    output, weights = ours(x, memory, memory, key_padding_mask=padding)
    expected, expected_weights = theirs(x, memory, memory, key_padding_mask=padding)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)
    without, none = ours(x, memory, memory, key_padding_mask=padding, need_weights=False)
    torch.testing.assert_close(without, expected)
    assert none is None


@pytest.mark.parametrize("kind", ["bool", "float", "per head"])
def test_masks_are_torchs(kind):
    ours, theirs = pair()
    x = random(2, 5, D)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    if kind == "float":
        mask = torch.zeros(5, 5, dtype=torch.float64).masked_fill(mask, -torch.inf)
    if kind == "per head":
        mask = mask.expand(2 * H, 5, 5).clone()
        mask[1, 4, 0] = True
    torch.testing.assert_close(ours(x, x, x, attn_mask=mask)[0], theirs(x, x, x, attn_mask=mask)[0])
    if kind != "per head":
        torch.testing.assert_close(ours(x, x, x, is_causal=True)[0], theirs(x, x, x, attn_mask=mask)[0])


@pytest.mark.parametrize("options", [BASELINE, *(deacon(name, gha_steps=5) for name in ARCHITECTURES)], ids=str)
def test_it_trains_inside_torchs_encoder(options):
    torch.manual_seed(1)
    method = make_method(options)
    layer = nn.TransformerEncoderLayer(D, H, 20, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for each in model.layers:
        each.self_attn = MultiheadAttention(D, H, method, batch_first=True)
    own = {id(parameter) for parameter in method.own_parameters(model)}
    assert len(own) == (0 if options is BASELINE else 2)
    optimiser = torch.optim.AdamW((p for p in model.parameters() if id(p) not in own), lr=0.01)
    x, padding = random(5, 6, D).float(), torch.arange(6) >= torch.tensor([6, 5, 4, 3, 2])[:, None]
    target, losses = x.flip(2), []
    for step in range(25):
        loss = (model(x, src_key_padding_mask=padding) - target)[~padding].square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        method.after_backward(model, step / 25)
        optimiser.step()
    assert losses[-1] < losses[0]
    model.eval()
    with torch.no_grad():  # torch's fast path must not go round the module
        once, again = model(x, src_key_padding_mask=padding), model(x, src_key_padding_mask=padding)
    assert torch.equal(once, again)
    x[padding] = 100.0
    with torch.no_grad():
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[~padding], once[~padding])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m, x: m(x, x, x.clone()),
            "key and value must be the same tensor: projections of one memory are shared",
        ),
        (lambda m, x: m(*[x[0]] * 3), "query must have three dimensions (a batch), found 2"),
        (lambda m, x: MultiheadAttention(10, 4, make_method(BASELINE)), "num_heads: 4 does not divide embed_dim = 10"),
    ],
)
def test_what_it_cannot_do_is_said(call, message):
    x = random(2, 3, D).float()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call(MultiheadAttention(D, H, make_method(BASELINE), batch_first=True), x)
