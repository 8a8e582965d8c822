"""Mixtures of attention heads at work: records, decoding, parameters, a model's training step, and their cost."""

import json
import math

import pytest
import torch
from examples import CONFIG
from moa_parts import MOA, TOP, both_sides, build
from packed import D, K, pack, random, sentences
from torch import nn

from headdiv.experiments.bench import measure_moa
from headdiv.methods import make_method
from headdiv.methods.moa import MixtureAttention
from headdiv.methods.routing import RoutedRecord
from headdiv.nn.attention import AttentionLayout, AttentionSpec, record_heads
from headdiv.nn.drop_in import MultiheadAttention
from headdiv.nn.packing import MASKED, attention_mask, lay_out, pad_rows
from headdiv.nn.transformer import Transformer, count_parameters, initialise

# ---- records


def test_records_hold_the_slots_and_which_expert_each_is():
    modules = nn.ModuleList([build(12), build(13, "cross")])
    queries, memory = both_sides(14, "cross")
    (x, _, own, _), (y, context, cross, _) = pack(queries, [], "encoder", 6), pack(queries, memory, "cross", 6)
    plain = modules[0](x, None, own), modules[1](y, context, cross)
    with record_heads(modules) as records:
        recorded = modules[0](x, None, own), modules[1](y, context, cross)
    torch.testing.assert_close(recorded, plain)
    for record, module, rows, output in zip(records, modules, (x, y), recorded, strict=True):
        assert isinstance(record, RoutedRecord)
        assert (record.spec.kind, record.spec.heads) == (module.spec.kind, TOP)
        (R, N), S = record.layout.queries.sentences.shape, record.layout.keys.sentences.shape[1]
        assert record.weights.shape == (R, TOP, N, S)
        torch.testing.assert_close(record.weights.sum(-1), torch.ones(R, TOP, N, dtype=torch.float64))
        assert record.values.shape == (record.layout.keys.tokens, TOP, K)
        routing = record.routing
        assert routing.experts.shape == routing.gates.shape == record.outputs.shape[:2] == (len(rows), TOP)
        mixed = torch.einsum("tk,tki,tkid->td", routing.gates, record.outputs, module.output.weight[routing.experts])
        torch.testing.assert_close(mixed + module.output_bias, output)
        record.outputs.sum().backward(retain_graph=True)
        assert (module.query.weight.grad != 0).any()
    assert all(module.recorder is None for module in modules)
    with record_heads(modules, weights=False) as records:
        modules[0](x, None, own)
    assert records[0].weights is None


# ---- one token at a time


def test_steps_with_a_cache_are_the_causal_pass_position_by_position():
    module, x = build(17, "decoder"), sentences(18, [5, 5, 5])
    rows, _, layout, _ = pack(x, [], "decoder", 1)
    expected = pad_rows(module(rows, None, layout), layout.queries)
    order, padded = torch.tensor([2, 2, 0]), torch.stack(x)
    cache = module.self_cache(3, 7, like=rows)
    for n in range(4):
        torch.testing.assert_close(module.step(padded[:, n], cache), expected[:, n])
        assert cache.length == n + 1
    cache.reorder(order)
    torch.testing.assert_close(module.step(padded[order, 4], cache), expected[order, 4])


def test_steps_over_memory_are_the_pass_over_memory():
    module = build(19, "cross")
    queries, keys = sentences(20, [2, 2, 2]), sentences(50, [4, 1, 3])
    rows, memory, layout, _ = pack(queries, keys, "cross", 1)
    expected = pad_rows(module(rows, memory, layout), layout.queries)
    mask = torch.zeros(3, 4, dtype=torch.float64)
    mask.masked_fill_(torch.arange(4) >= layout.keys.lengths[:, None], MASKED)
    cache = module.cross_cache(pad_rows(memory, layout.keys, fill=9.0), mask)
    torch.testing.assert_close(module.step(torch.stack(queries)[:, 0], cache), expected[:, 0])
    cache.select(torch.tensor([2, 0]))
    torch.testing.assert_close(module.step(torch.stack(queries)[[2, 0], 1], cache), expected[[2, 0], 1])


