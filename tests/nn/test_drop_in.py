"""The drop-in against torch.nn.MultiheadAttention: arguments, masks, states, and inside torch's own layers."""

import copy
import itertools
import math
import re

import pytest
import torch
from examples import deacon
from torch import nn

from headdiv.core.errors import ConfigError
from headdiv.methods import make_method
from headdiv.methods.base import Method
from headdiv.methods.deacon import Deacon
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.projections import NAMES
from headdiv.nn.records import record_heads

B, N, S, D, H = 2, 3, 4, 12, 3
BASELINE = {"name": "baseline"}
MOA = {"name": "moa", "experts": 4, "k": 2}
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
    ours = MultiheadAttention(D, H, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def random(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padding_of(*lengths):
    return torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]


# ---- side by side


def inputs_of(form, batched, first, kdim, vdim):
    """Query, key and value, with gradients, as they are given."""
    length = N if form in ("self", "values apart") else S
    q, k, v = (random(B, n, d, seed=i) for i, (n, d) in enumerate([(N, D), (length, kdim), (length, vdim)]))
    q, k, v = (x[0] if not batched else x if first else x.transpose(0, 1) for x in (q, k, v))
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    k = q if form in ("self", "values apart") else k
    return q, k, k if form in ("self", "memory") else v


def masks_of(form, batched, padding, mask):
    """Of keys, as booleans or as addends of which -inf excludes; of attention, one for all heads or one for each."""
    n = N if form in ("self", "values apart") else S
    masks = {}
    if padding:
        excluded = padding_of(n, n - 1) if batched else padding_of(n, n - 1)[1]
        added = random(*excluded.shape, seed=4).masked_fill(excluded, -math.inf).requires_grad_()
        masks["key_padding_mask"] = excluded if padding == "excluded" else added
    if mask == "shared":
        masks["attn_mask"] = random(N, n, seed=5).requires_grad_()
    if mask == "excluded" and padding != "added":
        masks["attn_mask"] = torch.eye(N, n) == 1
    if mask == "each":
        by_head = random(B * H if batched else H, N, n, seed=6).masked_fill(torch.eye(N, n) == 1, -math.inf)
        masks["attn_mask"] = by_head.requires_grad_()
    return masks


def combinations():
    """Of all arguments' values: every 31st that there is, among which any two values meet."""
    flag = (False, True)
    grid = itertools.product(
        flag, (None, 5), (None, 3), ("self", "values apart", "memory", "two memories"), flag, flag, flag,
        (None, "excluded", "added"), (None, "shared", "excluded", "each"), flag,
    )  # fmt: skip
    valid = []
    for bias, kdim, vdim, form, batched, first, need, padding, mask, average in grid:
        wide = {"self": kdim or vdim, "values apart": kdim, "memory": (kdim or D) != (vdim or D)}
        if not (wide.get(form) or not (need or average) or not (batched or first)):
            valid.append((bias, kdim, vdim, form, batched, first, need, padding, mask, average))
    return valid[::31]


def test_combinations_of_all_arguments_are_torchs():
    """Output, weights and all gradients; padded queries of self-attention, which we leave out, are not compared."""
    for bias, kdim, vdim, form, batched, first, need, padding, mask, average in combinations():
        ours, theirs = pair(batch_first=first, bias=bias, kdim=kdim, vdim=vdim)
        inputs, results = inputs_of(form, batched, first, kdim or D, vdim or D), []
        masks = masks_of(form, batched, padding, mask)
        real = torch.ones(B, N, dtype=torch.bool)
        if padding and form in ("self", "values apart"):
            real = ~padding_of(N, N - 1)
        real = real if batched else real[1]
        parameters = [name for name, _ in theirs.named_parameters()]
        for module, names in ((ours, [f"attention.{NAMES[name]}" for name in parameters]), (theirs, parameters)):
            output, weights = module(*inputs, need_weights=need, average_attn_weights=average, **masks)
            output = output.transpose(0, 1) if batched and not first else output
            loss = (output[real] * random(*output[real].shape, seed=8)).sum()
            if weights is not None:
                weights = weights if average else weights.transpose(-3, -2)  # queries follow the batch
                weights = weights[real]
                loss = loss + (weights * random(*weights.shape, seed=9)).sum()
            leaves = [*{id(x): x for x in inputs}.values(), *(x for x in masks.values() if x.requires_grad)]
            leaves += [module.get_parameter(name) for name in names]
            results.append((output[real], weights, torch.autograd.grad(loss, leaves, materialize_grads=True)))
        case = (bias, kdim, vdim, form, batched, first, need, padding, mask, average)
        torch.testing.assert_close(*results, msg=lambda text, case=case: f"{case}: {text}")


GIVEN = {  # query, key and value of one tensor
    "the same": lambda x: (x, x, x),
    "views": lambda x: tuple(x.transpose(0, 1).transpose(0, 1) for _ in range(3)),
    "copies": lambda x: (x, x.clone(), x * 1),
    "scaled gradients": lambda x: (x, 0.5 * x + 0.5 * x.detach(), x),
    "query detached": lambda x: (x.detach(), x, x),
    "value detached": lambda x: (x, x, x.detach()),
    "another leaf": lambda x: (x, x.detach().clone().requires_grad_(), x),
}


@pytest.mark.parametrize("given", GIVEN)
def test_equal_inputs_have_the_gradients_of_torchs_attention_each_its_own(given):
    gradients, padding = [], padding_of(6, 5, 4)
    for module in pair(batch_first=True)[::-1]:
        x = random(3, 6, D).requires_grad_()
        inputs = GIVEN[given](x)
        output, _ = module(*inputs, padding)
        output[~padding].square().sum().backward()
        gradients.append([x.grad, *(tensor.grad for tensor in inputs if tensor.is_leaf and tensor is not x)])
    torch.testing.assert_close(gradients[1], gradients[0])


def hooked(module, x, padding):
    module.register_full_backward_hook(lambda *_: None)
    return module(x.requires_grad_(), x, x, padding)


def copied(module, x, padding):
    """As by code that moves or casts every argument."""
    module.register_forward_pre_hook(lambda _, args: tuple(tensor.clone() for tensor in args))
    return module(x, x, x, padding)


@pytest.mark.parametrize("way", [hooked, copied])
def test_views_and_copies_of_the_same_tensor_are_self_attention(way):
    """Padding then enters neither statistics nor the moments that DEACON moves by."""
    module, runs = drop_in(deacon("direct", 2), dtype=torch.float64), []
    for call in (lambda module, x, padding: module(x, x, x, padding), way):
        fresh = copy.deepcopy(module)
        output, weights = call(fresh, random(3, 6, D), padding_of(6, 5, 4))
        (output.square().sum() + weights.square().sum()).backward()
        gradients = [p.grad for p in fresh.parameters()]
        runs.append((output, weights, gradients, dict(fresh.named_buffers()), fresh.attention.output.inputs.moments))
    torch.testing.assert_close(*runs)


def test_cross_attention_of_a_memory_to_itself_is_said_by_its_kind():
    """Its padding is of keys alone, as in torch."""
    ours, theirs = pair()
    cross = MultiheadAttention(D, H, kind="cross", dtype=torch.float64)
    cross.load_state_dict(ours.state_dict())
    x, padding = random(6, 3, D), padding_of(6, 5, 4)
    torch.testing.assert_close(cross(x, x, x, padding), theirs(x, x, x, padding))


def test_what_cannot_be_told_under_a_trace_is_refused(monkeypatch):
    monkeypatch.setattr("headdiv.methods.drop_in.is_compiling", lambda: True)
    x = random(3, 6, D).float()
    with pytest.raises(ValueError, match=r"query and key are two tensors of one shape.* kind='cross'"):
        drop_in()(x.clone(), x, x, padding_of(6, 5, 4))


# ---- inside torch's layers


def encoder(options, replaced):
    """torch's encoder of two layers, in its default form where it can be, with the drop-in in some, and the method."""
    torch.manual_seed(1)
    method = make_method(options)
    layer = nn.TransformerEncoderLayer(D, 2, 20, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=replaced != [1])
    for index in replaced:
        new = MultiheadAttention(D, 2, method, dropout=0.1, batch_first=True, layer=index)
        if options is BASELINE:
            new.load_state_dict(model.layers[index].self_attn.state_dict())
        model.layers[index].self_attn = new
    return model, method


@pytest.mark.parametrize("replaced", [[1], [0, 1]])
@pytest.mark.parametrize("grad", [False, True])
def test_in_the_default_encoder_evaluation_with_padding_is_torchs(replaced, grad):
    ours, theirs = encoder(BASELINE, replaced)[0].eval(), encoder(BASELINE, [])[0].eval()
    x, padding = random(5, 6, D).float(), padding_of(6, 5, 4, 3, 2)
    with torch.set_grad_enabled(grad):
        results = [model(x, src_key_padding_mask=padding)[~padding] for model in (ours, theirs)]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("options", [BASELINE, deacon("direct", m=2, gha_steps=5)], ids=str)
def test_torchs_fast_path_does_not_go_round_the_module(options):
    model, x = encoder(options, [0, 1])[0].eval(), random(5, 6, D).float()
    padding = padding_of(6, 5, 4, 3, 2)
    with torch.no_grad():
        once = model(x, src_key_padding_mask=padding)
        x[padding] = 100.0
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[~padding], once[~padding])


