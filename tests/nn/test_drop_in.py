"""The drop-in module against torch.nn.MultiheadAttention, and inside torch's own layers."""

import copy
import math
import re
from dataclasses import replace

import pytest
import torch
from examples import deacon
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headdiv.analysis.masking import heads_of
from headdiv.core.errors import ConfigError, DataError, TrainingError
from headdiv.methods import make_method
from headdiv.methods.base import Method
from headdiv.methods.deacon import pca_layers
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.swaps import swap_heads
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.records import record_heads

D, H = 12, 3
BASELINE = {"name": "baseline"}
DPP = {"name": "dpp", "term": "output"}


def drop_in(options=BASELINE, **more):
    torch.manual_seed(0)
    return MultiheadAttention(D, H, make_method(options), batch_first=True, **more)


def pair(**options):
    """Ours and torch's with equal weights, in float64, all of them random."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, dtype=torch.float64, **options)
    for parameter in theirs.parameters():  # biases too, which start at 0
        nn.init.normal_(parameter)
    ours = MultiheadAttention(D, H, make_method(BASELINE), dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def random(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padding_of(*lengths):
    return torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]


def encoder(options, replaced):
    """torch's encoder of two layers, in its default form where it can be, with the drop-in in some, and the method."""
    torch.manual_seed(1)
    method = make_method(options)
    layer = nn.TransformerEncoderLayer(D, 2, 20, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=replaced != [1])
    for each in replaced:
        new = MultiheadAttention(D, 2, method, dropout=0.1, batch_first=True, layer=each)
        if options is BASELINE:
            new.load_state_dict(model.layers[each].self_attn.state_dict())
        model.layers[each].self_attn = new
    return model, method


# ---- side by side


@settings(max_examples=50)
@given(st.data())
def test_over_random_arguments_it_is_torchs(data):
    """Outputs, weights, gradients of inputs and masks. Padded queries, which we leave out, are not compared."""
    draw, flag = data.draw, st.booleans()
    B, N, own, first = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(flag), draw(flag)
    S = N if own else draw(st.integers(1, 4))
    ours, theirs = pair(bias=draw(flag), batch_first=first)
    x, memory = random(B, N, D).requires_grad_(), random(B, S, D, seed=4).requires_grad_()
    options = {"need_weights": draw(flag), "average_attn_weights": draw(flag)}
    learned, real = [], torch.ones(B, S, dtype=torch.bool)
    if draw(flag):
        real = ~torch.tensor(draw(st.lists(flag, min_size=B * S, max_size=B * S))).view(B, S)
        real[:, draw(st.integers(0, S - 1))] = True  # fully masked rows have a test of their own
        mask = ~real
        if draw(flag):
            mask = (random(B, S, seed=5)).masked_fill(mask, -math.inf).requires_grad_()
            learned.append(mask)
        options["key_padding_mask"] = mask
    if draw(flag):
        shape = (B * H, N, S) if draw(flag) else (N, S)
        mask = random(*shape, seed=6).requires_grad_()
        learned.append(mask)
        if draw(flag) and real.all():
            learned.pop()
            mask = random(*shape, seed=7) > 0.5
            mask[..., 0] = False
        options["attn_mask"] = mask
    target, results = random(B, N, D, seed=8), []
    target[~real if own else torch.zeros(B, N, dtype=torch.bool)] = 0
    for module in (ours, theirs):
        inputs = (x, x, x) if own else (x, memory, memory)
        if not first:
            moved = {id(t): t.transpose(0, 1) for t in inputs}
            inputs = [moved[id(t)] for t in inputs]
        output, weights = module(*inputs, **options)
        output = output if first else output.transpose(0, 1)
        assert module is theirs or not own or not output[~real].any()
        if own and weights is not None:
            queries = real[:, :, None] if options["average_attn_weights"] else real[:, None, :, None]
            weights = weights * queries
        loss = (output * target).sum() + (0 if weights is None else weights.square().sum())
        grads = torch.autograd.grad(loss, [x, *learned, *([] if own else [memory])])
        results.append((output[real] if own else output, weights, grads))
    torch.testing.assert_close(*results)


# ---- inside torch's layers


@pytest.mark.parametrize("replaced", [[0], [1], [0, 1]])
@pytest.mark.parametrize("grad", [False, True])
def test_in_the_default_encoder_evaluation_with_padding_is_torchs(replaced, grad):
    ours, theirs = encoder(BASELINE, replaced)[0].eval(), encoder(BASELINE, [])[0].eval()
    x, padding = random(5, 6, D).float(), padding_of(6, 5, 4, 3, 2)
    with torch.set_grad_enabled(grad):
        results = [model(x, src_key_padding_mask=padding)[~padding] for model in (ours, theirs)]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("options", [BASELINE, deacon("direct", m=2, gha_steps=5)], ids=str)
