"""The fused loss against torch's F.linear and F.cross_entropy."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from headdiv.companion.models import losses
from headdiv.companion.models.losses import linear_cross_entropy

seeds = st.integers(0, 2**31 - 1)


def data(seed, T, D, V, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T, D, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(V, D, generator=generator, dtype=dtype).requires_grad_()
    return x, weight, torch.randint(V, (T,), generator=generator)


def literal(x, weight, targets, smoothing=0.0):
    logits = F.linear(x, weight)
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    plain = F.cross_entropy(logits, targets, reduction="sum")
    right = logits.gather(1, targets[:, None])[:, 0]
    return loss, plain, sum(int(not (line > value).any()) for line, value in zip(logits, right, strict=True))


def ours_and_torchs(x, weight, targets, smoothing):
    """Three sums and two gradients, ours and torch's."""
    results = []
    for run in (linear_cross_entropy, literal):
        loss, plain, correct = run(x, weight, targets, smoothing)
        grads = torch.autograd.grad(0.37 * loss, (x, weight))  # something other than 1 comes back
        results.append([loss.detach(), plain.detach(), *grads, int(correct)])
    return results


def assert_equal_sums(results, expected, **tolerance):
    torch.testing.assert_close(results[:-1], expected[:-1], **tolerance)
    assert results[-1] == expected[-1]


@given(
    seed=seeds,
    T=st.integers(1, 9),
    V=st.integers(2, 40),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_sums_and_gradients_are_torchs(seed, T, V, smoothing, dtype):
    results, expected = ours_and_torchs(*data(seed, T, 5, V, dtype), smoothing)
    assert {x.dtype for x in results[:-1]} == {dtype}
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}
    assert_equal_sums(results, expected, **tolerance)


@pytest.mark.parametrize("elements", [1, 7, 22, 70])
def test_chunks_of_any_size_give_the_same(monkeypatch, elements):
    monkeypatch.setattr(losses, "CHUNK_ELEMENTS", elements)
    assert_equal_sums(*ours_and_torchs(*data(1, 10, 4, 7), 0.1))


@pytest.mark.parametrize("only", ["x", "weight"])
def test_gradient_of_one_argument_alone(only):
    x, weight, targets = data(3, 4, 3, 5)
    expected = torch.autograd.grad(literal(x, weight, targets)[0], x if only == "x" else weight)[0]
    (weight if only == "x" else x).requires_grad_(False)
    loss, _, _ = linear_cross_entropy(x, weight, targets)
    loss.backward()
    torch.testing.assert_close((x if only == "x" else weight).grad, expected)
    assert (weight if only == "x" else x).grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_extreme_logits_are_finite_and_right(dtype, smoothing):
    weight = torch.tensor([[1e4], [-1e4], [0.0]], dtype=dtype, requires_grad=True)
    x = torch.ones(4, 1, dtype=dtype, requires_grad=True)
    targets = torch.tensor([0, 1, 2, 0])
    results, expected = ours_and_torchs(x, weight, targets, smoothing)
    assert all(torch.isfinite(value).all() for value in results[:-1])
    assert_equal_sums(results, expected)
    assert results[1] == 30000.0
    assert results[-1] == 2


def test_a_tie_with_the_likeliest_word_counts_as_right():
    x, weight = torch.ones(2, 1), torch.tensor([[2.0], [2.0], [1.0]])
    _, _, correct = linear_cross_entropy(x, weight, torch.tensor([1, 2]))
    assert correct.dtype == torch.int64
    assert correct == 1


def test_without_gradients_the_sums_are_the_same():
    x, weight, targets = data(5, 6, 3, 5)
    expected = linear_cross_entropy(x, weight, targets, 0.1)
    with torch.inference_mode():
        results = linear_cross_entropy(x, weight, targets, 0.1)
    assert [value.item() for value in results] == [value.item() for value in expected]


def test_of_nothing_the_sums_and_gradients_are_zero():
    """A rank whose share of a batch is empty still takes part in the sum over all."""
    x, weight, targets = data(7, 0, 3, 5)
    results, expected = ours_and_torchs(x, weight, targets, 0.1)
    assert_equal_sums(results, expected)
    assert results[0] == results[1] == results[-1] == 0
    assert results[3].shape == weight.shape
    assert (results[3] == 0).all()


@pytest.mark.parametrize("rows", [50, 200])  # of four chunks at most, which have 64 each
@pytest.mark.parametrize("held", [losses.HELD_ELEMENTS, 30 * 128, 1])  # all rows, blocks of two chunks, of one
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_autocast_stays_close_to_float32(monkeypatch, smoothing, held, rows):
    monkeypatch.setattr(losses, "CHUNK_ELEMENTS", 30 * 7)
    monkeypatch.setattr(losses, "HELD_ELEMENTS", held)
    x, weight, targets = data(6, rows, 16, 30, torch.float32)
    loss, plain, _ = linear_cross_entropy(x, weight, targets, smoothing)
    expected = torch.autograd.grad(loss, (x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        narrow_loss, narrow_plain, _ = linear_cross_entropy(x, weight, targets, smoothing)
    gradients = torch.autograd.grad(narrow_loss, (x, weight))
    assert narrow_loss.dtype == narrow_plain.dtype == torch.float32
    torch.testing.assert_close(narrow_loss, loss, rtol=5e-3, atol=0)
    torch.testing.assert_close(narrow_plain, plain, rtol=5e-3, atol=0)
    for a, b in zip(gradients, expected, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()
