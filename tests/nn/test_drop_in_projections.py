"""All inputs that torch.nn.MultiheadAttention takes: keys beside values, other widths, no batch."""

import copy
import itertools
import math

import pytest
import torch
from examples import ARCHITECTURES, EXAMPLES, deacon, every_method, of_attention
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, prune

import headdiv
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.projections import NAMES, SeparateProjections

B, N, S, D, H = 2, 3, 4, 8, 2
ONE_PROJECTION = ("moa",)  # of keys and values


def pair(**options):
    """Ours and torch's with equal weights, in float64, all of them random."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, dtype=torch.float64, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = MultiheadAttention(D, H, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def random(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs_of(form, batched, first, kdim, vdim):
    """Query, key and value, with gradients, as they are given; and which of the batch's keys are real."""
    length = N if form in ("self", "values apart") else S
    q, k, v = (random(B, n, d, seed=i) for i, (n, d) in enumerate([(N, D), (length, kdim), (length, vdim)]))
    q, k, v = (x[0] if not batched else x if first else x.transpose(0, 1) for x in (q, k, v))
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    k = q if form in ("self", "values apart") else k
    return q, k, k if form in ("self", "memory") else v


def masks(form, batched, padding, mask):
    n = N if form in ("self", "values apart") else S
    found = {}
    if padding:
        real = torch.tensor([n, n - 1])[:, None] > torch.arange(n)
        found["key_padding_mask"] = ~real if batched else ~real[1]
    if mask == "shared":
        found["attn_mask"] = random(N, n, seed=5)
    if mask == "each":
        found["attn_mask"] = random(B * H if batched else H, N, n, seed=6).masked_fill(torch.eye(N, n) == 1, -math.inf)
    return found


def test_combinations_of_all_arguments_are_torchs():
    """Output, weights and all gradients of every seventh combination, among which any two values meet.

    Padded queries of self-attention, which we leave out, are not compared.
    """
    flag, count = (False, True), 0
    modules = {}
    grid = itertools.product(
        flag, (None, 5), (None, 3), ("self", "values apart", "memory", "two memories"), flag, flag, flag,
        flag, (None, "shared", "each"), flag,
    )  # fmt: skip
    for bias, kdim, vdim, form, batched, first, need, padding, mask, average in grid:
        wide = {"self": kdim or vdim, "values apart": kdim, "memory": (kdim or D) != (vdim or D)}
        if wide.get(form) or (not need and not average) or (not batched and not first):
            continue  # there are no such inputs, or it is another combination's
        count += 1
        if count % 7:
            continue
        key = (bias, kdim, vdim, first)
        if key not in modules:
            modules[key] = pair(batch_first=first, bias=bias, kdim=kdim, vdim=vdim)
        given, results = inputs_of(form, batched, first, kdim or D, vdim or D), []
        more = masks(form, batched, padding, mask)
        real = torch.ones(B, N, dtype=torch.bool) if batched else torch.ones(N, dtype=torch.bool)
        if padding and form in ("self", "values apart"):
            real = ~more["key_padding_mask"]
        for module in modules[key]:
            output, weights = module(*given, need_weights=need, average_attn_weights=average, **more)
            output = output.transpose(0, 1) if batched and not first else output
            loss = (output[real] * random(*output[real].shape, seed=8)).sum()
            if weights is not None:
                weights = weights if average else weights.transpose(-3, -2)  # queries follow the batch
                weights = weights[real]
                loss = loss + (weights * random(*weights.shape, seed=9)).sum()
            leaves = list({id(x): x for x in given}.values())
            names = [name for name, _ in modules[key][1].named_parameters()]
            ours = [f"attention.{NAMES[name]}" for name in names] if module is modules[key][0] else names
            leaves += [module.get_parameter(name) for name in ours]
            results.append((output[real], weights, torch.autograd.grad(loss, leaves, materialize_grads=True)))
        torch.testing.assert_close(*results, msg=lambda text, key=key, form=form: f"{key} {form}: {text}")
    assert count > 400


def drop_in(options, **more):
    torch.manual_seed(0)
    options = {**options, "m": 2} if options["name"] == "deacon" else of_attention(options)
    return MultiheadAttention(D, 4, options, batch_first=True, dtype=torch.float64, **more)


