"""The encoder-only model against one written out: everything is seen, but no other document and no padding."""

import math

import numpy as np
import packed
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import METHODS, assert_gradients_of_the_loss, randomise
from torch.nn import functional as F

from headdiv.methods import make_method
from headdiv.nn.config import LMConfig
from headdiv.nn.language_model import IGNORED, LanguageModel, MaskedModel, fill_in, make_masked_windows
from headdiv.nn.losses import linear_cross_entropy
from headdiv.nn.packing import MASKED
from headdiv.nn.transformer import count_parameters, initialise

V, CONTEXT, END = 9, 8, 2  # V is the blank too
SMALL = LMConfig(d_model=packed.D, heads=packed.H, d_ff=10, layers=2, dropout=0.3)
BASELINE = METHODS["baseline"]
SMALL_METHODS = {"baseline": BASELINE, "direct-2": METHODS["direct-2"], "nonlinear-3": METHODS["nonlinear-3"]}
every_method = pytest.mark.parametrize("method", SMALL_METHODS.values(), ids=SMALL_METHODS)
with_and_without = pytest.mark.parametrize("boundaries", [True, False], ids=["boundaries", "whole_windows"])


def build(method=BASELINE, config=SMALL, vocabulary=V, context=CONTEXT):
    """In evaluation, in double precision, with no parameter at its neutral value."""
    model = MaskedModel(config, vocabulary, context, make_method(method))
    initialise(model, 1)
    return randomise(model).double().eval()


def some_windows(R=3, N=CONTEXT, seed=0):
    """Masked windows (R, 2, N): documents begin anywhere, the last window lacks tokens."""
    rng = np.random.default_rng(seed)
    read = rng.integers(3, V + 1, (R, N))
    read[0, :4] = [END, 4, END, 5]
    read[1, -1] = END
    targets = np.where(rng.random((R, N)) < 0.5, rng.integers(3, V, (R, N)), IGNORED)
    targets[read == END] = IGNORED
    targets[:, 1] = 5
    read[-1, -3:] = targets[-1, -3:] = IGNORED
    return np.stack([read, targets], axis=1).astype(np.int32)


def documents_of(window, boundaries):
    """Tokens read, document by document."""
    told = [[]]
    for i, token in enumerate(window[0].tolist()):
        if boundaries and token == END and i:
            told.append([])
        if token != IGNORED:
            told[-1].append(token)
    return told


def window_of(*read):
    """One window with nothing to predict: (1, 2, N)."""
    return np.array([[read, [IGNORED] * len(read)]])


# ---- the windows


@given(st.integers(1, 4), st.integers(1, 7), st.booleans(), st.data())
def test_windows_are_laid_out_as_they_say(R, N, boundaries, data):
    masked = np.random.default_rng(data.draw(st.integers(0, 99))).integers(1, 4, (R, 2, N)).astype(np.int32)
    for window in masked:
        window[:, data.draw(st.integers(1, N)) :] = IGNORED
    batch = make_masked_windows(masked, END, boundaries)
    documents = [(r, document) for r in range(R) for document in documents_of(masked[r], boundaries)]
    assert batch.inputs.tolist() == [token for _, document in documents for token in document]
    assert batch.targets.tolist() == [token for token in masked[:, 1].ravel().tolist() if token != IGNORED]
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    side = batch.layout.queries
    assert batch.layout.keys is side
    assert side.lengths.tolist() == [len(document) for _, document in documents]
    assert side.positions.tolist() == [p for _, document in documents for p in range(len(document))]
    width = side.sentences.shape[1]
    for r in range(R):
        own = [n for n, (window, document) in enumerate(documents) if window == r for _ in document]
        assert side.sentences[r].tolist() == own + [-1] * (width - len(own))
        for i in range(width):
            for j in range(width):
                seen = i < len(own) and j < len(own) and own[i] == own[j]
                assert batch.layout.mask[r, 0, i, j] == (0 if seen else MASKED)


def test_windows_go_to_another_device_whole():
    moved = make_masked_windows(some_windows(), END, True).to("meta")
    assert {moved.inputs.device.type, moved.targets.device.type, moved.layout.mask.device.type} == {"meta"}


# ---- sizes


def test_the_embedding_has_a_row_for_the_blank_and_the_output_has_none():
    with torch.device("meta"):
        model = MaskedModel(LMConfig(), 50_254, 1024, make_method(BASELINE))
        plain = LanguageModel(LMConfig(), 50_254, 1024, make_method(BASELINE))
    assert model.embedding.weight.shape == (50_255, 1024)
    assert model.output_weight.shape == (50_254, 1024)
    assert count_parameters(model) == count_parameters(plain) + 1024
    names = [name.replace("decoder", "encoder") for name, _ in plain.named_parameters()]
    assert [name for name, _ in model.named_parameters()] == names
    assert {layer.attention["encoder"].spec.kind for layer in model.layers} == {"encoder"}


def test_the_blank_s_row_learns_where_it_is_read_only():
    model = build()
    for read, learns in ((V, True), (4, False)):
        model.zero_grad()
        masked = np.array([[[3, read, 5, 6], [IGNORED, 4, IGNORED, IGNORED]]])
        batch = make_masked_windows(masked, END, True)
        hidden = model(batch)[batch.targets != IGNORED]
        linear_cross_entropy(hidden, model.output_weight, torch.tensor([4]))[0].backward()
        gradient = model.embedding.weight.grad
        assert bool(gradient[V].any()) == learns
        assert gradient[:V].any(dim=1).all()  # of the output


# ---- the whole model, written out


