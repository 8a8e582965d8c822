"""Losses on heads against their formulas, written out with loops over heads, tokens, channels and permutations."""

import itertools
import math

import pytest
import torch
from examples import PLACES, heads_by_sentence, made_up_heads, record_of, some_pairs, tiny, watched_pass
from small_model import make_batch

from headdiv.core.errors import TrainingError
from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.losses import GramDeterminant, disagreement, kernel, linear_cka
from headdiv.nn.records import record_heads

for_terms = pytest.mark.parametrize("term", PLACES)


def entries(matrix):
    return [value for row in matrix.tolist() for value in row]


def cosine(a, b):
    """Of two matrices: the sum of products of equal entries, by both lengths."""
    a, b = entries(a), entries(b)
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def literal_disagreement(term, A, V, Z):
    """D of one sentence."""
    H, N = A.shape[:2]
    total = 0.0
    for i in range(H):
        for j in range(H):
            if term == "position":
                total += sum(abs(x * y) for x, y in zip(entries(A[i]), entries(A[j]), strict=True)) / N
            else:
                x = V if term == "subspace" else Z
                total += cosine(x[i], x[j])
    return -total / H**2


def literal_kernel(term, A, V, Z):
    """L of one sentence, entry by entry."""
    H, N = A.shape[:2]
    q = []
    for i in range(H):
        entropy = sum(-p * math.log(p) for row in A[i].tolist() for p in row if p > 0) / N
        q.append(1 / (1 + entropy))
    phi = {"position": A, "subspace": V, "output": Z}[term]
    return [[q[i] * cosine(phi[i], phi[j]) * q[j] for j in range(H)] for i in range(H)]


def literal_determinant(term, A, V, Z):
    """det L of one sentence: Leibniz's sum over permutations."""
    L = literal_kernel(term, A, V, Z)
    n, total = len(L), 0.0
    for p in itertools.permutations(range(n)):
        inversions = sum(p[i] > p[j] for i in range(n) for j in range(i + 1, n))
        total += (-1) ** inversions * math.prod(L[i][p[i]] for i in range(n))
    return total


def determinant(record, term):
    return GramDeterminant.apply(kernel(record, term))


def orthogonality(record, term):
    return make_method({"name": "orthogonality", "term": term}).differences([record])[0]


def literal_orthogonality(term, A, V, Z):
    x = {"position": A, "subspace": V, "output": Z}[term]
    pairs = list(itertools.permutations(range(len(x)), 2))
    return -sum(cosine(x[i], x[j]) ** 2 for i, j in pairs) / len(pairs)


LOSSES = {
    "disagreement": (disagreement, literal_disagreement),
    "dpp": (determinant, literal_determinant),
    "orthogonality": (orthogonality, literal_orthogonality),
}
for_losses = pytest.mark.parametrize("name", LOSSES)

# ---- what all are


@for_losses
@for_terms
def test_the_loss_is_the_literal_one(name, term):
    """Sum over the sentences, mean over the modules of these kinds, for each prediction."""
    kinds = ["encoder", "cross"]
    model, method = tiny({"name": name, "term": term, "weight": 0.7, "kinds": kinds}, encoder_layers=2)
    pairs = some_pairs(5, seed=3)
    lines = heads_by_sentence(model, pairs)
    _, literal = LOSSES[name]
    expected = [literal(term, *heads) for line in lines for spec, *heads in line if spec.kind in kinds]
    hidden, added = watched_pass(model, method, make_batch(pairs, range(5)))
    assert added.item() == pytest.approx(-0.7 * sum(expected) / (len(expected) / 5) / len(hidden), rel=1e-9)


@for_losses
@for_terms
@pytest.mark.parametrize("equal", [0, 2])
def test_the_gradient_is_that_of_the_formula(name, term, equal):
    heads = [x.clone() for x in made_up_heads(4, N=2, S=3)]
    for x in heads:
        x[:equal] = x[:1].clone()
    of_record, _ = LOSSES[name]
    heads = [x.requires_grad_() for x in heads]
    assert torch.autograd.gradcheck(lambda *x: of_record(record_of(*x), term), heads)


