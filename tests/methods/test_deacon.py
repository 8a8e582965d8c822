"""DEACON's output stages against the paper's equations written out, and its update of w."""

import itertools

import numpy as np
import pytest
import torch
from examples import ARCHITECTURES, deacon, trained_one_step
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import random
from torch import nn

from headdiv.core.errors import TrainingError
from headdiv.gha import deacon_update, gha_inner_loop
from headdiv.methods import make_method
from headdiv.methods.deacon import OUTPUTS, collected_moments, nonlinear_inputs, pca_layers, pca_weights
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.sizes import AttentionSpec

SPEC = AttentionSpec("encoder", 0, d_model=12, heads=3)
H, K = SPEC.heads, SPEC.d_head
seeds = st.integers(0, 2**31 - 1)


def output_stage(architecture, seed, m=2):
    """With nothing left at ones or zeros."""
    module = OUTPUTS[architecture](SPEC, m).double()
    with torch.no_grad():
        for i, tensor in enumerate([*module.parameters(), module.norm.running_mean]):
            tensor.copy_(random(seed + i, *tensor.shape))
        module.norm.running_var.copy_(random(seed + 50, *module.norm.running_var.shape).square() + 0.1)
    return module


# ---- the three architectures


def literal_norm(channels, norm, training):
    """Batch normalisation of (samples, channels); also the running statistics that follow."""
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    if not training:
        used = mean, variance
    else:
        n = len(channels)
        batch_mean = sum(channels) / n
        squares = sum((row - batch_mean) ** 2 for row in channels)
        used = batch_mean, squares / n
        mean = 0.9 * mean + 0.1 * batch_mean
        variance = 0.9 * variance + 0.1 * squares / (n - 1)
    return (channels - used[0]) / (used[1] + 1e-5).sqrt() * norm.weight + norm.bias, mean, variance


def literal_features(z):
    """A token's heads at one dimension (H,) -> heads, squares, products of two (k,): Eq. 31."""
    return torch.stack([*z, *(x * x for x in z), *(x * y for x, y in itertools.combinations(z, 2))])


def literal_stage(module, architecture, x, training):
    """(T, H·K) -> (T, D), the PCA layer's input rows, and BatchNorm's new running statistics."""
    T, m = len(x), module.w.shape[1]
    if architecture == "nonlinear":
        k = nonlinear_inputs(H)
        by_row = [literal_features(x[t].view(H, K)[:, j]) for t in range(T) for j in range(K)]
        rows, mean, variance = literal_norm(torch.stack(by_row), module.norm, training)  # (T·K, k)
        assert rows.shape == (T * K, k)
    else:
        normed, mean, variance = literal_norm(x, module.norm, training)
        if architecture == "direct":
            rows = torch.stack([normed[t].view(H, K)[:, j] for t in range(T) for j in range(K)])  # (T·K, H)
        else:
            rows = torch.stack([sum(normed[t].view(H, K)[:, j] for j in range(K)) / K for t in range(T)])
    y = rows @ module.w + module.b
    if architecture != "average":  # column m·K + j of a token is component m of its dimension j
        columns = torch.zeros(T, m * K, dtype=x.dtype)
        for t, j, c in itertools.product(range(T), range(K), range(m)):
            columns[t, c * K + j] = y[t * K + j, c]
        y = columns
    return y @ module.project.weight.T + module.project.bias, rows, mean, variance


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=6)
@given(seed=seeds, T=st.integers(2, 6), m=st.integers(1, 3))
def test_stage_is_the_literal_one(architecture, training, seed, T, m):
    module = output_stage(architecture, seed, m).train(training)
    x = random(seed + 99, T, H * K).requires_grad_()
    expected, rows, mean, variance = literal_stage(module, architecture, x, training)
    output = module(x)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close((module.norm.running_mean, module.norm.running_var), (mean, variance))
    weights = random(seed + 100, *output.shape)
    inputs = [x, *module.parameters()]
    grads = [torch.autograd.grad((y * weights).sum(), inputs) for y in (output, expected)]
    torch.testing.assert_close(*grads)
    if training:
        number, middle, C = module.inputs.moments
        assert number == len(rows)
        torch.testing.assert_close(middle, sum(rows.detach()) / number)
        torch.testing.assert_close(C, literal_covariance(rows.detach()))
        assert not middle.requires_grad
        assert not C.requires_grad
    else:
        assert module.inputs.moments is None


