"""Mixtures of attention heads: against a loop over every expert and token, in records and decoding, and their cost."""

import math

import pytest
import torch
from examples import CONFIG, tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from moa_parts import KINDS, MOA, TOP, E, both_sides, build
from packed import D, K, pack, random, run_packed, sentences, with_gradients
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from headdiv.companion.experiments.bench import measure_moa
from headdiv.core.errors import ConfigError
from headdiv.methods import check_method, make_method
from headdiv.methods.moa import MixtureAttention
from headdiv.methods.routing import RoutedRecord
from headdiv.nn import attention
from headdiv.nn.attention import AttentionLayout, AttentionSpec, record_heads
from headdiv.nn.caches import BeamState
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import MASKED, assign_windows, attention_mask, lay_out, pad_rows
from headdiv.nn.sizes import ModelConfig
from headdiv.nn.transformer import count_parameters, initialise

seeds = st.integers(0, 2**31 - 1)
pairs_of_lengths = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4)


# ---- the dense twin


def literal_gates(router, x):
    """Every expert's gate, zero for those that are not among the k most probable; of equal ones the first."""
    logits = [torch.dot(w, x) for w in router.weight]
    total = sum(logit.exp() for logit in logits)
    p = [logit.exp() / total for logit in logits]
    chosen = sorted(range(len(p)), key=lambda e: (-p[e].item(), e))[: router.k]
    kept = sum(p[e] for e in chosen) if router.renormalise else 1.0
    return [p[e] / kept if e in chosen else 0.0 for e in range(len(p))]


def literal_mixture(module, queries, context, kind):
    """Eqs. 4 to 8 for one sentence, every expert for every token."""
    wk, wv = module.key_value.weight.split(module.d_head)
    bias = module.key_value.bias
    bk, bv = (torch.zeros(2 * module.d_head) if bias is None else bias).split(module.d_head)
    lines = []
    for n, x in enumerate(queries):
        visible = context[: n + 1] if kind == "decoder" else context
        y = module.output_bias
        for e, gate in enumerate(literal_gates(module.router, x)):
            q = x @ module.query.weight[e] + (0.0 if module.query.bias is None else module.query.bias[e])
            scores = [torch.dot(q, wk @ c + bk).div(math.sqrt(module.d_head)) for c in visible]
            total = sum(score.exp() for score in scores)
            head = sum(s.exp() / total * (wv @ c + bv) for s, c in zip(scores, visible, strict=True))
            y = y + gate * (head @ module.output.weight[e])
        lines.append(y)
    return torch.stack(lines)