def literal_document(model, tokens):
    D = model.embedding.embedding_dim
    x = torch.stack([model.embedding.weight[t] + model.positions.weight[p] for p, t in enumerate(tokens)])
    x = x * math.sqrt(D)
    for layer in model.layers:
        update = packed.literal_attention(layer.attention["encoder"], x, x, "encoder")
        norm, last = layer.attention_norm["encoder"], layer.feed_forward_norm
        x = F.layer_norm(x + update, (D,), norm.weight, norm.bias)
        first, _, second = layer.feed_forward
        inner = x @ first.weight.T + first.bias
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2  # GELU
        x = F.layer_norm(x + inner @ second.weight.T + second.bias, (D,), last.weight, last.bias)
    return x


@with_and_without
@torch.no_grad()
def test_the_model_equals_the_one_written_out(boundaries):
    model, masked = build(), some_windows()
    found = model(make_masked_windows(masked, END, boundaries))
    documents = [document for window in masked for document in documents_of(window, boundaries)]
    expected = torch.cat([literal_document(model, document) for document in documents])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(found, model(make_masked_windows(masked, END, not boundaries)))


@with_and_without
def test_gradients_are_those_of_the_loss(boundaries, monkeypatch):
    config = LMConfig(d_model=4, heads=2, d_ff=3, layers=1, dropout=0.0)
    read, targets = [[1, 5, 1, 4], [5, 2, 3, IGNORED]], [[IGNORED, 2, IGNORED, 3], [0, IGNORED, 3, IGNORED]]
    batch = make_masked_windows(np.stack([read, targets], axis=1), 1, boundaries)
    model = build(config=config, vocabulary=5, context=4)
    assert_gradients_of_the_loss(model, batch, 5, monkeypatch)


# ---- who sees whom


@with_and_without
@every_method
@torch.no_grad()
def test_every_token_sees_those_behind_it_and_before_it(method, boundaries):
    model = build(method)
    masked = window_of(END, 4, V, 5, 6, V, 7, 8)
    before = model(make_masked_windows(masked, END, boundaries))
    for i in range(CONTEXT):
        if masked[0, 0, i] != END:
            changed = masked.copy()
            changed[0, 0, i] = 3
            after = model(make_masked_windows(changed, END, boundaries))
            assert not torch.isclose(after, before).all(dim=-1).any()


@every_method
@torch.no_grad()
def test_no_token_knows_another_document(method):
    model = build(method)
    masked = window_of(3, 4, 5, END, V, 7, END, 8)
    changed = masked.copy()
    changed[0, 0, [0, 1, 7]] = [7, 8, 3]
    before, after = (model(make_masked_windows(each, END, True)) for each in (masked, changed))
    torch.testing.assert_close(after[3:6], before[3:6], rtol=1e-12, atol=1e-12)
    before, after = (model(make_masked_windows(each, END, False)) for each in (masked, changed))
    assert not torch.isclose(after[3:6], before[3:6]).all(dim=-1).any()


@with_and_without
@every_method
@torch.no_grad()
def test_windows_beside_it_change_nothing_for_a_window(method, boundaries):
    """Nor what it lacks, which makes the others wider than it."""
    model, masked = build(method), some_windows()
    together = model(make_masked_windows(masked, END, boundaries))
    apart = [model(make_masked_windows(masked[r : r + 1], END, boundaries)) for r in range(3)]
    assert len(apart[2]) == CONTEXT - 3
    torch.testing.assert_close(together, torch.cat(apart), rtol=1e-12, atol=1e-12)
    short = model(make_masked_windows(masked[2:, :, : CONTEXT - 3], END, boundaries))
    torch.testing.assert_close(short, apart[2], rtol=1e-12, atol=1e-12)


@with_and_without
@every_method
def test_wide_windows_give_what_narrow_ones_do(method, boundaries, monkeypatch):
    """Windows of 130 tokens are beyond the limit; moved up, they are within it."""
    model = build(method, SMALL.model_copy(update={"dropout": 0.0}), context=130).train()
    batch = make_masked_windows(some_windows(R=2, N=130), END, boundaries)
    told = []
    for limit in (64 * 64, 130 * 130):
        monkeypatch.setattr("headdiv.nn.attention.WIDE", limit)
        assert batch.layout.wide == (limit < 130 * 130)
        model.zero_grad()
        hidden = model(batch)
        there = batch.targets != IGNORED
        linear_cross_entropy(hidden[there], model.output_weight, batch.targets[there])[0].backward()
        told.append([hidden.detach(), *(parameter.grad for parameter in model.parameters())])
    for wide, narrow in zip(*told, strict=True):
        torch.testing.assert_close(wide, narrow, rtol=1e-9, atol=1e-9)


# ---- blanks filled


@every_method
@torch.no_grad()
def test_blanks_are_filled_with_the_likeliest_tokens(method):
    model, masked = build(method), some_windows()
    batch = make_masked_windows(masked, END, True)
    expected = []
    for row, target in zip(model(batch), batch.targets.tolist(), strict=True):
        scores = [float(row @ model.embedding.weight[entry]) for entry in range(V)]
        if target != IGNORED:
            expected.append(scores.index(max(scores)))
    model.train()  # nothing is dropped out all the same
    assert fill_in(model, batch).tolist() == expected
    assert not model.training
    assert len(set(expected)) > 1


def test_nothing_asked_for_is_nothing_filled_in():
    masked = some_windows()
    masked[:, 1] = IGNORED
    assert fill_in(build(), make_masked_windows(masked, END, True)).tolist() == []
