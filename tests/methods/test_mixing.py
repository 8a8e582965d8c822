"""Head mixing: it begins as its baseline, waits for its time, and then its nuclear norm grows."""

import copy

import numpy as np
import pytest
import torch
from examples import CONFIG, some_pairs, tiny
from hypothesis import given
from hypothesis import strategies as st
from small_model import count_parameters, loss_of, make_batch

import headdiv
from headdiv.core.errors import TrainingError
from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.mixing import MixingOutput, nuclear_norms
from headdiv.nn.sizes import AttentionSpec

BASELINE = {"name": "baseline"}
OWN = ("alphas", "beta", "former_norm")


def mixing(**options):
    return {"name": "mixing", **options}


def own(model):
    return {name: p for name, p in model.named_parameters() if name.endswith(OWN)}


def batch(seed=0):
    return make_batch(some_pairs(seed=seed), range(6))


def trained(options, steps=10, **more):
    """The curve and the model after a training whose dropout is off, so that two of them see the same."""
    model, method = tiny(options, torch.float32, dropout=0.0)

    def loss(model, number):
        return loss_of(model, model(batch(number)), batch(number), "none")

    config = {"schedule": "constant", "warmup_steps": 0, "learning_rate": 0.01, "weight_decay": 0.1, **more}
    trainer = headdiv.Trainer(model, range(steps), loss, method=method, epochs=1, **config)
    return trainer.run().curve, model


# ---- the module


@given(seed=st.integers(0, 2**31 - 1), H=st.integers(1, 5), K=st.integers(1, 4), T=st.integers(0, 4))
def test_the_mixture_is_the_literal_one(seed, H, K, T):
    """Z'_i = Σ_j α_ij Z_j + β_i, then W^O."""
    generator = torch.Generator().manual_seed(seed)
    layer = MixingOutput(AttentionSpec("cross", 0, H * K, H)).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    z = torch.randn(T, H * K, generator=generator, dtype=torch.float64)
    rows = []
    for row in z.view(T, H, K):
        mixed = [sum(layer.alphas[i, j] * row[j] for j in range(H)) + layer.beta[i] for i in range(H)]
        rows.append(layer.weight @ torch.cat(mixed) + layer.bias)
    expected = torch.stack(rows) if rows else z.new_zeros(0, H * K)
    torch.testing.assert_close(layer(z), expected)


@pytest.mark.parametrize("heads", [1, 3])
def test_a_fresh_model_is_its_baseline_to_the_last_bit(heads):
    results = []
    for options in (mixing(), BASELINE):
        model, _ = tiny(options, torch.float32, heads=heads, dropout=0.0)
        hidden = model.train()(batch())
        loss_of(model, hidden, batch()).backward()
        results.append((hidden, {name: (p, p.grad) for name, p in model.named_parameters()}))
    (mixed, ours), (plain, theirs) = results
    assert torch.equal(mixed, plain)
    assert {name for name in ours if not name.endswith(OWN)} == theirs.keys()
    for name, (value, grad) in theirs.items():
        assert torch.equal(ours[name][0], value), name
        assert torch.equal(ours[name][1], grad), name


def test_modules_may_have_other_numbers_of_heads_and_ordinary_ones_stand_beside_them():
    method = make_method(mixing(start=0.0))
    modules = torch.nn.ModuleList([MultiheadAttention(12, heads, method) for heads in (2, 3)])
    model = torch.nn.ModuleList([*modules, MultiheadAttention(12, 2)])
    for module in modules:
        torch.nn.init.normal_(module.attention.output.alphas)
    alone = [method.aux_loss(copy.deepcopy(module), [], 0.5, 7) for module in modules]
    torch.testing.assert_close(method.aux_loss(model, [], 0.5, 7), sum(alone))
    with pytest.raises(TrainingError, match=r"^the model has no mixture of heads; expected attention modules that"):
        method.aux_loss(model[2], [], 0.5, 7)