# ---- masks, dropout and records


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
    output, weights = ours(x, x, x, attn_mask=mask, need_weights=need)
    torch.testing.assert_close(output, theirs(x, x, x, attn_mask=mask, need_weights=False)[0])
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


def test_records_have_the_weights_before_dropout_and_what_is_returned_those_after_it():
    torch.manual_seed(0)
    module, x = MultiheadAttention(16, 4, dropout=0.5, batch_first=True), torch.randn(2, 5, 16)
    with record_heads(module) as records:
        dropped = module(x, x, x, average_attn_weights=False)[1]
        kept = module.eval()(x, x, x, average_attn_weights=False)[1]
    assert torch.equal(records[0].weights, kept)
    assert torch.equal(records[1].weights, kept)
    torch.testing.assert_close(dropped[dropped != 0], 2 * kept[dropped != 0])
    assert 0.1 < (dropped == 0).float().mean() < 0.7


def test_need_weights_leaves_the_record_of_an_outer_record_heads():
    modules = nn.ModuleList([drop_in(DPP), drop_in(DPP), drop_in(DPP)])
    x = random(2, 4, D).float()
    for weights in (True, False):
        with record_heads(modules, weights=weights) as records:
            for module, need in zip(modules, (True, False, True), strict=True):
                assert (module(x, x, x, need_weights=need)[1] is not None) == need
        assert [record.weights is not None for record in records] == [weights] * 3
    assert all(not module.attention.recorders for module in modules)