def test_it_trains_inside_torchs_encoder(options):
    model, method = encoder(options, [0, 1])
    own = {id(parameter) for parameter in method.own_parameters(model)}
    assert len(own) == (0 if options is BASELINE else 2)
    optimiser = torch.optim.AdamW((p for p in model.parameters() if id(p) not in own), lr=0.01)
    x, padding = random(5, 6, D).float(), padding_of(6, 5, 4, 3, 2)
    target, losses = x.flip(2), []
    for step in range(25):
        loss = (model(x, src_key_padding_mask=padding) - target)[~padding].square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        method.after_backward(model, step / 25)
        optimiser.step()
    assert sum(losses[-5:]) < sum(losses[:5])
    model.eval()
    with torch.no_grad():  # torch's fast path must not go round the module
        once, again = model(x, src_key_padding_mask=padding), model(x, src_key_padding_mask=padding)
    assert torch.equal(once, again)
    x[padding] = 100.0
    with torch.no_grad():
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[~padding], once[~padding])


# ---- records


def test_need_weights_leaves_the_record_of_an_outer_record_heads():
    modules = nn.ModuleList([drop_in(DPP), drop_in(DPP), drop_in(DPP)])
    x = random(2, 4, D).float()
    for weights in (True, False):
        with record_heads(modules, weights=weights) as records:
            for module, need in zip(modules, (True, False, True), strict=True):
                found = module(x, x, x, need_weights=need)[1]
                assert (found is not None) == need
        assert len(records) == 3
        assert all((record.weights is not None) == weights for record in records)
    assert all(not module.attention.recorders for module in modules)


# ---- masks


@pytest.mark.parametrize("heads", ["halved", "kept"])
def test_masks_of_each_head_are_those_of_differential_heads(heads):
    torch.manual_seed(1)
    module = MultiheadAttention(8, 2, make_method({"name": "differential", "heads": heads}), batch_first=True)
    x, shared = torch.randn(2, 3, 8), torch.ones(3, 3, dtype=torch.bool).triu(1)
    each = shared.expand(2 * module.attention.head_slots, 3, 3)
    torch.testing.assert_close(module(x, x, x, attn_mask=each), module(x, x, x, attn_mask=shared))


def test_without_masks_none_is_written():
    module, x = drop_in(), random(1, 500, D).float()
    with record_heads(module, weights=False) as records:
        module(x, x, x, need_weights=False)
    assert records[0].layout.mask.untyped_storage().nbytes() <= 8


def test_is_causal_is_a_mask_in_self_attention():
    ours, theirs = pair(batch_first=True)
    x = random(2, 4, D)
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected = theirs(x, x, x, attn_mask=later)
    torch.testing.assert_close(ours(x, x, x, is_causal=True), expected)
    torch.testing.assert_close(ours(x, x, x, is_causal=True, attn_mask=later), expected)


@pytest.mark.parametrize("need", [True, False])
def test_a_fully_masked_row_is_what_torchs_fused_function_gives(need):
    """The output's bias; where weights are wanted too, and are 0. torch's own module then gives NaN."""
    ours, theirs = pair(batch_first=True)
    x, mask = random(2, 4, D), torch.zeros(4, 4, dtype=torch.bool)
    mask[1] = True
    found, weights = ours(x, x, x, attn_mask=mask, need_weights=need)
    torch.testing.assert_close(found, theirs(x, x, x, attn_mask=mask, need_weights=False)[0])
    assert not need or torch.equal(weights.sum(2).round(), (~mask).any(1).expand(2, 4).double())


class OwnSoftmax(MultiHeadAttention):
    """Weights from the written-out mask, as a method from elsewhere may compute them."""

    def weigh_values(self, q, k, v, layout):
        weights = torch.softmax(q @ k.mT + layout.written_out(), dim=-1)
        return weights @ v, weights


class OwnAttention(Method):
    def attention(self, spec):
        return OwnSoftmax(spec)


@pytest.mark.parametrize("method", [OwnAttention(), BASELINE], ids=["own", "baseline"])
def test_what_padded_queries_may_see_stays_finite_whoever_computes_weights(method):
    """With padding on the left and a causal mask they see nothing; what they see has no effect."""
    module = MultiheadAttention(D, H, method, batch_first=True)
    x, padding = random(2, 4, D).float().requires_grad_(), torch.arange(4) < torch.tensor([[2], [0]])
    output, weights = module(x, x, x, padding, need_weights=True, is_causal=True)
    (output.square().sum() + weights.square().sum()).backward()
    assert all(value.isfinite().all() for value in (output, weights, x.grad))
    assert all(p.grad.isfinite().all() for p in module.parameters())
    assert not x.grad[padding].any()


# ---- arguments and state