@settings(max_examples=6)
@given(seed=seeds, T=st.integers(1, 6), m=st.integers(1, 3))
def test_w_multiplied_into_the_output_projection_gives_what_eq_23_gives(seed, T, m):
    module, x = output_stage("direct", seed, m), random(seed + 99, T, H * K).requires_grad_()
    weights = random(seed + 100, T, SPEC.d_model)
    results = []
    for y in (module.literal(x), module.merged(x)):
        used = [x, module.w, module.b, *module.project.parameters()]
        results.append((y, torch.autograd.grad((y * weights).sum(), used)))
    torch.testing.assert_close(*results)


def literal_covariance(rows):
    N, k = rows.shape
    C = torch.zeros(k, k, dtype=rows.dtype)
    centred = [row - sum(rows) / N for row in rows]
    for i, j in itertools.product(range(k), range(k)):
        C[i, j] = sum(row[i] * row[j] for row in centred) / N
    return C


def test_moments_are_of_all_training_batches_since_the_last_update_and_float32_at_least():
    module = output_stage("direct", 1).float()
    module(random(2, 9, H * K).float())
    first = module.inputs.moments
    module.eval()(random(3, 9, H * K).float())
    with torch.no_grad():
        module.train()(random(3, 9, H * K).float())
    assert module.inputs.moments is first
    with torch.autocast("cpu", torch.bfloat16):
        module(random(3, 9, H * K).bfloat16())
    number, middle, C = module.inputs.moments
    assert number == 2 * 9 * K
    assert middle.dtype == C.dtype == torch.float32
    assert "moments" not in module.state_dict()