@for_losses
@for_terms
@pytest.mark.parametrize("case", ["all equal", "all zero", "nearly zero", "one-hot"])
def test_gradients_stay_finite(name, term, case):
    heads = [x.clone() for x in made_up_heads(2, dtype=torch.float32)]
    for x in heads:
        if case == "all equal":
            x[:] = x[0].clone()
        elif case != "one-hot" and x is not heads[0]:
            x *= 1e-18 if case == "nearly zero" else 0
    if case == "one-hot":
        heads[0] = torch.eye(5)[:4].repeat(3, 1, 1)
    for x in heads:
        x.requires_grad_()
    of_record, _ = LOSSES[name]
    value = of_record(record_of(*heads), term).sum()
    value.backward()
    assert -1 - 1e-6 <= value.item() <= 1
    for x in heads:
        assert x.grad is None or (x.grad.isfinite().all() and x.grad.abs().max() < 1000)


@for_losses
@for_terms
def test_an_example_of_padding_alone_adds_nothing(name, term):
    torch.manual_seed(1)
    method = make_method({"name": name, "term": term})
    module = MultiheadAttention(8, 2, method, batch_first=True)
    x, losses = torch.randn(3, 4, 8), []
    for count in (2, 3):
        padding = torch.zeros(count, 4, dtype=torch.bool)
        padding[2:] = True
        with record_heads(module, weights=True) as records:
            module(*[x[:count]] * 3, padding)
        losses.append(method.aux_loss(module, records, 0.0, 1))
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["disagreement", "dpp", "orthogonality"])
def test_the_mean_over_two_ranks_is_the_loss_of_the_whole_batch(name, monkeypatch):
    """Each has half of the sentences; ``count`` is of both."""
    pairs = some_pairs(6)
    model, method = tiny({"name": name, "term": "output"})
    losses = []
    for ranks, shares in ((1, [range(6)]), (2, [range(2), range(2, 6)])):
        monkeypatch.setattr("headdiv.core.distributed.world", lambda ranks=ranks: ranks)
        added = []
        for share in shares:
            with record_heads(model) as records:
                model(make_batch(pairs, share))
            added.append(method.aux_loss(model, records, 0.0, 30))
        losses.append(sum(added) / ranks)
    assert losses[0]
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("name", ["disagreement", "dpp", "orthogonality", "hsic"])
def test_autocast_around_the_loss_changes_nothing(name):
    """Lightning's training step is within it; headdiv's trainer takes the loss outside."""
    torch.manual_seed(1)
    method = make_method({"name": name, "term": "output"})
    module, x = MultiheadAttention(12, 3, method), torch.randn(4, 2, 12)
    with record_heads(module) as records, torch.autocast("cpu", torch.bfloat16):
        module(x, x, x)
    results = []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = method.aux_loss(module, records, 0.0, 7)
        results.append([loss, *torch.autograd.grad(loss, [record.outputs for record in records], retain_graph=True)])
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["disagreement", "dpp", "orthogonality", "hsic"])
def test_modules_may_have_other_numbers_of_heads_and_of_sentences(name):
    """As Swin's stages and CLIP's two towers have: the loss is the mean of each module's alone."""
    torch.manual_seed(1)
    method = make_method({"name": name, "term": "output", "weight": 0.7})
    modules = torch.nn.ModuleList([MultiheadAttention(12, heads, method) for heads in (2, 3, 2, 3)])
    with record_heads(modules) as records:
        for module, B in zip(modules, (2, 2, 5, 2), strict=True):
            x = torch.randn(4, B, 12)
            module(x, x, x)
    alone = [method.aux_loss(modules, [record], 0.0, 7) for record in records]
    torch.testing.assert_close(method.aux_loss(modules, records, 0.0, 7), sum(alone) / 4)


