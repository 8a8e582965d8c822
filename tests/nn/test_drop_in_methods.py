"""Every method in the drop-in: values beside keys, other widths, torch's states, adapters, names of modules."""

import copy

import pytest
import torch
from examples import deacon, every_method, of_attention
from torch import nn
from torch.func import functional_call
from torch.nn.utils import prune

import headdiv
from headdiv.analysis.masking import heads_of
from headdiv.core.errors import DataError
from headdiv.methods import make_method
from headdiv.methods.deacon import collected_moments, pca_layers
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.rotation import HeadIndex, swap_heads
from headdiv.nn.projections import SeparateProjections

B, N, S, D, H = 2, 3, 4, 8, 4
ONE_PROJECTION = ("moa",)  # of keys and values
THREE = ["encoder 1", "encoder 2", "encoder 3"]


def random(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drop_in(options, **more):
    torch.manual_seed(0)
    options = {**options, "m": 2} if options["name"] == "deacon" else of_attention(options)
    return MultiheadAttention(D, H, options, batch_first=True, dtype=torch.float64, **more)


# ---- inputs


@every_method(*ONE_PROJECTION, "combined")
def test_values_apart_are_each_methods_with_other_projections(options):
    """Values x·A projected by W are values x projected by W·Aᵀ: with padding, statistics and dropout alike."""
    module = drop_in(options).train()
    x, A = random(B, N, D), random(D, D, seed=1)
    padding = torch.tensor([[False] * N, [False, False, True]])
    query, key, value = module.attention.in_projection.weight.chunk(3)
    changed = {"attention.in_projection.weight": torch.cat([query, key, value @ A.T])}
    torch.manual_seed(1)
    results = module(x, x, x @ A, padding)
    torch.manual_seed(1)
    torch.testing.assert_close(results, functional_call(module, changed, (x, x, x, padding)))


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


@pytest.mark.parametrize("bias", [True, False])
def test_the_state_dict_of_torchs_module_loads_and_so_does_our_own(bias):
    theirs = nn.Sequential(nn.MultiheadAttention(D, H, bias=bias))
    ours = nn.Sequential(MultiheadAttention(D, H, bias=bias))
    ours.load_state_dict(theirs.state_dict())
    x = random(3, 2, D).float()
    torch.testing.assert_close(ours[0](x, x, x), theirs[0](x, x, x))
    copy.deepcopy(ours).load_state_dict(ours.state_dict())
    with pytest.raises(RuntimeError, match=r"size mismatch|Unexpected key"):
        nn.Sequential(drop_in(deacon("direct"))).load_state_dict(theirs.state_dict())


# ---- adapters and pruning masks


READ = [  # methods whose code reads weights of these layers
    ({"name": "baseline"}, ["in_projection"]),
    ({"name": "deacon", "m": 2}, ["in_projection", "output.project"]),
    ({"name": "moa", "experts": 3, "k": 2}, ["query", "key_value", "output"]),
]


@pytest.mark.parametrize(("options", "paths"), READ, ids=lambda given: str(given)[:17])
@pytest.mark.parametrize("keys", ["its own", "a memory", "two memories"])
def test_a_pruned_projection_is_the_one_of_now_in_every_kind_of_attention(options, paths, keys):
    """torch.nn.utils.prune makes the weight anew in a hook before each call of the layer."""
    module = drop_in(options).eval()
    x, memory = random(B, N, D), random(B, S, D, seed=4)
    other = memory if options["name"] in ONE_PROJECTION else random(B, S, D, seed=5)
    inputs = {"its own": (x, x, x), "a memory": (x, memory, memory), "two memories": (x, memory, other)}[keys]
    layers = [module.attention.get_submodule(path) for path in paths]
    for layer in layers:
        prune.random_unstructured(layer, "weight", 0.3)
    for _ in range(2):  # a second step has a graph of its own
        module(*inputs)[0].sum().backward()
    with torch.no_grad():
        for layer in layers:
            layer.weight_orig.mul_(2)
    output = module(*inputs)[0]
    for layer in layers:
        prune.remove(layer, "weight")
    torch.testing.assert_close(output, module(*inputs)[0])


@pytest.mark.parametrize("options", [
    {"name": "mixing"}, {"name": "head-scale", "normalisation": "layer"}, {"name": "deacon", "m": 2},
    {"name": "homeostasis", "attention": "kwta", "s_att": 0.5},
], ids=lambda options: options["name"])  # fmt: skip
def test_merged_adapters_of_peft_compute_what_they_did_before(options):
    peft = pytest.importorskip("peft")
    attention = drop_in(options)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(random(*parameter.shape))
    config = peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(nn.ModuleDict({"attention": attention}), config).double().eval()
    x, memory, other = random(B, N, D), random(B, S, D, seed=4), random(B, S, D, seed=5)
    results = []
    for _ in range(2):
        with headdiv.masked_heads(attention, {"encoder 1": [1, 0, 1, 1]}):
            results.append([attention(x, x, x)[0]])
        results[-1] += [attention(x, x, x)[0], attention(x, memory, memory)[0], attention(x, memory, other)[0]]
        adapted.merge_and_unload()
    torch.testing.assert_close(*results)


# ---- names of modules


def copies(method):
    """torch's encoder, whose three layers are copies of one; its method."""
    method = make_method(method)
    layer = nn.TransformerEncoderLayer(D, H, 20, batch_first=True)
    layer.self_attn = MultiheadAttention(D, H, method, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), method


def test_layers_that_are_left_out_are_counted_by_kind_and_given_ones_stay():
    kinds = ["decoder", "cross", "decoder", "cross"]
    modules = nn.ModuleList(MultiheadAttention(D, H, kind=kind) for kind in kinds)
    assert list(heads_of(modules)) == ["decoder 1", "cross 1", "decoder 2", "cross 2"]
    modules.append(MultiheadAttention(D, H, kind="cross", layer=6))
    assert list(heads_of(modules))[-1] == "cross 7"
    modules = nn.ModuleList([MultiheadAttention(D, H), MultiheadAttention(D, H, layer=0), MultiheadAttention(D, H)])
    assert list(heads_of(modules)) == ["encoder 2", "encoder 1", "encoder 3"]


def test_a_copy_of_a_numbered_layer_keeps_its_number():
    model, _ = copies("baseline")
    assert list(heads_of(model)) == THREE
    assert list(heads_of(copy.deepcopy(model.layers[1]))) == ["encoder 2"]


def test_records_artifacts_and_swaps_of_copies_are_by_layer():
    x = torch.randn(2, 4, D)
    model, method = copies({"name": "deacon", "m": 2})
    with headdiv.record_heads(model) as records, collected_moments(model) as moments:
        model(x)
    assert [record.spec.name for record in records] == list(moments) == THREE
    assert [layer.spec.name for layer in pca_layers(model).values()] == THREE
    assert [statistics["place"] for statistics in method.artifacts(model)["pca_weights"].values()] == THREE
    model, method = copies({"name": "homeostasis", "attention": "kwta", "s_att": 0.5})
    model(x)
    method.before_optimizer_step(model, 0.5)
    assert list(method.artifacts(model)["activations"]) == THREE
    model, _ = copies("baseline")
    before = [layer.self_attn.attention.in_projection.weight.clone() for layer in model.layers]
    swap_heads(model, [("encoder", HeadIndex(0, 0), HeadIndex(2, 1))])
    after = [layer.self_attn.attention.in_projection.weight for layer in model.layers]
    assert torch.equal(after[1], before[1])
    assert torch.equal(after[2][2:4], before[0][:2])


def test_modules_of_one_name_are_refused_where_names_are_keys():
    method = make_method({"name": "mixing"})
    model = nn.ModuleList(MultiheadAttention(D, H, method, layer=0) for _ in range(2))
    for ask in (heads_of, method.artifacts, lambda model: swap_heads(model, [])):
        with pytest.raises(DataError, match=r"two attention modules are 'encoder 1'; expected for each a `layer`"):
            ask(model)