# ---- how it is made


def test_ordinary_heads_start_as_torchs_do():
    torch.manual_seed(0)
    theirs, ours = nn.MultiheadAttention(96, 8), MultiheadAttention(96, 8).attention
    assert not ours.in_projection.bias.any()
    assert not ours.output.bias.any()
    for weights in ((theirs.in_proj_weight, ours.in_projection.weight), (theirs.out_proj.weight, ours.output.weight)):
        largest = [weight.abs().max().item() for weight in weights]
        assert largest[0] == pytest.approx(largest[1], rel=0.01)  # uniform, with one bound


@pytest.mark.parametrize("given", [make_method("mixing"), "mixing", {"name": "mixing"}], ids=str)
def test_a_method_is_given_as_an_object_a_name_or_options(given):
    module = MultiheadAttention(D, H, method=given, dtype=torch.bfloat16, device="meta")
    assert module.attention.method is module.method
    assert module.method.options == make_method("mixing").options
    assert {(p.dtype, p.device.type) for p in module.parameters()} == {(torch.bfloat16, "meta")}


def test_options_of_a_method_are_keywords_too():
    assert make_method("deacon", m=2).options == make_method({"name": "deacon", "m": 2}).options == Deacon(m=2).options
    with pytest.raises(ConfigError, match=r"^Deacon: found .*; expected its options by name"):
        Deacon({"m": 2})