def test_attention_dropout_is_torchs():
    """The same weights are dropped, from the same draws."""
    ours, theirs = pair(dropout=0.4, batch_first=True)
    x = random(2, 4, D)
    for need in (True, False):
        results = []
        for module in (ours, theirs):
            torch.manual_seed(6)
            results.append(module(x, x, x, need_weights=need))
        torch.testing.assert_close(*results)
    ours.eval()
    assert torch.equal(ours(x, x, x)[0], ours(x, x, x)[0])


@pytest.mark.parametrize("name", ["baseline", "talking-heads", "differential"])
def test_records_have_the_weights_before_dropout_and_what_is_returned_those_after_it(name):
    torch.manual_seed(0)
    module, x = MultiheadAttention(16, 4, name, dropout=0.5, batch_first=True), torch.randn(2, 5, 16)
    with record_heads(module) as records:
        dropped = module(x, x, x, average_attn_weights=False)[1]
        kept = module.eval()(x, x, x, average_attn_weights=False)[1]
    assert torch.equal(records[0].weights, kept)
    assert torch.equal(records[1].weights, kept)
    if name != "differential":  # whose weights are differences of two that are dropped apart
        torch.testing.assert_close(dropped[dropped != 0], 2 * kept[dropped != 0])
    assert 0.1 < (dropped == 0).float().mean() < 0.7


def test_losses_on_weights_are_of_those_before_dropout():
    torch.manual_seed(0)
    x = torch.randn(3, 6, D)
    for options in (DPP, {"name": "disagreement", "term": "position"}):
        module, found = drop_in(options, dropout=0.5), []
        for training in (True, False):
            with record_heads(module.train(training)) as records:
                module(x, x, x)
            found.append(module.method.differences([replace(records[0], outputs=torch.ones(18, H, 4))]))
        assert torch.equal(*found)


def test_ordinary_heads_start_as_torchs_do():
    torch.manual_seed(0)
    theirs, ours = nn.MultiheadAttention(96, 8), MultiheadAttention(96, 8, make_method(BASELINE)).attention
    assert not ours.in_projection.bias.any()
    assert not ours.output.bias.any()
    for one, other in (
        (theirs.in_proj_weight, ours.in_projection.weight),
        (theirs.out_proj.weight, ours.output.weight),
    ):
        assert one.abs().max().item() == pytest.approx(other.abs().max().item(), rel=0.01)  # uniform, with one bound


def test_torchs_arguments_are_there():
    for more in ({"kdim": D, "vdim": None}, {"kdim": 5}):
        module = drop_in(dtype=torch.bfloat16, device="meta", **more)
        assert {(p.dtype, p.device.type) for p in module.parameters()} == {(torch.bfloat16, "meta")}


@pytest.mark.parametrize("bias", [True, False])
def test_the_state_dict_of_torchs_module_loads(bias):
    theirs = nn.Sequential(nn.MultiheadAttention(D, H, bias=bias))
    ours = nn.Sequential(MultiheadAttention(D, H, make_method(BASELINE), bias=bias))
    ours.load_state_dict(theirs.state_dict())
    x = random(3, 2, D).float()
    torch.testing.assert_close(ours[0](x, x, x), theirs[0](x, x, x))
    again = copy.deepcopy(ours)
    again.load_state_dict(ours.state_dict())  # its own names, too
    with pytest.raises(RuntimeError, match=r"size mismatch|Unexpected key"):
        nn.Sequential(drop_in(deacon("direct"))).load_state_dict(theirs.state_dict())


@pytest.mark.parametrize("options", [BASELINE, {"name": "moa", "experts": 4, "k": 2}], ids=str)
@pytest.mark.parametrize("average", [True, False])
def test_an_empty_batch_and_one_of_padding_alone_give_zeros(options, average):
    module, empty, x = drop_in(options), torch.zeros(0, 4, D), random(2, 4, D).float()
    everything = torch.ones(2, 4, dtype=torch.bool)
    assert module(empty, empty, empty)[0].shape == (0, 4, D)
    assert module(empty, empty, empty, torch.zeros(0, 4, dtype=torch.bool))[0].shape == (0, 4, D)
    output, weights = module(x, x, x, everything, average_attn_weights=average)
    assert not output.any()
    assert not weights.any()
    assert weights.shape == module(x, x, x, average_attn_weights=average)[1].shape
    memory = x.flip(1)
    output, weights = module(x, memory, memory, everything)
    assert output.isfinite().all()
    assert not weights.any()


