"""Mixtures of attention heads: against a loop over every expert and token."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from moa_parts import KINDS, MOA, TOP, E, both_rows, build
from packed import D, packed_rows, run_literal, run_packed, with_gradients
from small_model import count_parameters
from torch.utils.flop_counter import FlopCounterMode

from headdiv.methods import make_method
from headdiv.methods.moa import ExpertProduct, MixtureAttention
from headdiv.nn.sizes import AttentionSpec

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
    queries, memory = both_rows(seed + 50, kind, lengths)
    results = with_gradients(module, queries, memory, run_packed(module, kind, width))
    expected = with_gradients(module, queries, memory, run_literal(module, kind, literal_mixture))
    torch.testing.assert_close(results, expected)


# ---- the products


@pytest.mark.parametrize("kind", KINDS)
def test_only_chosen_experts_are_computed(kind):
    """More experts are more work for the router, forward and backward, and for nothing else."""

    def flops(experts):
        queries, memory = both_rows(8, kind)
        x, context, layout, _ = packed_rows(queries, memory, kind, 8)
        with FlopCounterMode(display=False) as counted:
            build(7, kind, experts=experts)(x.requires_grad_(), context, layout).sum().backward()
        return counted.get_total_flops(), len(x)

    (few, T), (many, _) = flops(4), flops(32)
    assert many - few == 3 * 2 * T * D * (32 - 4)


# ---- gradients of gradients


def test_second_derivatives_of_the_expert_product_are_those_of_differences():
    x, weight = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (2, 3, 2)))
    sources, targets = (torch.tensor([0, 2]), torch.tensor([1, 2, 3])), (torch.tensor([1, 0]), torch.tensor([0, 1, 1]))

    def product(x, weight):
        return ExpertProduct.apply(x, weight, sources, targets, 2)

    assert torch.autograd.gradgradcheck(product, (x, weight))


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


def test_the_options_reach_module_and_router():
    options = {**MOA, "d_head": 7, "noisy": True, "noise_floor": 0.01, "renormalise": "detached"}
    module = make_method(options).attention(AttentionSpec("encoder", 0, 12, 3))
    router = module.router
    assert (module.head_width, router.k, router.renormalise, router.floor) == (7, TOP, "detached", 0.01)
    assert router.noise is not None