def run_literal(module, kind):
    def run(queries, keys):
        others = keys if kind == "cross" else queries
        return [literal_mixture(module, q, c, kind) for q, c in zip(queries, others, strict=True)]

    return run


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(
    seed=seeds,
    lengths=pairs_of_lengths,
    width=st.sampled_from([1, 4, 48]),
    bias=st.booleans(),
    k=st.integers(1, E),
    renormalise=st.booleans(),
    d_head=st.sampled_from([1, 3, 4]),
)
def test_chosen_experts_alone_give_what_all_give_with_gradients(
    kind, seed, lengths, width, bias, k, renormalise, d_head
):
    module = build(seed, kind, bias, k=k, d_head=d_head, renormalise=renormalise)
    queries, memory = both_sides(seed + 50, kind, lengths)
    found = with_gradients(module, queries, memory, run_packed(module, kind, width))
    torch.testing.assert_close(found, with_gradients(module, queries, memory, run_literal(module, kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_wide_windows_give_what_the_literal_one_gives(kind, monkeypatch):
    monkeypatch.setattr(attention, "WIDE", 0)
    module = build(1, kind)
    queries, memory = both_sides(2, kind)
    found = with_gradients(module, queries, memory, run_packed(module, kind, 7))
    torch.testing.assert_close(found, with_gradients(module, queries, memory, run_literal(module, kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_even_gates_over_all_experts_are_multi_query_attention(kind):
    heads = D // K
    module = build(3, kind, experts=heads, k=heads, d_head=None)
    plain = MultiHeadAttention(AttentionSpec(kind, 0, D, heads, bias=True)).double()
    with torch.no_grad():
        module.router.weight.zero_()
        q, shared = module.query.weight.transpose(1, 2).flatten(0, 1), module.key_value
        kv, bias = ([part] * heads for part in (shared.weight.split(K), shared.bias.split(K)))
        plain.in_projection.weight.copy_(torch.cat([q, *(k for k, _ in kv), *(v for _, v in kv)]))
        plain.in_projection.bias.copy_(
            torch.cat([module.query.bias.flatten(), *(k for k, _ in bias), *(v for _, v in bias)])
        )
        plain.output.weight.copy_(module.output.weight.flatten(0, 1).T)
        plain.output.bias.zero_()
    queries, memory = both_sides(4, kind)
    x, context, layout, _ = pack(queries, memory, kind, 8)
    mixed = heads * (module(x, context, layout) - module.output_bias)
    torch.testing.assert_close(mixed, plain(x, context, layout))


# ---- the products


class Counting(TorchDispatchMode):
    """How many operations torch is asked for."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls = getattr(self, "calls", 0) + 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_more_tokens_slots_or_sentences_are_no_more_operations(kind):
    def calls(module, lengths):
        queries, memory = both_sides(8, kind, lengths)
        x, context, layout, _ = pack(queries, memory, kind, 8)
        with Counting() as counted:
            module(x.requires_grad_(), context, layout).sum().backward()
        return counted.calls

    few, many = [(3, 4), (6, 5)], [(5, 2), (6, 6), (3, 5), (8, 8), (7, 4), (1, 2)]
    module = build(7, kind)
    assert calls(module, few) == calls(module, many) == calls(build(7, kind, k=2), many)


@pytest.mark.parametrize("kind", KINDS)
def test_only_chosen_experts_are_computed(kind):
    """More experts are more work for the router, forward and backward, and for nothing else."""

    def flops(experts):
        queries, memory = both_sides(8, kind)
        x, context, layout, _ = pack(queries, memory, kind, 8)
        with FlopCounterMode(display=False) as counted:
            build(7, kind, experts=experts)(x.requires_grad_(), context, layout).sum().backward()
        return counted.get_total_flops(), len(x)

    (few, T), (many, _) = flops(4), flops(32)
    assert many - few == 3 * 2 * T * D * (32 - 4)


# ---- no rows, no difference between the experts


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_gives_nothing(kind):
    """A rank's share of a small batch may be empty; its gradients are zero and not missing."""
    module, side = build(9, kind), lay_out([], assign_windows([], []))
    layout = AttentionLayout(side, side, attention_mask(side, side, causal=kind == "decoder"))
    x = torch.zeros(0, D, dtype=torch.float64, requires_grad=True)
    with record_heads(module) as records:
        y = module(x, x if kind == "cross" else None, layout)
    assert y.shape == (0, D)
    (y.sum() + make_method({**MOA, "cv": 0.1}).aux_loss(module, records, 0.0, 1)).backward()
    assert all((parameter.grad == 0).all() for parameter in module.parameters())


@pytest.mark.parametrize("renormalise", [False, True])
def test_equal_logits_choose_the_first_experts_and_keep_gradients_finite(renormalise):
    module = build(10, renormalise=renormalise)
    torch.nn.init.zeros_(module.router.weight)
    x, _, layout, _ = pack(sentences(11, [3, 2]), [], "encoder", 5)
    with record_heads(module) as records:
        y = module(x, None, layout)
    assert (records[0].routing.experts == torch.arange(TOP)).all()
    gate = 1 / TOP if renormalise else 1 / E
    torch.testing.assert_close(records[0].routing.gates, torch.full((5, TOP), gate, dtype=torch.float64))
    (y.square().sum() + make_method({**MOA, "cv": 0.1}).aux_loss(module, records, 0.0, 5)).backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    assert (module.router.weight.grad != 0).any()


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


def test_steps_over_memory_are_the_pass_over_memory():
    module = build(19, "cross")
    queries, keys = sentences(20, [2, 2, 2]), sentences(50, [4, 1, 3])
    rows, memory, layout, _ = pack(queries, keys, "cross", 1)
    expected = pad_rows(module(rows, memory, layout), layout.queries)
    mask = torch.zeros(3, 4, dtype=torch.float64)
    mask.masked_fill_(torch.arange(4) >= layout.keys.lengths[:, None], MASKED)
    lines = BeamState(3, 1, 2, like=rows)
    cache = module.cross_cache(lines, pad_rows(memory, layout.keys, fill=9.0), mask)
    torch.testing.assert_close(module.step(torch.stack(queries)[:, 0], cache), expected[:, 0])
    cache.keep(lines.select(torch.tensor([0, 2])))
    torch.testing.assert_close(module.step(torch.stack(queries)[[0, 2], 1], cache), expected[[0, 2], 1])


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


def test_parameters_follow_from_seed_and_name():
    one, same, other = (dict(tiny({**MOA, "noisy": True}, seed=seed)[0].named_parameters()) for seed in (1, 1, 2))
    for name, parameter in one.items():
        assert torch.equal(parameter, same[name]), name
        drawn = not name.endswith(("bias", "router.noise")) and "norm" not in name
        assert torch.equal(parameter, other[name]) is not drawn, name
    experts = one["encoder.0.attention.encoder.query.weight"]
    assert not torch.equal(experts[0], experts[1])
    bound = math.sqrt(6 / (CONFIG.d_model + CONFIG.d_model // CONFIG.heads))
    assert 0.8 * bound < experts.abs().max().item() <= bound


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


# ---- cost


@pytest.mark.slow
def test_eight_times_the_experts_cost_at_most_half_as_much_again():
    assert measure_moa()["moa_e32_over_e4"]["median"] <= 1.5


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 6}, "method.k: 6 is more than the 5 experts to choose from"),
        ({"k": 1, "renormalise": True}, "method.renormalise: with k = 1 every gate is 1 and the router learns "
                                        "nothing from the task; expected k ≥ 2"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(options, message):
    with pytest.raises(ConfigError) as found:
        check_method({**MOA, **options}, ModelConfig(), ("method",))
    assert str(found.value) == message