MADE_WITH = [  # arguments of the constructor that are refused, and the key word
    ({"method": 0.1}, ConfigError, "one object for"),
    ({"method": "deacn"}, ConfigError, "did you mean 'deacon'"),
    ({"method": {"name": "moh", "shared": 1, "k": 5}}, ValueError, f"more than the model's {H}"),
    ({"method": {"name": "homeostasis"}}, ValueError, "option `attention` without"),
    ({"method": {"name": "homeostasis", "block": "smart"}, "kind": "cross"}, ValueError, "outputs of layers too"),
    ({"method": {"name": "moa", "experts": 4, "k": 2}, "kdim": 5}, ValueError, "kdim, vdim: expected None"),
    ({"method": "rotation", "vdim": 5}, ValueError, "kdim, vdim: expected None"),
    ({"add_bias_kv": True}, ValueError, "add_bias_kv"),
    ({"add_zero_attn": True}, ValueError, "add_zero_attn"),
    ({"num_heads": 5}, ValueError, "divisible"),
    ({"num_heads": 0}, ValueError, "greater than 0"),
    ({"dropout": 2}, ValueError, "between 0 and 1"),
    ({"kind": "bogus"}, ValueError, "'encoder', 'decoder', 'cross'"),
    ({"layer": -1}, ValueError, "0 or greater"),
]


@pytest.mark.parametrize(("options", "error", "word"), MADE_WITH, ids=str)
def test_a_module_that_cannot_be_is_refused(options, error, word):
    with pytest.raises(error, match=re.escape(word)):
        MultiheadAttention(**{"embed_dim": D, "num_heads": H, **options})


X = torch.ones(2, 3, D)
CALLED_WITH = [  # arguments of a forward pass that are refused, and the key word
    ([X, X, X[:, 1:]], {}, "key and value must have one shape"),
    ([X, X[0], X[0]], {}, "key must have three dimensions"),
    ([X[..., 1:]] * 3, {}, f"embed_dim = {D}"),
    ([X, X[1:], X[1:]], {}, "one batch size"),
    ([torch.nested.nested_tensor([*X])] * 3, {}, "nested tensor"),
    ([X] * 3, {"key_padding_mask": torch.zeros(2, 3, dtype=torch.int64)}, "torch.int64"),
    ([X] * 3, {"key_padding_mask": torch.zeros(3, 2, dtype=torch.bool)}, "(2, 3), found (3, 2)"),
    ([X] * 3, {"attn_mask": torch.zeros(3, 3, dtype=torch.uint8)}, "torch.uint8"),
    ([X] * 3, {"attn_mask": torch.zeros(2, 3, 3)}, "(3, 3) or (6, 3, 3), found (2, 3, 3)"),
    ([2 * X, X, X], {"is_causal": True}, "is_causal needs attn_mask"),
]


@pytest.mark.parametrize(("inputs", "options", "word"), CALLED_WITH, ids=[word for *_, word in CALLED_WITH])
def test_what_does_not_fit_is_refused(inputs, options, word):
    with pytest.raises(ValueError, match=re.escape(word)):
        drop_in()(*inputs, **options)


# ---- DEACON


def test_after_backward_without_gradients_says_so():
    method, module, x = make_method(deacon("direct", 2)), drop_in(deacon("direct", 2)), random(2, 4, D).float()
    module(x, x, x)
    with pytest.raises(TrainingError, match=r"expected after_backward after loss\.backward"):
        method.after_backward(module, 0.0)
    module = drop_in(deacon("direct", 2)).eval()
    module(x, x, x)[0].sum().backward()
    with pytest.raises(TrainingError, match=r"encoder 1: .* training mode, found none; call model\.train\(\)"):
        method.after_backward(module, 0.0)


def test_without_pca_layers_deacon_says_so():
    with pytest.raises(TrainingError, match="the model has no PCA layer"):
        make_method(deacon("direct", 2, update_every=2)).after_backward(drop_in(), 0.0)


# ---- places


def test_modules_at_one_place_are_refused_where_places_are_names():
    method = make_method({"name": "mixing"})
    model = nn.ModuleList(MultiheadAttention(D, H, method, layer=0) for _ in range(2))
    for ask in (heads_of, method.artifacts, lambda model: swap_heads(model, [])):
        with pytest.raises(DataError, match=r"two attention modules are 'encoder 1'; expected for each a `layer`"):
            ask(model)


def test_modules_of_four_and_eight_heads_move_in_one_model():
    method = make_method(deacon("direct", 2))
    model = nn.ModuleList(MultiheadAttention(16, heads, method, batch_first=True) for heads in (4, 8, 4, 8))
    x = torch.randn(3, 5, 16)
    sum(module(x, x, x)[0].square().sum() for module in model[:3]).backward()  # one is left out
    before = [layer.w.detach().clone() for layer in pca_layers(model).values()]
    method.after_backward(model, 0.0)
    lengths = [(layer.w - w).norm().item() for layer, w in zip(pca_layers(model).values(), before, strict=True)]
    assert lengths == pytest.approx([0.2, 0.2, 0.2, 0.0], rel=1e-4)