MADE_WITH = [  # arguments of the constructor that are refused, and the key word
    ({"method": 0.1}, ConfigError, "method: expected {'name': "),
    ({"method": "deacn"}, ConfigError, "did you mean 'deacon'"),
    ({"method": {"name": "deacon", "m": H * D}}, ValueError, "more than the k"),
    ({"method": {"name": "homeostasis"}}, ValueError, "option `attention` without"),
    ({"method": MOA, "kdim": 5}, ValueError, "kdim, vdim: expected None"),
    ({"method": "rotation", "vdim": 5}, ValueError, "kdim, vdim: expected None"),
    ({"add_zero_attn": True}, ValueError, "add_zero_attn"),
    ({"num_heads": 5}, ValueError, "divisible"),
    ({"kind": "bogus"}, ValueError, "'encoder', 'decoder', 'cross'"),
]


@pytest.mark.parametrize(("options", "error", "word"), MADE_WITH, ids=str)
def test_a_module_that_cannot_be_is_refused(options, error, word):
    with pytest.raises(error, match=re.escape(word)):
        MultiheadAttention(**{"embed_dim": D, "num_heads": H, **options})


X = torch.ones(2, 3, D)
CALLED_WITH = [  # arguments of a forward pass that are refused, and the key word
    ([X, X, X[:, 1:]], {}, "as many values as keys"),
    ([X, X[0], X[0]], {}, "key: found the shape"),
    ([X[..., 1:]] * 3, {}, f"found the shape (2, 3, {D - 1}), expected (batch, length, {D})"),
    ([X[0, :, 1:]] * 3, {}, f"found the shape (3, {D - 1}), expected (length, {D})"),
    ([X[0, 0]] * 3, {}, f"found the shape ({D},), expected"),
    ([X, X[1:], X[1:]], {}, "one batch size"),
    ([torch.nested.nested_tensor([*X])] * 3, {}, "nested tensor"),
    ([X] * 3, {"key_padding_mask": torch.zeros(2, 3, dtype=torch.int64)}, "torch.int64"),
    ([X] * 3, {"key_padding_mask": torch.zeros(3, 2, dtype=torch.bool)}, "(2, 3), found (3, 2)"),
    ([X] * 3, {"attn_mask": torch.zeros(2, 3, 3)}, "(3, 3) or (6, 3, 3), found (2, 3, 3)"),
    ([2 * X, X, X], {"is_causal": True}, "is_causal needs attn_mask"),
]


@pytest.mark.parametrize(("inputs", "options", "word"), CALLED_WITH, ids=[word for *_, word in CALLED_WITH])
def test_what_does_not_fit_is_refused(inputs, options, word):
    with pytest.raises(ValueError, match=re.escape(word)):
        drop_in()(*inputs, **options)


def test_shapes_are_refused_as_they_were_given():
    """Also where the batch is torch's second dimension."""
    for inputs, words in (
        ([X[..., 1:]] * 3, f"query: found the shape (2, 3, {D - 1}), expected (length, batch, {D})"),
        ([X, X[:, 1:], X[:, 1:]], "(2, 3), (2, 2), (2, 2) as (length, batch)"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            MultiheadAttention(D, H)(*inputs)


def test_a_method_of_one_projection_refuses_other_values_than_keys():
    module, x = drop_in(MOA), random(2, 4, D).float()
    module(x, x, x.transpose(0, 1).transpose(0, 1))
    with pytest.raises(ValueError, match="key and value must be the same tensor"):
        module(x, x, 2 * x)