# ---- parameters


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("d_head", [None, 7])
def test_the_number_of_parameters_is_as_written(bias, noisy, d_head):
    module = MixtureAttention(AttentionSpec("cross", 0, 24, 3, bias), 6, 2, d_head, noisy=noisy)
    width = 8 if d_head is None else d_head
    expected = 2 * 24 * width + 6 * 2 * 24 * width + 24 * 6 + 24
    expected += 24 * 6 if noisy else 0
    expected += (2 + 6) * width if bias else 0
    assert count_parameters(module) == expected


def model_of(seed, **options):
    model = Transformer(CONFIG, 15, 15, make_method({**MOA, **options}))
    initialise(model, seed)
    return model


def test_parameters_follow_from_seed_and_name():
    one, same, other = (dict(model_of(seed, noisy=True).named_parameters()) for seed in (1, 1, 2))
    more = dict(model_of(1, experts=8, k=2).named_parameters())
    for name, parameter in one.items():
        assert torch.equal(parameter, same[name]), name
        drawn = not name.endswith(("bias", "router.noise")) and "norm" not in name
        assert torch.equal(parameter, other[name]) is not drawn, name
        if name in more and more[name].shape == parameter.shape:
            assert torch.equal(parameter, more[name]), name
    prefix = "encoder.0.attention.encoder"
    experts = one[f"{prefix}.query.weight"]
    assert not torch.equal(experts[0], experts[1])
    bound = math.sqrt(6 / (CONFIG.d_model + CONFIG.d_model // CONFIG.heads))
    assert 0.8 * bound < experts.abs().max().item() <= bound
    assert {name.removeprefix(f"{prefix}.") for name in one if name.startswith(prefix)} == {
        "output_bias", "router.weight", "router.noise", "query.weight", "key_value.weight", "output.weight",
    }  # fmt: skip


# ---- in a model


def test_autocast_stays_close_to_float32_and_chooses_the_same():
    def run(enabled):
        module = MixtureAttention(AttentionSpec("encoder", 0, 32, 4, bias=True), 6, 2)
        initialise(module, 3)
        side = lay_out([20, 20], [[0], [1]])
        layout = AttentionLayout(side, side, attention_mask(side, side))
        x = random(4, 40, 32, dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled), record_heads(module, weights=False) as records:
            y = module(x, None, layout)
        y.float().square().sum().backward()
        return records[0].routing, [y.float(), *(p.grad for p in module.parameters())]

    (routing, found), (expected_routing, expected) = run(True), run(False)
    assert routing.logits.dtype == torch.float32
    assert torch.equal(routing.experts, expected_routing.experts)
    for a, b in zip(found, expected, strict=True):
        assert (a - b).norm() < 0.03 * b.norm() + 1e-6


def test_behind_torchs_interface_padding_changes_nothing():
    torch.manual_seed(1)
    module = MultiheadAttention(D, 2, make_method(MOA), batch_first=True).double()
    x = random(5, 2, 4, D)
    short = x[:1, :2]
    excluded = torch.tensor([[False, False, True, True], [False] * 4])
    y, weights = module(x, x, x, key_padding_mask=excluded)
    alone, _ = module(short, short, short)
    torch.testing.assert_close(y[:1, :2], alone)
    assert (y[0, 2:] == 0).all()
    assert weights.shape == (2, 4, 4)


# ---- cost


def test_the_cost_of_experts_is_measured():
    told = measure_moa(rounds=1)
    assert json.loads(json.dumps(told)) == told
    assert set(told["moa_e32_over_e4"]) == {"median", "low", "high"}
    assert all(value > 0 for value in (*told["moa_e32_over_e4"].values(), *told["moa_milliseconds"].values()))


@pytest.mark.slow
def test_eight_times_the_experts_cost_at_most_half_as_much_again():
    assert measure_moa()["moa_e32_over_e4"]["median"] <= 1.5