@pytest.mark.parametrize("options", [{"name": "dpp", "term": "output"}, {"name": "disagreement", "term": "position"}])
def test_records_without_the_weights_that_are_compared_are_named(options):
    model, method = tiny(options)
    with record_heads(model, weights=False) as records:
        model(make_batch(some_pairs(), range(2)))
    with pytest.raises(TrainingError, match=r"records without attention weights; expected .*weights=True"):
        method.aux_loss(model, records, 0.0, 1)


# ---- disagreement


def test_a_zero_head_has_cosine_zero():
    A, V, Z = made_up_heads(3)
    without = [cosine(V[i], V[j]) for i in (1, 2) for j in (1, 2)]
    V = torch.cat([torch.zeros_like(V[:1]), V[1:]])
    assert disagreement(record_of(A, V, Z), "subspace").item() == pytest.approx(-sum(without) / 9)


# ---- HSIC


def literal_cka(x):
    """Of every two heads of rows (T, H, K), entry by entry."""
    T, H, K = x.shape
    centred = [[[x[t, h, k] - sum(x[:, h, k]) / T for k in range(K)] for t in range(T)] for h in range(H)]

    def dependence(i, j):
        products = itertools.product(range(K), range(K))
        return sum(sum(centred[i][t][a] * centred[j][t][b] for t in range(T)) ** 2 for a, b in products)

    return [[dependence(i, j) / math.sqrt(dependence(i, i) * dependence(j, j)) for j in range(H)] for i in range(H)]


def test_cka_is_the_literal_one_and_what_the_results_report():
    x = torch.randn(7, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(linear_cka(x), torch.tensor(literal_cka(x.numpy()), dtype=torch.float64))
    x = torch.cat([x, x[:, :1] @ torch.tensor([[0.0, 2.0], [-2.0, 0.0]], dtype=x.dtype), torch.ones(7, 1, 2)], dim=1)
    cka = linear_cka(x)
    assert cka[0, 3].item() == pytest.approx(1)  # a rotation changes nothing
    assert not cka[4].any()  # a constant head depends on none
    assert torch.autograd.gradcheck(linear_cka, x.requires_grad_())
    small = torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(linear_cka(1e-6 * small), linear_cka(small))
    one_small = small * torch.tensor([1.0, 1e-6])[:, None]  # a head does not become different by becoming small
    torch.testing.assert_close(linear_cka(one_small), linear_cka(small))


@pytest.mark.parametrize("term", ["subspace", "output"])
def test_hsic_is_of_all_rows_of_the_batch_and_counts_for_each_sentence(term):
    model, method = tiny({"name": "hsic", "term": term, "weight": 0.7})
    pairs = some_pairs(5, seed=3)
    hidden, added = watched_pass(model, method, make_batch(pairs, range(5)))
    expected = []
    for module in zip(*heads_by_sentence(model, pairs), strict=True):
        heads = [V if term == "subspace" else Z for _, _, V, Z in module]
        cka = literal_cka(torch.cat(heads, dim=1).transpose(0, 1).detach().numpy())
        expected.append((sum(map(sum, cka)) - 3) / 6)
    assert added.item() == pytest.approx(0.7 * 5 * sum(expected) / len(expected) / len(hidden))


# ---- DPP


def test_one_where_heads_are_sharp_and_orthogonal_and_zero_where_they_coincide():
    sharp = torch.stack([torch.eye(4, dtype=torch.float64).roll(i, 1) for i in range(4)])  # (H, N, S)
    assert determinant(record_of(sharp, sharp, sharp), "position").item() == pytest.approx(1, abs=1e-12)
    heads = [x.clone() for x in made_up_heads(7)]
    for x in heads[1:]:
        x[2] = -3 * x[0]
    for term in ("subspace", "output"):
        assert determinant(record_of(*heads), term).item() == pytest.approx(0, abs=1e-12)
