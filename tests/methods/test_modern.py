"""Talking heads, DropHead, gates, differential attention and mixture of heads: literal twins, limits, schedules."""

import copy
import math

import pytest
import torch
from examples import some_pairs, tiny
from hypothesis import given
from hypothesis import strategies as st
from small_model import count_parameters, make_batch

import headdiv
from headdiv.methods import make_method
from headdiv.methods.drop_head import kept_heads
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.moh import MixtureOfHeads
from headdiv.nn.packing import AttentionLayout, attention_mask, pack
from headdiv.nn.records import record_heads
from headdiv.nn.sizes import AttentionSpec

H, K, D, N, S = 4, 2, 8, 3, 5
seeds = st.integers(0, 1000)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def module_of(options, seed, layer=1):
    """A module with random parameters, in float64."""
    module = make_method(options).attention(AttentionSpec("cross", layer, D, H, bias=True)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator)
    return module


def run(module, seed):
    """One sentence's rows x (N, D) and memory (S, D), the output (N, D), and the head record."""
    queries, keys = pack([N], [[0]]), pack([S], [[0]])
    layout = AttentionLayout(queries, keys, attention_mask(queries, keys).double())
    x, memory = random(N, D, seed=seed), random(S, D, seed=seed + 1)
    with record_heads(module) as records:
        output = module(x, memory, layout)
    return x, memory, output, records[0]


def projected(module, x, memory):
    """q (H, N, K), k and v (H, S, K)."""
    weights, biases = module.in_projection.weight.chunk(3), module.in_projection.bias.chunk(3)
    parts = [rows @ W.T + b for rows, W, b in zip((x, memory, memory), weights, biases, strict=True)]
    return [part.view(len(part), H, K).transpose(0, 1) for part in parts]


def check(module, x, memory, output, record, weights, heads):
    """The record and W^O of these weights (h, N, S) and heads (h, N, width)."""
    torch.testing.assert_close(record.weights[0], weights)
    torch.testing.assert_close(record.outputs.transpose(0, 1), heads)
    joined = torch.cat(list(heads), dim=1)
    torch.testing.assert_close(output, joined @ module.output.weight.T + module.output.bias)


@given(seeds)
def test_talking_heads_are_the_literal_ones(seed):
    module = module_of({"name": "talking-heads"}, seed)
    x, memory, output, record = run(module, seed)
    q, k, v = projected(module, x, memory)
    logits = [q[h] @ k[h].T / math.sqrt(K) for h in range(H)]
    mixed = [sum(logits[h] * module.mix_logits[h, g] for h in range(H)) for g in range(H)]
    p = [torch.softmax(each, dim=-1) for each in mixed]
    weights = torch.stack([sum(p[h] * module.mix_weights[h, g] for h in range(H)) for g in range(H)])
    check(module, x, memory, output, record, weights, torch.stack([weights[h] @ v[h] for h in range(H)]))


@given(seeds, st.sampled_from(["elementwise", "headwise"]))
def test_gates_are_the_literal_ones(seed, gates):
    module = module_of({"name": "gated", "gates": gates}, seed)
    x, memory, output, record = run(module, seed)
    q, k, v = projected(module, x, memory)
    weights = torch.stack([torch.softmax(q[h] @ k[h].T / math.sqrt(K), dim=-1) for h in range(H)])
    width = K if gates == "elementwise" else 1
    W = module.gate.weight.view(H, width, D)
    heads = [(weights[h] @ v[h]) / (1 + torch.exp(-x @ W[h].T)) for h in range(H)]
    check(module, x, memory, output, record, weights, torch.stack(heads))