@pytest.mark.parametrize("training", [True, False])
@every_method(*ONE_PROJECTION, "combined")
def test_values_apart_are_each_methods_with_other_projections(options, training):
    """Values x·A projected by W are values x projected by W·Aᵀ: with padding, statistics and dropout alike."""
    module = drop_in(options).train(training)
    x, A = random(B, N, D), random(D, D, seed=1)
    padding = torch.tensor([[False] * N, [False, False, True]])
    W = module.attention.in_projection.weight
    changed = torch.cat([*W.chunk(3)[:2], W.chunk(3)[2] @ A.T])
    results = []
    for call in (
        lambda: module(x, x, x @ A, padding),
        lambda: functional_call(module, {"attention.in_projection.weight": changed}, (x, x, x, padding)),
    ):
        torch.manual_seed(1)
        results.append(call())
    torch.testing.assert_close(*results)


@every_method(*ONE_PROJECTION, "combined", "rotation", "dynamic-rotation")  # which refuse them
def test_other_widths_are_columns_of_zeros(options):
    plain = drop_in(options, kind="cross", bias=False).eval()
    added = drop_in(options, kind="cross", bias=False, kdim=5, vdim=3).eval()
    state, projection = plain.state_dict(), added.attention.in_projection
    assert isinstance(projection, SeparateProjections)
    weights = state.pop("attention.in_projection.weight").chunk(3)
    state |= {f"attention.in_projection.{name}": w for name, w in zip(("query", "key", "value"), weights, strict=True)}
    state["attention.in_projection.key"], state["attention.in_projection.value"] = weights[1][:, :5], weights[2][:, :3]
    added.load_state_dict(state)
    x, key, value = random(B, N, D), random(B, S, 5, seed=1), random(B, S, 3, seed=2)
    key_rows, value_rows = (nn.functional.pad(y, (0, D - y.shape[2])) for y in (key, value))
    torch.testing.assert_close(added(x, key, value), plain(x, key_rows, value_rows))


# ---- states


@pytest.mark.parametrize("more", [{}, {"bias": False}, {"kdim": 5, "vdim": 3}], ids=str)
@pytest.mark.parametrize(
    "options",
    [{"name": "baseline"}, *(deacon(each, m=2) for each in ARCHITECTURES[:2]), *EXAMPLES["mixing"],
     *EXAMPLES["dpp"][:1], *EXAMPLES["drop-head"]],
    ids=lambda o: o.get("architecture", o["name"]),
)  # fmt: skip
def test_torch_loads_our_state_and_does_the_same(options, more):
    ours = drop_in(options, **more).eval()
    nn.init.normal_(ours.attention.output.bias) if hasattr(ours.attention.output, "bias") else None
    state = ours.torch_state_dict()
    theirs = nn.MultiheadAttention(
        D, 4, batch_first=True, dtype=torch.float64, **{**more, "bias": "in_proj_bias" in state}
    )
    theirs.load_state_dict(state)
    x, key, value = random(B, N, D), random(B, S, ours.kdim, seed=1), random(B, S, ours.vdim, seed=2)
    torch.testing.assert_close(ours(x, key, value), theirs(x, key, value))


@pytest.mark.parametrize(
    "options",
    [*(EXAMPLES[name][0] for name in ("gated", "talking-heads", "moa", "homeostasis", "differential")),
     {"name": "head-scale", "normalisation": "layer"}],
    ids=lambda o: o["name"],
)  # fmt: skip
def test_what_torch_cannot_compute_is_not_put_into_its_state(options):
    with pytest.raises(ValueError, match=r"computes in evaluation what torch\.nn\.MultiheadAttention cannot"):
        drop_in(options).torch_state_dict()


def test_what_has_lost_a_head_is_not_put_into_torchs_state():
    module = nn.ModuleDict({"self_attn": drop_in({"name": "baseline"})})
    headdiv.ModelHeads(module).remove([("encoder 1", 2)])
    with pytest.raises(ValueError, match=r"what torch\.nn\.MultiheadAttention cannot"):
        module["self_attn"].torch_state_dict()


def test_what_is_parametrised_is_not_put_into_torchs_state():
    module = drop_in({"name": "baseline"})
    parametrizations.weight_norm(module.attention.in_projection)
    with pytest.raises(ValueError, match=r"in_projection holds parametrizations.*, which would be lost"):
        module.torch_state_dict()


