"""The decoder-only model against one written out, what may see what, and texts continued a token at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import METHODS, assert_gradients_of_the_loss, randomise
from torch.nn import functional as F

from headdiv.core.errors import DataError
from headdiv.methods import make_method
from headdiv.nn.config import LMConfig
from headdiv.nn.language_model import IGNORED, LanguageModel, continue_text, make_windows
from headdiv.nn.losses import linear_cross_entropy
from headdiv.nn.packing import MASKED
from headdiv.nn.transformer import count_parameters, initialise

SMALL = LMConfig(d_model=12, heads=3, d_ff=20, layers=2, dropout=0.3)
VOCABULARY, CONTEXT, END = 9, 8, 2
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
with_and_without = pytest.mark.parametrize("boundaries", [True, False], ids=["boundaries", "whole_windows"])


def build(method=METHODS["baseline"], config=SMALL, vocabulary=VOCABULARY, context=CONTEXT):
    """In evaluation, in double precision, with no parameter at its neutral value."""
    model = LanguageModel(config, vocabulary, context, make_method(method))
    initialise(model, 1)
    return randomise(model).double().eval()


def some_tokens(R=3, N=CONTEXT, seed=0):
    """Windows with documents that begin anywhere, also one behind the other and at the first token."""
    tokens = np.random.default_rng(seed).integers(0, VOCABULARY, (R, N + 1)).astype(np.int32)
    tokens[0, :5] = [END, 4, END, END, 5]
    return tokens


# ---- sizes


def test_the_default_sizes_have_the_paper_s_number_of_parameters():
    with torch.device("meta"):
        model = LanguageModel(LMConfig(), 50_254, 1024, make_method({"name": "baseline"}))
    assert count_parameters(model) == 354_818_048
    D, inner = 1024, 4096
    layer = (3 * D + D) * D + 4 * D + 2 * D * inner + inner + D + 2 * 2 * D
    assert count_parameters(model) == (50_254 + 1024) * D + 24 * layer
    assert model.output_weight is model.embedding.weight


# ---- the windows


@st.composite
def windows(draw):
    R, N = draw(st.integers(1, 4)), draw(st.integers(1, 7))
    tokens = np.array(draw(st.lists(st.integers(0, 3), min_size=R * (N + 1), max_size=R * (N + 1))))
    tokens = tokens.reshape(R, N + 1)
    lacking = draw(st.integers(0, N - 1))  # a last window has a target at least
    tokens[-1, N + 1 - lacking :] = IGNORED
    return tokens.astype(np.int32)


@given(windows(), st.booleans())
def test_windows_are_laid_out_as_they_say(tokens, boundaries):
    R, N = tokens.shape[0], tokens.shape[1] - 1
    batch = make_windows(tokens, 0, boundaries)
    inputs, targets, positions, documents, number = [], [], [], [], -1
    for window in tokens.tolist():
        for i in range(N):
            new = i == 0 or (boundaries and window[i] == 0)
            number += new
            positions.append(0 if new else positions[-1] + 1)
            documents.append(number)
            inputs.append(0 if window[i] == IGNORED else window[i])
            targets.append(window[i + 1])
    side = batch.layout.queries
    assert batch.inputs.tolist() == inputs
    assert batch.targets.tolist() == targets
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert side.positions.tolist() == positions
    assert side.sentences.tolist() == np.reshape(documents, (R, N)).tolist()
    assert side.lengths.tolist() == np.bincount(documents).tolist()
    assert side.full
    assert batch.layout.keys is side
    assert (batch.layout.mask is None) == (not boundaries)
    mask = batch.layout.written_out()
    for r in range(R):
        for i in range(N):
            for j in range(N):
                seen = j <= i and documents[r * N + i] == documents[r * N + j]
                assert mask[r, 0, i, j] == (0 if seen else MASKED)


@with_and_without
def test_windows_go_to_another_device_whole(boundaries):
    batch = make_windows(some_tokens(), END, boundaries)
    assert batch.to("cpu") is batch
    moved = batch.to("meta")
    assert {moved.inputs.device.type, moved.targets.device.type, moved.layout.queries.slots.device.type} == {"meta"}
    assert moved.layout.keys is moved.layout.queries
    assert moved.layout.mask.device.type == "meta" if boundaries else moved.layout.mask is None


# ---- the whole model, written out


def literal_norm(x, norm):
    mean, variance = sum(x) / len(x), sum((x - sum(x) / len(x)) ** 2) / len(x)
    return (x - mean) / math.sqrt(variance + 1e-5) * norm.weight + norm.bias


def literal_attention(rows, attention):
    """One document; each row sees itself and those before it."""
    D, H = attention.spec.d_model, attention.spec.heads
    K = D // H
    wq, wk, wv = attention.in_projection.weight.split(D)
    bq, bk, bv = attention.in_projection.bias.split(D)
    heads = []
    for i in range(len(rows)):
        parts = []
        for h in range(H):
            mine = slice(h * K, (h + 1) * K)
            q = wq[mine] @ rows[i] + bq[mine]
            scores = [q @ (wk[mine] @ rows[j] + bk[mine]) / math.sqrt(K) for j in range(i + 1)]
            powers = [math.exp(score) for score in scores]
            values = [wv[mine] @ rows[j] + bv[mine] for j in range(i + 1)]
            parts.append(sum(p * value for p, value in zip(powers, values, strict=True)) / sum(powers))
        heads.append(torch.cat(parts))
    return attention.output(torch.stack(heads))


def literal_document(model, tokens):
    rows = [
        (model.embedding.weight[token] + model.positions.weight[p]) * math.sqrt(model.embedding.embedding_dim)
        for p, token in enumerate(tokens)
    ]
    for layer in model.decoder:
        update = literal_attention(rows, layer.attention["decoder"])
        rows = [literal_norm(x + u, layer.attention_norm["decoder"]) for x, u in zip(rows, update, strict=True)]
        first, _, second = layer.feed_forward
        for i, x in enumerate(rows):
            inner = first.weight @ x + first.bias
            inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2  # GELU
            rows[i] = literal_norm(x + second.weight @ inner + second.bias, layer.feed_forward_norm)
    return torch.stack(rows)


def literal_model(model, tokens, boundaries):
    told = []
    for window in tokens.tolist():
        documents = [[]]
        for i, token in enumerate(window[:-1]):
            if boundaries and token == END and i:
                documents.append([])
            documents[-1].append(max(token, 0))
        told += [literal_document(model, document) for document in documents]
    return torch.cat(told)


@with_and_without
@every_method
@torch.no_grad()
def test_the_model_equals_the_one_written_out(method, boundaries):
    model, tokens = build(method), some_tokens()
    tokens[-1, 5:] = IGNORED
    found = model(make_windows(tokens, END, boundaries))
    torch.testing.assert_close(found, literal_model(model, tokens, boundaries), rtol=1e-10, atol=1e-10)
    assert not torch.allclose(found, model(make_windows(tokens, END, not boundaries)))


@with_and_without
def test_gradients_are_those_of_the_loss(boundaries, monkeypatch):
    config = LMConfig(d_model=4, heads=2, d_ff=3, layers=1, dropout=0.0)
    tokens = np.array([[1, 3, 0, 4], [2, 1, 4, IGNORED]])
    batch = make_windows(tokens, 1, boundaries)
    model = build(config=config, vocabulary=5, context=3)
    assert_gradients_of_the_loss(model, batch, 5, monkeypatch)


# ---- who sees whom


@with_and_without
@every_method
@torch.no_grad()
def test_no_row_knows_what_comes_after_it(method, boundaries):
    model, tokens = build(method), some_tokens()
    before = model(make_windows(tokens, END, boundaries)).view(3, CONTEXT, -1)
    for i in range(1, CONTEXT):
        changed = tokens.copy()
        changed[:, i] = np.where(tokens[:, i] == 5, 6, 5)
        after = model(make_windows(changed, END, boundaries)).view(3, CONTEXT, -1)
        assert torch.equal(after[:, :i], before[:, :i])
        assert not torch.isclose(after[:, i], before[:, i]).all(dim=-1).any()


@every_method
@torch.no_grad()
def test_no_row_knows_the_documents_before_its_own(method):
    model = build(method)
    tokens = np.array([[3, 4, 5, END, 6, 7, END, 8, 1]])
    changed = np.array([[7, 8, 3, END, 6, 7, END, 8, 1]])
    before, after = (model(make_windows(each, END, True)) for each in (tokens, changed))
    assert torch.equal(after[3:], before[3:])
    before, after = (model(make_windows(each, END, False)) for each in (tokens, changed))
    assert not torch.isclose(after[3:], before[3:]).all(dim=-1).any()


@every_method
@torch.no_grad()
def test_what_fills_the_last_window_changes_nothing_before_it(method):
    model, tokens = build(method), some_tokens()
    whole = tokens[-1:, :6]
    filled = np.concatenate([whole, np.full((1, CONTEXT - 5), IGNORED)], axis=1)
    for boundaries in (True, False):
        short, long = (make_windows(each, END, boundaries) for each in (whole, filled))
        assert long.targets.tolist() == [*short.targets.tolist(), *[IGNORED] * (CONTEXT - 5)]
        torch.testing.assert_close(model(long)[:5], model(short), rtol=1e-12, atol=1e-12)


# ---- wide windows


@with_and_without
@every_method
def test_wide_windows_give_what_narrow_ones_do(method, boundaries, monkeypatch):
    """Windows of 130 tokens are beyond the limit; moved up, they are within it."""
    model = build(method, SMALL.model_copy(update={"dropout": 0.0}), context=130).train()
    batch = make_windows(some_tokens(R=2, N=130), END, boundaries)
    fused, told = [], []
    real = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **k: fused.append(k) or real(*a, **k))
    for wide in (True, False):
        if not wide:
            monkeypatch.setattr("headdiv.nn.attention.WIDE", 130 * 130)
        assert batch.layout.wide == wide
        for parameter in model.parameters():
            parameter.grad = None
        hidden = model(batch)
        loss, _, _ = linear_cross_entropy(hidden, model.output_weight, batch.targets)
        loss.backward()
        told.append([hidden.detach(), *(parameter.grad for parameter in model.parameters())])
    assert [keywords["is_causal"] for keywords in fused] == [not boundaries] * SMALL.layers
    for wide, narrow in zip(*told, strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-9, atol=1e-9)


# ---- one token at a time


@every_method
@torch.no_grad()
def test_a_step_equals_the_whole_forward_pass(method):
    model, tokens = build(method), some_tokens()
    logits = (model(make_windows(tokens, END, False)) @ model.output_weight.T).view(3, CONTEXT, -1)
    caches = model.start(3, CONTEXT)
    for position in range(CONTEXT):
        found = model.step(torch.from_numpy(tokens[:, position]).long(), position, caches)
        torch.testing.assert_close(found, logits[:, position], rtol=1e-10, atol=1e-10)
    assert all(cache.length == CONTEXT for layer in caches for cache in layer.values())


def literal_continuation(model, prompt, new):
    text = list(prompt)
    for _ in range(new):
        hidden = model(make_windows(np.array([[*text, IGNORED]]), END, False))
        text.append(int((model.output_weight @ hidden[-1]).argmax()))
    return text[len(prompt) :]


@every_method
@torch.no_grad()
def test_a_text_is_continued_with_the_likeliest_tokens(method):
    model = build(method, context=12)
    found = set()
    for prompt in ([END], [3, 4], [5, END, 1, 8, 0, 7]):
        for new in (0, 1, 12 - len(prompt)):
            model.train()  # nothing is dropped out all the same
            written = continue_text(model, prompt, new)
            assert not model.training
            assert written == literal_continuation(model, prompt, new)
            found.update(written)
    assert len(found) > 1


@pytest.mark.parametrize(("prompt", "new"), [([], 3), ([1] * 5, 4), ([1] * 9, 0)])
def test_a_continuation_must_fit_into_the_context(prompt, new):
    expected = f"a prompt of {len(prompt)} tokens and {new} new ones: expected 1 to {CONTEXT} in all"
    with pytest.raises(DataError) as found:
        continue_text(build(), prompt, new)
    assert str(found.value) == expected