@given(seeds, st.sampled_from(["halved", "kept"]), st.integers(0, 5))
def test_differential_attention_is_the_literal_one(seed, heads, layer):
    module = module_of({"name": "differential", "heads": heads}, seed, layer)
    x, memory, output, record = run(module, seed)
    q, k, v = projected(module, x, memory)
    h, width = (H // 2, K) if heads == "halved" else (H, K // 2)
    wide_q, wide_k, wide_v = (torch.cat(list(part), dim=1) for part in (q, k, v))  # (rows, D)
    start = 0.8 - 0.6 * math.exp(-0.3 * ((layer + 1) - 1))
    q1, k1, q2, k2 = module.lambdas
    factor = torch.exp(q1 @ k1) - torch.exp(q2 @ k2) + start
    weights, outputs = [], []
    for i in range(h):
        maps = []
        for part in (2 * i, 2 * i + 1):
            columns = slice(part * width, (part + 1) * width)
            maps.append(torch.softmax(wide_q[:, columns] @ wide_k[:, columns].T / math.sqrt(width), dim=-1))
        weights.append(maps[0] - factor * maps[1])
        z = weights[-1] @ wide_v[:, 2 * i * width : 2 * (i + 1) * width]
        outputs.append((1 - start) * z / (z.square().mean(1, keepdim=True) + 1e-5).sqrt() * module.norm.weight)
    check(module, x, memory, output, record, torch.stack(weights), torch.stack(outputs))
    assert (record.spec.heads, record.spec.d_head) == (h, 2 * width)


@given(seeds, st.integers(1, 3), st.integers(1, 3), st.sampled_from(["coded", "printed"]))
def test_mixture_of_heads_is_the_literal_one(seed, shared, k, equations):
    """Eqs. 5 to 8 of the paper, or forward() of MoHAttention in the authors' code, token by token."""
    k = min(k, H - shared)
    options = {"name": "moh", "shared": shared, "k": k, "gates": equations}
    module = module_of(options, seed)
    assert isinstance(module, MixtureOfHeads)
    x, memory, output, record = run(module, seed)
    q, keys, v = projected(module, x, memory)
    weights = torch.stack([torch.softmax(q[h] @ keys[h].T / math.sqrt(K), dim=-1) for h in range(H)])
    gates, P, f = torch.zeros(N, H, dtype=torch.float64), torch.zeros(H - shared), torch.zeros(H - shared)
    for t in range(N):
        alpha = torch.softmax(module.types.weight @ x[t], dim=0)
        always = torch.softmax(module.shared.weight @ x[t], dim=0)
        routed = torch.softmax(module.router.weight @ x[t], dim=0)
        P = P + routed / N
        best = sorted(range(H - shared), key=lambda h: -routed[h])[:k]
        for h in range(shared):
            gates[t, h] = alpha[0] * always[h]
        for h in best:
            gates[t, shared + h] = alpha[1] * routed[h]
            f[h] += 1 / N
        if equations == "coded":
            gates[t, :shared] *= 2 * shared
            gates[t, shared:] *= 2 * k / sum(routed[h] for h in best)
    heads = torch.stack([gates[:, h, None] * (weights[h] @ v[h]) for h in range(H)])
    check(module, x, memory, output, record, weights, heads)
    loss = make_method({**options, "balance": 0.5}).aux_loss(module, [record, record], 0.0, 7)
    torch.testing.assert_close(loss, 2 * 0.5 * (f * P).sum())


@pytest.mark.parametrize("options", [{"name": "moh", "shared": 1, "k": 2}, {"name": "moa", "experts": 4, "k": 2}])
def test_routers_choose_in_float32_in_a_bfloat16_module_that_can_be_copied_after_a_pass(options):
    torch.manual_seed(1)
    module = headdiv.MultiheadAttention(12, H, make_method(options), batch_first=True, dtype=torch.bfloat16)
    x = torch.randn(2, 5, 12, dtype=torch.bfloat16)
    with headdiv.record_heads(module) as records:
        found = module(x, x, x, need_weights=False)[0]
    assert (found.dtype, records[0].routing.probabilities.dtype) == (torch.bfloat16, torch.float32)
    found.sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters() if p.grad is not None)
    torch.testing.assert_close(copy.deepcopy(module)(x, x, x)[0], module(x, x, x)[0])


# ---- DropHead


@given(seeds, st.floats(0, 0.99))
def test_dropped_heads_are_the_literal_ones(seed, rate):
    draws = torch.rand(6, H, generator=torch.Generator().manual_seed(seed))
    for row, factors in zip(draws.tolist(), kept_heads(draws, rate).tolist(), strict=True):
        kept = [draw >= rate for draw in row]
        if not any(kept):
            kept[row.index(max(row))] = True
        assert factors == pytest.approx([H / sum(kept) if keep else 0.0 for keep in kept])


def test_heads_are_dropped_by_sentence_in_training_alone():
    model, method = tiny({"name": "drop-head", "start": 0.5}, torch.float32)
    batch = make_batch(some_pairs(), range(6))
    with torch.no_grad():
        torch.testing.assert_close(model(batch), tiny({"name": "baseline"}, torch.float32)[0](batch))
        with record_heads(model.train()) as records:
            model(batch)
    dropped = 0
    for record in records:
        gone = (record.outputs == 0).all(-1)  # (T, H)
        dropped += int(gone.sum())
        assert not gone.all(dim=1).any()
        for rows in gone.split(record.layout.queries.lengths.tolist()):
            assert (rows == rows[0]).all()
    assert dropped
    rates = []
    for progress in (0.0, 0.05, 0.1, 0.55, 1.0):
        method.after_backward(model, progress)
        rates.append(model.encoder[0].attention["encoder"].rate.item())
    assert rates == pytest.approx([0.5, 0.25, 0.0, 0.1, 0.2])
    assert "encoder.0.attention.encoder.rate" in model.state_dict()


# ---- limits and counts


def test_talking_heads_start_as_the_baseline():
    batch = make_batch(some_pairs(), range(6))
    fresh, baseline = (tiny({"name": name})[0](batch) for name in ("talking-heads", "baseline"))
    torch.testing.assert_close(fresh, baseline)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"name": "talking-heads"}, 2 * 8**2),
        ({"name": "drop-head"}, 0),
        ({"name": "gated"}, 64**2),
        ({"name": "gated", "gates": "headwise"}, 64 * 8),
        ({"name": "differential"}, 4 * 8 + 2 * 8),
        ({"name": "moh"}, 64 * (2 + 6 + 2)),
    ],
    ids=str,
)
def test_parameters_beside_the_baselines(options, more):
    spec = AttentionSpec("encoder", 0, 64, 8)
    counts = [count_parameters(make_method(each).attention(spec)) for each in (options, {"name": "baseline"})]
    assert counts[0] - counts[1] == more


def test_the_losses_of_routers_of_other_sizes_add_up():
    moh, moa = make_method({"name": "moh", "shared": 1, "k": 2}), {"name": "moa", "k": 2}
    moas = [make_method({**moa, "experts": experts}) for experts in (3, 5)]
    for made, method in (([(4, moh), (6, moh)], moh), ([(4, moas[0]), (4, moas[1])], moas[0])):
        torch.manual_seed(1)
        modules, x = torch.nn.ModuleList([MultiheadAttention(12, *each) for each in made]), torch.randn(4, 2, 12)
        with record_heads(modules) as records:
            for module in modules:
                module(x, x, x)
        alone = [method.aux_loss(modules, [record], 0.0, 7) for record in records]
        torch.testing.assert_close(method.aux_loss(modules, records, 0.0, 7), sum(alone))