class Adapted(nn.Module):
    """As peft's: a layer with a matrix beside it, whose weight is not all that it does."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.beside = layer, nn.Parameter(random(*layer.weight.shape, seed=7))
        self.weight, self.bias, self.in_features = layer.weight, layer.bias, layer.in_features

    def forward(self, x):
        return self.layer(x) + x @ self.beside.T


READ = [  # methods whose code reads weights of these layers
    ({"name": "baseline"}, ["in_projection"]),
    ({"name": "deacon", "m": 2}, ["in_projection", "output.project"]),
    ({"name": "moh", "shared": 2, "k": 2}, ["in_projection", "shared", "types"]),
]
each_kind = pytest.mark.parametrize("keys", ["its own", "a memory", "two memories"])


@pytest.mark.parametrize(("options", "paths"), READ, ids=lambda given: str(given)[:17])
@each_kind
def test_an_adapter_on_a_projection_takes_part_in_every_kind_of_attention(options, paths, keys):
    torch.manual_seed(0)
    merged = MultiheadAttention(D, 4, options, batch_first=True, dtype=torch.float64).eval()
    x, memory, other = random(B, N, D), random(B, S, D, seed=4), random(B, S, D, seed=5)
    inputs = {"its own": (x, x, x), "a memory": (x, memory, memory), "two memories": (x, memory, other)}[keys]
    adapted = copy.deepcopy(merged)
    for path in paths:
        for module, put in ((adapted.attention, True), (merged.attention, False)):
            parent, name = module.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
            layer = getattr(parent, name)
            wrapped = Adapted(layer)
            if put:
                setattr(parent, name, wrapped)
            else:
                layer.weight.data += wrapped.beside.data
    found = adapted(*inputs)[0]
    torch.testing.assert_close(found, merged(*inputs)[0])
    found.sum().backward()
    assert all(module.beside.grad is not None for module in adapted.modules() if isinstance(module, Adapted))


MOA = ({"name": "moa", "experts": 3, "k": 2}, ["query", "key_value", "output"])


@pytest.mark.parametrize(("options", "paths"), [*READ, MOA], ids=lambda given: str(given)[:17])
@each_kind
def test_a_pruned_projection_is_the_one_of_now_in_every_kind_of_attention(options, paths, keys):
    """torch.nn.utils.prune makes the weight anew in a hook before each call of the layer."""
    torch.manual_seed(0)
    module = MultiheadAttention(D, 4, options, batch_first=True, dtype=torch.float64).eval()
    x, memory, other = random(B, N, D), random(B, S, D, seed=4), random(B, S, D, seed=5)
    other = memory if (options, paths) == MOA else other
    inputs = {"its own": (x, x, x), "a memory": (x, memory, memory), "two memories": (x, memory, other)}[keys]
    layers = [module.attention.get_submodule(path) for path in paths]
    for layer in layers:
        prune.random_unstructured(layer, "weight", 0.3)
    for _ in range(2):  # a second step has a graph of its own
        module(*inputs)[0].sum().backward()
    with torch.no_grad():
        for layer in layers:
            layer.weight_orig.mul_(2)
    found = module(*inputs)[0]
    for layer in layers:
        prune.remove(layer, "weight")
    torch.testing.assert_close(found, module(*inputs)[0])


@pytest.mark.parametrize("options", [
    {"name": "mixing"}, {"name": "head-scale", "normalisation": "layer"}, {"name": "deacon", "m": 2},
    {"name": "homeostasis", "attention": "kwta", "s_att": 0.5}, {"name": "moh", "shared": 2, "k": 2},
], ids=lambda options: options["name"])  # fmt: skip
def test_merged_adapters_of_peft_compute_what_they_did_before(options):
    peft = pytest.importorskip("peft")
    attention = drop_in(options)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(random(*parameter.shape))
    config = peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(nn.ModuleDict({"attention": attention}), config).double().eval()
    x, found = random(B, N, D), []
    for _ in range(2):
        with headdiv.masked_heads(attention, {"encoder 1": [1, 0, 1, 1]}):
            found.append([attention(x, x, x)[0]])
        found[-1].append(attention(x, x, x)[0])
        adapted.merge_and_unload()
    torch.testing.assert_close(*found)