def test_of_a_half_precision_w_only_the_sum_is_rounded():
    module, method = output_stage("direct", 1).bfloat16(), make_method(deacon("direct", 2))
    C = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    w, G = (torch.eye(H, 2) + 0.003 * random(2, H, 2)).bfloat16(), random(3, H, 2).bfloat16()
    module.w.data, module.w.grad, module.inputs.moments = w.clone(), G, (9, torch.zeros(H), C)
    method.after_backward(module, 0.5)
    F = gha_inner_loop(C, w.float(), 500) - w.float()
    expected = w + deacon_update(G.float(), F, 0.2, 0.8)
    torch.testing.assert_close(module.w.data, expected.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_moments_are_collected_over_batches_in_evaluation(architecture):
    """Training's own, and the outputs, are what they are without."""
    module, batches = output_stage(architecture, 1).eval(), [random(seed, 3 + seed, H * K) for seed in range(4)]
    kept = module.inputs.moments
    with collected_moments(module) as collected:
        outputs = [module(x) for x in batches]
    rows = torch.cat([literal_stage(module, architecture, x, training=False)[1] for x in batches]).detach()
    number, mean, C = collected["encoder 1"]
    assert number == len(rows)
    torch.testing.assert_close(mean, rows.mean(0))
    torch.testing.assert_close(C, literal_covariance(rows))
    assert not C.requires_grad
    torch.testing.assert_close(outputs, [module(x) for x in batches])
    assert module.inputs.moments is kept
    with collected_moments(module) as collected:
        pass
    assert collected == {}


def test_fresh_weights_have_orthonormal_columns():
    for architecture in ARCHITECTURES:
        module = OUTPUTS[architecture](SPEC, 2)
        module.initialise(torch.Generator().manual_seed(1))
        torch.testing.assert_close(module.w.T @ module.w, torch.eye(2))
        assert (module.b == 0).all()


# ---- the update


def literal_direction(direction, C, w, steps):
    if direction == "gha":
        return gha_inner_loop(C, w, steps) - w
    if direction == "sanger":
        return C @ w - w @ torch.triu(w.T @ C @ w)
    _, vectors = torch.linalg.eigh(C)
    F = torch.zeros_like(w)
    for c in range(w.shape[1]):
        vector = vectors[:, -1 - c]
        F[:, c] = (vector if torch.dot(vector, w[:, c]) > 0 else -vector) - w[:, c]
    return F


@pytest.mark.parametrize(
    ("architecture", "direction", "dtype"),
    [
        *((architecture, "gha", torch.float64) for architecture in ARCHITECTURES),
        ("direct", "gha", torch.float32),
        ("direct", "sanger", torch.float32),
        ("average", "eigenvectors", torch.float32),
    ],
)
def test_every_w_moves_by_the_update_and_nothing_else_does(architecture, direction, dtype):
    options = deacon(architecture, m=2, direction=direction, gha_steps=40, delta_p=0.3, xi=0.7)
    model, method = trained_one_step(options, dtype)
    layers = pca_layers(model)
    assert len(layers) == 3
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    C, G = ({n: x.clone() for n, x in values} for values in (
        [(name, layer.inputs.moments[2]) for name, layer in layers.items()],
        [(name, layer.w.grad) for name, layer in layers.items()],
    ))  # fmt: skip
    others = {name: p.grad.clone() for name, p in model.named_parameters() if not name.endswith(".w")}
    method.after_backward(model, progress=0.5)
    for name, layer in layers.items():
        w = before[f"{name}.w"]
        assert C[name].dtype == layer.w.dtype == dtype
        expected = deacon_update(G[name], literal_direction(direction, C[name], w, 40), 0.3, 0.7)
        torch.testing.assert_close(layer.w - w, expected, atol=1e-5, rtol=1e-4)
        assert (layer.w - w).norm().item() == pytest.approx(0.3, rel=1e-4)
        assert layer.w.grad is None
        assert layer.inputs.moments is None  # those of the next step are its own
        assert layer.w.requires_grad
    for name, p in model.named_parameters():
        if not name.endswith(".w"):
            assert torch.equal(p, before[name])
            assert torch.equal(p.grad, others[name])


def test_a_gradient_that_overflowed_leaves_its_w_as_it_is():
    """As in a loop with torch.amp.GradScaler, whose optimiser skips such a step."""
    model, method = trained_one_step(deacon(m=2, gha_steps=5))
    overflowed, *others = pca_layers(model).values()
    overflowed.w.grad[0, 0] = torch.inf
    before = [layer.w.detach().clone() for layer in (overflowed, *others)]
    method.after_backward(model, progress=0.5)
    assert torch.equal(overflowed.w, before[0])
    assert all((layer.w - w).norm() > 0.1 for layer, w in zip(others, before[1:], strict=True))


@pytest.mark.parametrize(
    ("schedule", "progress", "length"),
    [
        ("constant", 0.75, 0.2),
        ("linear", 0.75, 0.05),
        ("linear", 1.0, 0.0),
    ],
)
def test_length_of_a_step_follows_its_schedule(schedule, progress, length):
    model, method = trained_one_step(deacon(m=2, gha_steps=5, delta_p_schedule=schedule))
    before = [layer.w.detach().clone() for layer in pca_layers(model).values()]
    method.after_backward(model, progress)
    for layer, w in zip(pca_layers(model).values(), before, strict=True):
        assert (layer.w - w).norm().item() == pytest.approx(length, rel=1e-3, abs=1e-6)


# ---- parts changed or taken away: the dissection


@pytest.mark.parametrize("architecture", ["direct", "average"])
@pytest.mark.parametrize("kind", ["none", "layer", "batch"])
def test_other_normalisations_are_the_literal_ones(architecture, kind):
    options = deacon(architecture, m=2, normalisation=kind, batch_norm_scale=0.3)
    module = make_method(options).output_stage(SPEC).double().eval()
    x = random(3, 5, H * K)
    mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, correction=0)
    layer = 0.3 * (x - mean) / (variance + 1e-5).sqrt()
    normed = {"none": x, "layer": layer, "batch": 0.3 * x / (1 + 1e-5) ** 0.5}[kind]  # running variance 1
    heads = normed.view(5, H, K)
    if architecture == "direct":
        y = torch.einsum("thk,hm->tmk", heads, module.w).flatten(1)
    else:
        y = heads.mean(2) @ module.w
    torch.testing.assert_close(module(x), y @ module.project.weight.T + module.project.bias)


@pytest.mark.parametrize(
    ("options", "moves", "own"),
    [
        ({"update": "frozen"}, [False] * 4, 3),
        ({"update": "optimiser"}, [False] * 4, 0),  # not by the method
        ({"update_every": 2}, [False, True, False, True], 3),
    ],
)
def test_w_rests_where_it_is_asked_to(options, moves, own):
    model, method = trained_one_step(deacon(m=2, gha_steps=5, **options))
    layers = list(pca_layers(model).values())
    assert len(method.own_parameters(model)) == own
    all_moments = [layer.inputs.moments for layer in layers]
    for expected in moves:
        before, G = layers[0].w.detach().clone(), torch.ones_like(layers[0].w)
        for layer, moments in zip(layers, all_moments, strict=True):
            layer.w.grad, layer.inputs.moments = G.clone(), moments
        method.after_backward(model, 0.5)
        assert (not torch.equal(layers[0].w, before)) == expected
        assert (layers[0].w.grad is None) == bool(own)


