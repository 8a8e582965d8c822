"""Attention on packed rows and written out with loops: shared by the tests of attention."""

import math

import torch

from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout, assign_windows, attention_mask, pack
from headdiv.nn.sizes import AttentionSpec

D, H, K = 6, 2, 3


def random(seed, *shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def randomly(seed, module):
    """The module in float64, every parameter drawn."""
    with torch.no_grad():
        for i, parameter in enumerate(module.double().parameters()):
            parameter.copy_(random(seed + i, *parameter.shape))
    return module


def build(seed, kind="encoder", bias=True):
    return randomly(seed, MultiHeadAttention(AttentionSpec(kind, 0, D, H, bias)))


def sentences(seed, lengths):
    return [random(seed + i, length, D) for i, length in enumerate(lengths)]


def packed_rows(queries, keys, kind, width):
    """Rows of queries and keys in the windows' order, their layout, and that order. Self-attention has no ``keys``."""
    n = [len(q) for q in queries]
    s = [len(k) for k in keys] if kind == "cross" else n
    windows = assign_windows(n, s, width=width)
    order = [i for window in windows for i in window]
    q, k = pack(n, windows), pack(s, windows)
    layout = AttentionLayout(q, k, attention_mask(q, k, causal=kind == "decoder"))
    x = torch.cat([queries[i] for i in order])
    memory = torch.cat([keys[i] for i in order]) if kind == "cross" else None
    return x, memory, layout, order


def unpack(rows, layout, order):
    """Back to a list of sentences as they were before `packed_rows`."""
    parts = rows.split(layout.queries.lengths.tolist())
    return [parts[order.index(i)] for i in range(len(order))]


def literal_attention(module, queries, keys, kind):
    """Vaswani et al., Eq. 1, for one sentence, head by head and token by token."""
    wq, wk, wv = module.in_projection.weight.view(3, H, K, D)
    bq, bk, bv = (torch.zeros(3, H, K) if module.in_projection.bias is None else module.in_projection.bias).view(
        3, H, K
    )
    lines = []
    for n, x in enumerate(queries):
        heads = []
        for h in range(H):
            q = wq[h] @ x + bq[h]
            visible = keys[: n + 1] if kind == "decoder" else keys
            scores = [torch.dot(q, wk[h] @ y + bk[h]) / math.sqrt(K) for y in visible]
            total = sum(score.exp() for score in scores)
            heads.append(sum(s.exp() / total * (wv[h] @ y + bv[h]) for s, y in zip(scores, visible, strict=True)))
        lines.append(torch.cat(heads))
    return module.output(torch.stack(lines))


def with_gradients(module, x, memory, run):
    """Outputs of ``run`` and the gradients of a fixed weighting of them, for inputs and parameters."""
    module.zero_grad()
    inputs = [y.detach().requires_grad_() for y in (*x, *(memory or []))]
    outputs = run(inputs[: len(x)], inputs[len(x) :])
    sum((random(i, *y.shape) * y).sum() for i, y in enumerate(outputs)).backward()
    return [
        *(y.detach() for y in outputs),
        *(y.grad for y in inputs),
        *(p.grad.clone() for p in module.parameters()),
    ]


def run_packed(module, kind, width):
    def run(queries, keys):
        x, memory, layout, order = packed_rows(queries, keys, kind, width)
        return unpack(module(x, memory, layout), layout, order)

    return run


def run_literal(module, kind, literal=literal_attention):
    def run(queries, keys):
        others = keys if kind == "cross" else queries
        return [literal(module, q, k, kind) for q, k in zip(queries, others, strict=True)]

    return run
