"""Mixtures of attention heads with random parameters, and sentences for them: shared by their tests."""

from packed import D, K, randomly, sentences

from headdiv.methods.moa import MixtureAttention
from headdiv.nn.sizes import AttentionSpec

KINDS = ["encoder", "decoder", "cross"]
E, TOP = 5, 3
MOA = {"name": "moa", "experts": E, "k": TOP}
LENGTHS = [(3, 2), (1, 5), (4, 4), (2, 1)]


def build(seed, kind="encoder", bias=True, experts=E, k=TOP, d_head=K, **options):
    return randomly(seed, MixtureAttention(AttentionSpec(kind, 0, D, 2, bias), experts, k, d_head, **options))


def both_rows(seed, kind, lengths=LENGTHS):
    queries, keys = (sentences(seed + 100 * side, [pair[side] for pair in lengths]) for side in (0, 1))
    return queries, keys if kind == "cross" else None