def test_frozen_w_rest_without_an_error():
    """Such as those of an encoder of which only the classifier on top is trained."""
    model, method = trained_one_step(deacon(m=2, gha_steps=5))
    layers = list(pca_layers(model).values())
    for layer in layers:
        layer.w.requires_grad_(False).grad = None
    before = [layer.w.clone() for layer in layers]
    method.after_backward(model, 0.5)
    assert all(torch.equal(layer.w, w) for layer, w in zip(layers, before, strict=True))


def test_an_update_without_what_it_needs_is_refused():
    model, method = trained_one_step(deacon(m=2, gha_steps=5))
    layers = list(pca_layers(model).values())
    layers[0].inputs.moments = None
    with pytest.raises(TrainingError, match=r"encoder 1: .* training mode, found none; call model\.train\(\)"):
        method.after_backward(model, 0.5)
    for layer in layers:
        layer.w.grad = None
    with pytest.raises(TrainingError, match=r"expected before_optimizer_step after loss\.backward"):
        method.after_backward(model, 0.5)
    with pytest.raises(TrainingError, match="the model has no PCA layer"):
        method.after_backward(MultiheadAttention(12, 3), 0.5)


def test_modules_of_four_and_eight_heads_move_in_one_model():
    method = make_method(deacon("direct", 2))
    model = nn.ModuleList(MultiheadAttention(16, heads, method, batch_first=True) for heads in (4, 8, 4, 8))
    x = torch.randn(3, 5, 16)
    sum(module(x, x, x)[0].square().sum() for module in model[:3]).backward()  # one is left out
    before = [layer.w.detach().clone() for layer in pca_layers(model).values()]
    method.after_backward(model, 0.0)
    lengths = [(layer.w - w).norm().item() for layer, w in zip(pca_layers(model).values(), before, strict=True)]
    assert lengths == pytest.approx([0.2, 0.2, 0.2, 0.0], rel=1e-4)


@settings(max_examples=5)
@given(seed=seeds)
def test_heads_of_scale_one_are_the_baselines_and_a_gate_multiplies_its_head(seed):
    fresh = {}
    for name, options in {"same": {}, "changed": {"gate": 0.5, "output_scale": 0.3}, "norm": NORM}.items():
        module = make_method({"name": "head-scale", **options}).output_stage(SPEC).double().eval()
        module.initialise(torch.Generator().manual_seed(seed))
        fresh[name] = module
    baseline = torch.nn.init.xavier_uniform_(
        torch.empty(SPEC.d_model, H * K, dtype=torch.float64), generator=torch.Generator().manual_seed(seed)
    )
    x = random(seed, 4, H * K)
    torch.testing.assert_close(fresh["same"](x), x @ baseline.T)
    gates = random(seed + 1, H)
    fresh["changed"].gate.data = gates
    torch.testing.assert_close(fresh["changed"](x), (x.view(4, H, K) * gates[:, None]).flatten(1) @ (0.3 * baseline).T)
    torch.testing.assert_close(fresh["norm"](x), 0.3 * x @ baseline.T / (1 + 1e-5) ** 0.5)


NORM = {"normalisation": "batch", "batch_norm_scale": 0.3}


# ---- artifacts


def test_pca_weights_of_every_module():
    model, _ = trained_one_step(deacon(m=3))
    results = pca_weights(model)
    assert {name: module["place"] for name, module in results.items()} == {
        "encoder.0.attention.encoder": "encoder 1",
        "decoder.0.attention.decoder": "decoder 1",
        "decoder.0.attention.cross": "cross 1",
    }
    w = model.decoder[0].attention["cross"].output.w.detach().double().numpy()
    module = results["decoder.0.attention.cross"]
    lengths, apart = np.sqrt((w**2).sum(axis=0)), ~np.eye(3, dtype=bool)
    cosines = w.T @ w / np.outer(lengths, lengths)
    np.testing.assert_allclose(module["cosines"], cosines, atol=1e-6)
    np.testing.assert_allclose(module["column_lengths"], lengths)
    assert module["mean_absolute_cosine"] == pytest.approx(np.abs(cosines[apart]).mean())
    correlations = np.corrcoef(w, rowvar=False)
    assert module["mean_absolute_correlation"] == pytest.approx(np.abs(correlations[apart]).mean())
