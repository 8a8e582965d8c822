"""The router of a mixture, its losses on one rank and on several, and what the results keep of it."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from moa_parts import MOA, TOP, E, build
from packed import packed_rows, random, randomly, sentences

import headdiv
from headdiv.analysis.similarity import Observed
from headdiv.methods import make_method
from headdiv.methods.base import ValidationSplit
from headdiv.methods.routing import (
    Router,
    chosen,
    router_statistics,
    routing_losses,
    routing_sums,
    typical_words,
    words_by_expert,
)
from headdiv.nn.records import record_heads

T, WIDTH = 7, 4
seeds = st.integers(0, 2**31 - 1)


def router(seed, experts=E, k=TOP, **options):
    return randomly(seed, Router(WIDTH, experts, k, **options))


# ---- what is chosen


@given(seed=seeds, k=st.integers(1, E))
def test_gates_are_the_largest_probabilities(seed, k):
    module, x = router(seed, k=k), random(seed + 9, T, WIDTH)
    routing = module(x)
    torch.testing.assert_close(routing.logits, x @ module.weight.T)
    for t in range(T):
        p = (routing.logits[t] - routing.logits[t].max()).exp()
        p = p / p.sum()
        torch.testing.assert_close(routing.probabilities[t], p)
        order = sorted(range(E), key=lambda e: -p[e].item())[:k]
        assert routing.experts[t].tolist() == order
        torch.testing.assert_close(routing.gates[t], p[order])


@pytest.mark.parametrize("noisy", [False, True])
def test_autocast_changes_no_choice(noisy):
    """The router computes in float32, since near choices differ by less than half precision resolves."""
    module, x = router(1, noisy=noisy).float(), random(2, T, WIDTH, dtype=torch.float32)
    results = []
    for enabled in (False, True):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            routing = module(x)
        results.append([routing.logits, routing.probabilities, routing.experts, routing.gates])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_a_bfloat16_module_chooses_in_float32_and_can_be_copied_after_a_pass():
    torch.manual_seed(1)
    module = headdiv.MultiheadAttention(12, 4, MOA, batch_first=True, dtype=torch.bfloat16)
    x = torch.randn(2, 5, 12, dtype=torch.bfloat16)
    with record_heads(module) as records:
        output = module(x, x, x, need_weights=False)[0]
    assert (output.dtype, records[0].routing.probabilities.dtype) == (torch.bfloat16, torch.float32)
    output.sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters() if p.grad is not None)
    torch.testing.assert_close(copy.deepcopy(module)(x, x, x)[0], module(x, x, x)[0])


def test_of_equal_probabilities_the_lower_number_comes_first():
    p = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.1, 0.4, 0.1, 0.4], [0.2, 0.2, 0.4, 0.2]]).repeat(500, 1)
    expected = torch.tensor([[0, 1, 2], [1, 3, 0], [2, 0, 1]]).repeat(500, 1)
    assert torch.equal(chosen(p, 3), expected)


def test_renormalised_gates_are_the_softmax_of_the_chosen_logits():
    """Eq. 2."""
    module, x = router(1, renormalise=True), random(2, T, WIDTH)
    routing = module(x)
    torch.testing.assert_close(routing.gates, routing.logits.gather(1, routing.experts).softmax(-1))


def test_detached_gates_are_divided_by_a_constant():
    """Values of Eq. 2 up to ε; the gradient is that of p over a constant, expert by expert."""
    (module, joint), x = (router(1, renormalise=mode) for mode in ("detached", True)), random(2, T, WIDTH)
    routing, upstream = module(x), random(3, T, module.k)
    torch.testing.assert_close(routing.gates, joint(x).gates, rtol=1e-5, atol=0)
    gradient, through_sum = (
        torch.autograd.grad((routed(x).gates * upstream).sum(), routed.weight)[0] for routed in (module, joint)
    )
    p = (x @ module.weight.T).softmax(-1)
    literal = 0
    for t in range(T):
        total = sum(p[t, e].item() for e in routing.experts[t]) + 1e-6
        literal = literal + sum(upstream[t, i] * p[t, e] / total for i, e in enumerate(routing.experts[t]))
    torch.testing.assert_close(gradient, torch.autograd.grad(literal, module.weight)[0])
    assert not torch.allclose(gradient, through_sum, rtol=0.1)


@pytest.mark.parametrize("floor", [0.0, 0.01])
def test_noise_is_eq_3_in_training_and_nothing_in_evaluation(floor):
    """With the floor it is the authors' code's."""
    module, x = router(3, noisy=True, floor=floor), random(4, T, WIDTH)
    torch.manual_seed(5)
    logits = module(x).logits
    torch.manual_seed(5)
    noise = torch.randn(T, E, dtype=torch.float64)
    size = torch.stack([torch.stack([(1 + torch.dot(w, row).exp()).log() + floor for w in module.noise]) for row in x])
    torch.testing.assert_close(logits, x @ module.weight.T + noise * size)
    assert not torch.equal(module(x).logits, logits)
    module.eval()
    torch.testing.assert_close(module(x).logits, x @ module.weight.T)


# ---- losses


def literal_losses(routing):
    """Balance, z and cv of one module, expert by expert and row by row."""
    p, rows = routing.probabilities, len(routing.logits)
    number, k = p.shape[1], routing.experts.shape[1]
    balance, importances = 0.0, []
    for e in range(number):
        choices = [(t, i) for t in range(rows) for i in range(k) if routing.experts[t, i] == e]
        balance = balance + len(choices) / (rows * k) * sum(p[t, e] for t in range(rows)) / rows
        importances.append(sum((routing.gates[t, i] for t, i in choices), torch.zeros((), dtype=p.dtype)))
    z = sum(row.exp().sum().log() ** 2 for row in routing.logits) / rows
    mean = sum(importances) / number
    variance = sum((importance - mean) ** 2 for importance in importances) / number
    return number * balance, z, variance / mean**2


@given(seed=seeds, k=st.integers(1, E), renormalise=st.booleans())
def test_losses_are_the_literal_ones_with_their_gradients(seed, k, renormalise):
    module, x = router(seed, k=k, renormalise=renormalise), random(seed + 9, T, WIDTH).requires_grad_()
    inputs = [x, module.weight]
    for value, expected in zip(routing_losses(routing_sums(module(x))), literal_losses(module(x)), strict=True):
        torch.testing.assert_close(value, expected)
        grads = [torch.autograd.grad(loss, inputs, retain_graph=True) for loss in (value, expected)]
        torch.testing.assert_close(*grads)


def test_no_rows_cost_nothing():
    losses = routing_losses(routing_sums(router(10)(torch.zeros(0, WIDTH, dtype=torch.float64))))
    assert [loss.item() for loss in losses] == [0.0, 0.0, 0.0]


def recorded(seeds, lengths=(3, 2, 4)):
    """Records of a pass through modules of different places, one for each seed."""
    modules = torch.nn.ModuleList([build(seed) for seed in seeds])
    x, _, layout, _ = packed_rows(sentences(20, lengths), [], "encoder", 6)
    with record_heads(modules, weights=False) as records:
        for module in modules:
            module(x, None, layout)
    return modules, records


def test_what_a_method_adds_is_the_weighted_sum_over_its_modules():
    modules, records = recorded([11, 12])
    by_module = [literal_losses(record.routing) for record in records]
    balance, z, cv = (sum(losses) for losses in zip(*by_module, strict=True))
    options = {**MOA, "balance": 0.3, "z": 0.02, "cv": 0.5}
    expected = 0.3 * balance + 0.02 * z + 0.5 * cv
    torch.testing.assert_close(make_method(options).aux_loss(modules, records, 0.0, 90), expected)
    as_coded = make_method({**options, "added": "sum"}).aux_loss(modules, records, 0.0, 90)
    torch.testing.assert_close(as_coded, expected / 90)
    torch.testing.assert_close(make_method(MOA).aux_loss(modules, records, 0.0, 90), 0.01 * balance + 0.001 * z)


def test_the_losses_of_routers_of_other_sizes_add_up():
    methods = [make_method({**MOA, "experts": experts}) for experts in (3, 5)]
    modules = torch.nn.ModuleList(headdiv.MultiheadAttention(12, 4, method) for method in methods)
    x = random(1, 4, 2, 12, dtype=torch.float32)
    with record_heads(modules) as records:
        for module in modules:
            module(x, x, x)
    alone = [methods[0].aux_loss(modules, [record], 0.0, 7) for record in records]
    torch.testing.assert_close(methods[0].aux_loss(modules, records, 0.0, 7), sum(alone))


# ---- what it has learnt


@given(seed=seeds, rows=st.integers(0, 30))
def test_words_are_counted_by_expert(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    experts = torch.rand(rows, 4, generator=generator).argsort(1)[:, :2]
    words = torch.randint(6, (rows,), generator=generator)
    expected = torch.zeros(4, 6, dtype=torch.int64)
    for row, word in zip(experts.tolist(), words.tolist(), strict=True):
        for e in row:
            expected[e, word] += 1
    assert torch.equal(words_by_expert(experts, words, 4, 6), expected)


def test_typical_words_are_those_an_expert_serves_more_than_the_others_do():
    counts = torch.tensor(
        [
            # every expert alike, all here, rare, half and half, twice the same ratio
            [6, 9, 2, 5, 5, 5],
            [6, 0, 0, 5, 0, 0],
            [6, 0, 0, 0, 0, 0],
        ]
    )
    first, second, third = typical_words(counts)
    n = counts.sum().item()
    share = n / counts[0].sum().item()
    assert [(word, count) for word, _, count in first] == [(1, 9), (4, 5), (5, 5)]
    assert [ratio for _, ratio, _ in first] == pytest.approx([share] * 3)
    assert second == [(3, pytest.approx(0.5 * n / 11), 5), (0, pytest.approx(n / 3 / 11), 6)]
    assert third == [(0, pytest.approx(n / 3 / 6), 6)]
    assert typical_words(counts, top=1)[0] == [first[0]]
    assert (2, pytest.approx(share), 2) in typical_words(counts, least=1)[0]
    assert typical_words(torch.full((3, 4), 9)) == [[], [], []]  # no difference is no preference
    assert typical_words(torch.zeros(2, 3, dtype=torch.int64)) == [[], []]


def two_layers(records):
    return [replace(record, spec=replace(record.spec, layer=layer)) for layer, record in enumerate(records)]


def decode_token(kind, index):
    return f"{kind} {index}"


def test_statistics_are_over_all_batches_and_by_place():
    first, second = (two_layers(recorded([15, 16], lengths)[1]) for lengths in ((3, 2, 4), (5,)))
    words = [torch.tensor([0, 1, 0, 2, 0, 1, 0, 0, 2]), torch.tensor([0, 0, 1, 2, 0])]
    batches = [Observed(first, {}, {"encoder": words[0]}), Observed(second, {}, {"encoder": words[1]})]
    results = router_statistics(ValidationSplit(lambda: iter(batches), 4, decode_token))
    assert json.loads(json.dumps(results)) == results
    assert list(results) == ["router"]
    assert list(results["router"]) == ["encoder 1", "encoder 2"]
    for number, place in enumerate(results["router"].values()):
        routings = [first[number].routing, second[number].routing]
        experts, gates, p = (
            torch.cat([getattr(r, name) for r in routings]) for name in ("experts", "gates", "probabilities")
        )
        assert place["tokens"] == 14
        for e in range(E):
            at = experts == e
            assert place["load"][e] == pytest.approx(at.sum().item() / (14 * TOP), abs=1e-6)
            assert place["gate"][e] == pytest.approx(gates[at].mean().item() if at.any() else 0.0, abs=1e-6)
        entropy = -(p * p.log()).sum(1).mean().item()
        assert place["entropy"] == pytest.approx(entropy, abs=1e-6)
        expected = typical_words(words_by_expert(experts, torch.cat(words), E, 4))
        assert place["words"] == [
            [{"word": f"encoder {word}", "ratio": round(ratio, 3), "count": count} for word, ratio, count in row]
            for row in expected
        ]
        assert any(place["words"])
