"""A step against AdamW and its schedule written out."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from small_model import Small, SmallSizes, initialise, make_batch, some_pairs
from torch.nn import functional as F

from headdiv.core.errors import DivergenceError
from headdiv.methods import make_method
from headdiv.methods.deacon import pca_layers
from headdiv.training.config import TrainerConfig
from headdiv.training.learner import Learner, Losses, rate_factor
from headdiv.training.method_steps import MethodSteps

BASELINE = {"name": "baseline"}
DIRECT = {"name": "deacon", "architecture": "direct", "m": 2, "gha_steps": 10}
MODEL = SmallSizes(d_model=12, heads=3, dropout=0.0)


@pytest.mark.parametrize(
    ("schedule", "warmup", "factors"),
    [
        ("constant", 4, [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", 4, [0.25, 0.5, 0.75, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]),
        ("inverse_sqrt", 4, [0.25, 0.5, 0.75, 1, *(2 / math.sqrt(n) for n in range(5, 11))]),
        ("constant", 0, [1] * 10),
        ("linear", 100, [n / 100 for n in range(1, 11)]),
    ],
)
def test_the_rate_by_step(schedule, warmup, factors):
    config = TrainerConfig(schedule=schedule, warmup_steps=warmup)
    assert [rate_factor(config, step, 10) for step in range(1, 11)] == pytest.approx(factors)
    assert rate_factor(TrainerConfig(schedule="linear", warmup_steps=4), 12, 10) == 0.0  # beyond the planned end


def losses(model, batch, smoothing=0.0):
    scores = model(batch) @ model.output_weight.T
    summed = {
        amount: F.cross_entropy(scores, batch.target_out, reduction="sum", label_smoothing=amount)
        for amount in (0.0, smoothing)
    }
    correct = (scores.argmax(-1) == batch.target_out).sum()
    count = len(batch.target_out)
    return Losses(summed[smoothing], summed[0.0].detach(), correct, count, tokens=count)


def learner(method, dtype=torch.float32, smoothing=0.0, **options):
    made = make_method(method)
    model = Small(MODEL, made).to(dtype)
    initialise(model, 1)
    config = TrainerConfig(schedule="constant", **options)
    return Learner(model, partial(losses, smoothing=smoothing), made, config, observe=lambda: iter(()))


def batch(seed=0):
    return make_batch(some_pairs(seed=seed), range(6))


def literal_adamw(p, g, state, step, rate, beta1, beta2, epsilon, decay):
    """Loshchilov and Hutter 2019, Algorithm 2."""
    m, v = state
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
    return p - rate * decay * p - rate * m_hat / (v_hat.sqrt() + epsilon), (m, v)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("method", [BASELINE, DIRECT])
def test_everything_but_w_takes_a_literal_adamw_step(method, clip):
    options = {"learning_rate": 0.01, "betas": (0.8, 0.9), "epsilon": 1e-6, "weight_decay": 0.1, "clip_norm": clip}
    learn = learner(method, torch.float64, **options, warmup_steps=4)
    model, seen = learn.model, []
    own = {name for name, _ in model.named_parameters() if name.endswith(".w")}
    assert len(own) == (3 if method is DIRECT else 0)
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in expected.items()}
    learn.method.after_backward = lambda model, progress: seen.append(progress)  # w is left as it is
    for number in (1, 2, 3):
        b = batch(number)
        model.zero_grad()
        literal = losses(model, b)
        (literal.loss / literal.count).backward()
        grads = {name: p.grad.clone() for name, p in model.named_parameters() if name not in own}
        norm = sum(g.square().sum() for g in grads.values()).sqrt()
        if clip:
            assert norm > clip
            grads = {name: g * clip / norm for name, g in grads.items()}
        for name, g in grads.items():
            rate = 0.01 * number / 4
            expected[name], state[name] = literal_adamw(
                expected[name], g, state[name], number, rate, 0.8, 0.9, 1e-6, 0.1
            )
        sums = learn.step([b], number, 30)
        assert seen[-1] == (number - 1) / 30
        assert (sums.count, sums.tokens, sums.correct) == (literal.count, literal.tokens, int(literal.correct))
        assert (sums.loss, sums.nll) == pytest.approx((literal.loss.item(), literal.nll.item()))
        for name, p in model.named_parameters():
            torch.testing.assert_close(p.detach(), expected[name], atol=1e-7, rtol=1e-5)
            if name in own:
                assert torch.equal(p, expected[name])


def test_the_gradient_is_of_the_mean_over_the_predictions():
    """The loss says what it counts, in question answering sentences; tokens are for speed alone."""
    b, gradients, sums = batch(), [], []
    for count in (None, 6):
        learn = learner(BASELINE, clip_norm=None)
        by_token = learn.loss
        if count:
            learn.loss = lambda model, batch: replace(by_token(model, batch), count=6)  # noqa: B023
        sums.append(learn.step([b], 1, 10))
        gradients.append(learn.model.output_weight.grad.clone())
    assert (sums[1].count, sums[1].tokens) == (6, sums[0].tokens)
    assert sums[1].loss == pytest.approx(sums[0].loss)
    torch.testing.assert_close(gradients[1] * 6, gradients[0] * sums[0].count)


def break_gradient(parameter_of):
    return lambda model: parameter_of(model).register_hook(lambda grad: torch.full_like(grad, math.nan))


def break_weight(model):
    with torch.no_grad():
        model.decoder[0].norm["decoder"].weight[0] = math.nan


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_weight, "the loss is nan"),
        (break_gradient(lambda model: model.encoder[0].norm["encoder"].weight), "the norm of the gradient is nan"),
        (break_gradient(lambda model: next(iter(pca_layers(model).values())).w), "the norm of the gradient is nan"),
    ],
)
def test_what_is_not_finite_stops_the_step(damage, message):
    learn = learner(DIRECT)
    damage(learn.model)
    before = {name: tensor.clone() for name, tensor in learn.model.named_parameters()}
    with pytest.raises(DivergenceError, match=f"^{message} at step 7; nothing was recorded"):
        learn.step([batch()], 7, 10)
    for name, p in learn.model.named_parameters():
        assert torch.equal(p.nan_to_num(-1), before[name].nan_to_num(-1)), name


def test_a_step_beyond_the_planned_end_is_at_the_end():
    """Random batches differ in number, so that an epoch may have more than the first, by which steps are planned."""
    progresses, learning = [], learner(DIRECT)
    update = learning.method.after_backward
    learning.method.after_backward = lambda model, progress: (progresses.append(progress), update(model, progress))
    for number in (9, 10, 11, 13):
        learning.step([batch()], number, 10)
    assert progresses == [0.8, 0.9, 1.0, 1.0]


# ---- several batches to a step

UNNORMALISED = DIRECT | {"normalisation": "none"}
RFB = {"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5, "q_att": 3}


@pytest.mark.parametrize("method", [BASELINE, UNNORMALISED, RFB, {"name": "disagreement", "term": "output"}])
def test_batches_whose_gradients_are_added_are_one_large_batch(method):
    """Weights, DEACON's w (G and C are pooled) and the counts of activations, where no batch normalisation is."""
    pairs = some_pairs(9, seed=7)
    whole, parts = (learner(method, torch.float64, 0.1, learning_rate=0.01) for _ in range(2))
    for number in (1, 2):
        together = whole.step([make_batch(pairs, range(9))], number, 10)
        three = [make_batch(pairs, numbers) for numbers in ([0, 1], [2, 3, 4, 5], [6, 7, 8])]
        several = parts.step(three, number, 10)
        assert (together.count, together.correct, several.batches) == (several.count, several.correct, 3)
        assert several.loss == pytest.approx(together.loss)
    expected = whole.model.state_dict()
    for name, value in parts.model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-8)


def test_a_method_is_what_make_method_returns():
    with pytest.raises(TypeError, match=r"^method: found .*deacon.*, expected a method that headdiv\.make_method"):
        MethodSteps(torch.nn.Linear(2, 2), "deacon")