@pytest.mark.parametrize("heads", [8, 16])
def test_a_module_has_as_many_parameters_more_as_table_3_says(heads):
    """For 18 modules 1,296 and 4,896."""
    spec = AttentionSpec("cross", 0, 512, heads, bias=True)
    counts = [count_parameters(make_method(options).attention(spec)) for options in (mixing(), BASELINE)]
    assert counts[0] - counts[1] == heads**2 + heads == {8: 1296, 16: 4896}[heads] / 18


# ---- frozen, then learning


def test_alphas_rest_until_their_time_and_then_move():
    """With or without a loss on them; weight decay moves them no earlier."""
    for gamma in (0.0, 40.0):
        for start, rest in ((0.95, True), (0.85, False)):  # nine of ten steps begin before 0.85
            _, model = trained(mixing(start=start, gamma=gamma))
            alphas = [p for name, p in own(model).items() if name.endswith("alphas")]
            assert [p.equal(torch.eye(3)) for p in alphas] == [rest] * 3, (gamma, start)


def test_alphas_rest_in_any_loop_that_calls_the_method_before_the_optimiser():
    model, method = tiny(mixing(start=0.5))
    for progress, rests in ((0.4, True), (0.6, False)):
        for p in own(model).values():
            p.grad = torch.ones_like(p)
        method.after_backward(model, progress)
        assert all((p.grad is None) == rests for p in own(model).values())
        assert (method.aux_loss(model, [], progress, 1) is None) == rests


@pytest.mark.parametrize("clip", [None, 0.05])
def test_as_long_as_alphas_rest_the_model_learns_what_its_baseline_learns(clip):
    (our_curve, model), (curve, theirs) = (trained(o, 5, clip_norm=clip) for o in (mixing(start=1.0), BASELINE))
    assert our_curve[0]["training_loss"] == curve[0]["training_loss"]
    ours = dict(model.named_parameters())
    for name, p in theirs.named_parameters():
        assert torch.equal(p, ours[name]), name
    assert all(p.equal(torch.eye(3)) for name, p in ours.items() if name.endswith("alphas"))


# ---- the growth loss


def literal_nuclear_norm(alphas):
    """Roots of the eigenvalues of AᵀA."""
    A = alphas.detach().double().numpy()
    return float(np.sqrt(np.linalg.eigvalsh(A.T @ A).clip(0)).sum())


def moved(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in own(model).values():
            p.add_(torch.randn(p.shape, generator=generator) * 0.3)


def test_the_loss_is_eq_7_and_8():
    """Θ0 are the parameters before the last step; at first those that the model starts with."""
    model, method = tiny(mixing(gamma=3.0, growth=0.01, start=0.0))
    former = [float(CONFIG.heads)] * 3
    for step in range(4):
        current = [literal_nuclear_norm(p) for name, p in own(model).items() if name.endswith("alphas")]
        expected = 3.0 / 50 * sum(old + 0.01 - new for old, new in zip(former, current, strict=True))
        for _ in range(2):  # batches of a step
            assert method.aux_loss(model, [], 0.5, 50).item() == pytest.approx(expected, abs=1e-12)
        method.before_optimizer_step(model, 0.5)
        former = current
        moved(model, step)


@pytest.mark.parametrize("alphas", [torch.eye(3), torch.ones(3, 3), torch.zeros(3, 3)], ids=["identity", "one", "zero"])
def test_the_gradient_is_finite_where_singular_values_are_equal_or_zero(alphas):
    alphas = alphas.clone().requires_grad_()
    nuclear_norms(alphas).backward()
    assert alphas.grad.isfinite().all()
    assert alphas.grad.norm() <= 3**0.5 + 1e-5


def test_findings_are_every_matrix_by_its_place():
    model, method = tiny(mixing(), decoder_layers=2)
    moved(model, 3)
    results = method.artifacts(model)["alphas"]
    assert list(results) == ["encoder 1", "decoder 1", "cross 1", "decoder 2", "cross 2"]
    alphas = model.decoder[1].attention["cross"].output.alphas
    np.testing.assert_allclose(results["cross 2"]["alphas"], alphas.detach(), atol=1e-6)
    assert results["cross 2"]["nuclear_norm"] == pytest.approx(literal_nuclear_norm(alphas))
