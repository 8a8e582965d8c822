"""The models of one stack against one written out, what may see what, texts continued and blanks filled."""

import math

import numpy as np
import packed
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import METHODS, assert_gradients_of_the_loss, randomise
from torch.nn import functional as F

from headdiv.companion.models.batching import IGNORED
from headdiv.companion.models.language_model import LanguageModel, MaskedModel, fill_in, likeliest_tokens, make_windows
from headdiv.companion.models.losses import linear_cross_entropy
from headdiv.companion.models.sizes import LMConfig
from headdiv.companion.models.transformer import count_parameters, initialise
from headdiv.methods import make_method
from headdiv.nn.packing import attention_mask

V, CONTEXT, END = 9, 8, 2  # V is the mask token too
SMALL = LMConfig(d_model=packed.D, heads=packed.H, d_ff=10, layers=2, dropout=0.3)
SMALL_METHODS = {name: METHODS[name] for name in ("baseline", "nonlinear-3")}
MODELS = [LanguageModel, MaskedModel]
every_model = pytest.mark.parametrize("kind", MODELS)
every_method = pytest.mark.parametrize("method", SMALL_METHODS.values(), ids=SMALL_METHODS)
with_and_without = pytest.mark.parametrize("boundaries", [True, False], ids=["boundaries", "whole_windows"])


def build(kind, method=METHODS["baseline"], config=SMALL, vocabulary=V, context=CONTEXT):
    """In evaluation, in double precision, with no parameter at its neutral value."""
    model = kind(config, vocabulary, context, make_method(method))
    initialise(model, 1)
    return randomise(model).double().eval()


def pack_windows(kind, read, targets, boundaries=True, end=END):
    """A batch of (R, N) tokens that are read; the language model predicts the next one and not the ``targets``."""
    if kind is LanguageModel:
        targets = np.concatenate([read[:, 1:], targets[:, -1:]], axis=1)
    return make_windows(read, targets, end, boundaries, causal=kind is LanguageModel)


def some_windows(R=3, N=CONTEXT, seed=0):
    """Tokens read and their targets, (R, N): documents begin anywhere, the last window lacks tokens."""
    rng = np.random.default_rng(seed)
    read = rng.integers(3, V, (R, N)).astype(np.int32)
    read[0, :5] = [END, 4, END, END, 5]
    read[1, -1] = END
    targets = np.where(rng.random((R, N)) < 0.5, rng.integers(3, V, (R, N)), IGNORED).astype(np.int32)
    targets[read == END] = IGNORED
    targets[:, 1] = 5
    read[-1, -3:] = targets[-1, -3:] = IGNORED
    return read, targets


def documents_of(read, boundaries, end=END):
    """Tokens of one window, document by document."""
    documents = [[]]
    for i, token in enumerate(read):
        if boundaries and token == end and i:
            documents.append([])
        documents[-1].append(token)
    return documents


# ---- the windows


@given(st.sampled_from(MODELS), st.integers(1, 4), st.integers(1, 7), st.booleans(), st.data())
def test_windows_are_laid_out_as_they_say(kind, R, N, boundaries, data):
    read, targets = np.random.default_rng(data.draw(st.integers(0, 99))).integers(1, 4, (2, R, N)).astype(np.int32)
    for r in range(R) if kind is MaskedModel else [R - 1]:
        missing = data.draw(st.integers(0, N - 1))
        read[r, N - missing :] = targets[r, N - missing - (kind is LanguageModel and missing > 0) :] = IGNORED
    batch = pack_windows(kind, read, targets, boundaries)
    lines = [[token for token in line if token != IGNORED] for line in read.tolist()]
    following = targets if kind is MaskedModel else np.concatenate([read[:, 1:], targets[:, -1:]], axis=1)
    expected_targets = following[read != IGNORED].tolist()
    documents = [(r, document) for r, line in enumerate(lines) for document in documents_of(line, boundaries)]
    assert batch.inputs.tolist() == [token for _, document in documents for token in document]
    assert batch.targets.tolist() == expected_targets
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    rows = batch.layout.queries
    assert batch.layout.keys is rows
    assert (batch.layout.mask is None) == (kind is LanguageModel and rows.full and not boundaries)
    assert rows.lengths.tolist() == [len(document) for _, document in documents]
    assert rows.positions.tolist() == [p for _, document in documents for p in range(len(document))]
    windows = [[n for n, (window, document) in enumerate(documents) if window == r for _ in document] for r in range(R)]
    width = max(map(len, windows))
    assert rows.sentences.tolist() == [line + [-1] * (width - len(line)) for line in windows]
    expected = attention_mask(rows, rows, causal=kind is LanguageModel)
    assert torch.equal(batch.layout.written_out(), expected)


# ---- sizes


def test_the_default_sizes_have_the_paper_s_number_of_parameters():
    with torch.device("meta"):
        plain, masked = (kind(LMConfig(), 50_254, 1024, make_method(METHODS["baseline"])) for kind in MODELS)
    D, inner = 1024, 4096
    layer = (3 * D + D) * D + 4 * D + 2 * D * inner + inner + D + 2 * 2 * D
    assert count_parameters(plain) == (50_254 + 1024) * D + 24 * layer == 354_818_048
    assert plain.output_weight is plain.embedding.weight
    # The mask token has a row of the embedding and none of the output.
    assert count_parameters(masked) == count_parameters(plain) + 1024
    assert (masked.embedding.weight.shape, masked.output_weight.shape) == ((50_255, 1024), (50_254, 1024))


def test_the_mask_token_s_row_learns_where_it_is_read_only():
    model = build(MaskedModel)
    for read, learns in ((V, True), (4, False)):
        model.zero_grad()
        batch = pack_windows(MaskedModel, np.array([[3, read, 5, 6]]), np.array([[IGNORED, 4, IGNORED, IGNORED]]))
        hidden = model(batch)[batch.targets != IGNORED]
        linear_cross_entropy(hidden, model.output_weight, torch.tensor([4]))[0].backward()
        gradient = model.embedding.weight.grad
        assert bool(gradient[V].any()) == learns
        assert gradient[:V].any(dim=1).all()  # of the output


# ---- the whole model, written out


def literal_document(model, tokens):
    """One document alone: (N, D)."""
    D = model.embedding.embedding_dim
    x = torch.stack([model.embedding.weight[t] + model.positions.weight[p] for p, t in enumerate(tokens)])
    x = x * math.sqrt(D)
    for layer in model.layers:
        update = packed.literal_attention(layer.attention[model.stack], x, x, model.stack)
        norm, last = layer.attention_norm[model.stack], layer.feed_forward_norm
        x = F.layer_norm(x + update, (D,), norm.weight, norm.bias)
        first, _, second = layer.feed_forward
        inner = x @ first.weight.T + first.bias
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2  # GELU
        x = F.layer_norm(x + inner @ second.weight.T + second.bias, (D,), last.weight, last.bias)
    return x


@every_model
@with_and_without
@every_method
@torch.no_grad()
def test_the_model_equals_the_one_written_out(kind, method, boundaries):
    model, (read, targets) = build(kind, method), some_windows()
    batch = pack_windows(kind, read, targets, boundaries)
    documents = [
        [token for token in document if token != IGNORED]
        for line in read.tolist()
        for document in documents_of(line, boundaries)
    ]
    expected = torch.cat([literal_document(model, document) for document in documents])
    torch.testing.assert_close(model(batch), expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(expected, model(pack_windows(kind, read, targets, not boundaries)))


@pytest.mark.parametrize(("kind", "boundaries"), [(LanguageModel, True), (MaskedModel, False)])
def test_gradients_are_those_of_the_loss(kind, boundaries, monkeypatch):
    config = LMConfig(d_model=4, heads=2, d_ff=2, layers=1, dropout=0.0)
    read = np.array([[1, 3, 0], [2, 1, IGNORED]])
    targets = np.array([[IGNORED, 2, 3], [0, IGNORED, IGNORED]])
    batch = pack_windows(kind, read, targets, boundaries, end=1)
    assert_gradients_of_the_loss(build(kind, config=config, vocabulary=4, context=3), batch, 4, monkeypatch)


# ---- one token at a time


@every_method
@torch.no_grad()
def test_a_step_equals_the_whole_forward_pass(method):
    model, (read, targets) = build(LanguageModel, method), some_windows()
    read = np.maximum(read, 0)
    logits = (model(pack_windows(LanguageModel, read, targets, False)) @ model.output_weight.T).view(3, CONTEXT, -1)
    state = model.start(3)
    for position in range(CONTEXT):
        step_logits = model.step(torch.from_numpy(read[:, position]).long(), state) @ model.output_weight.T
        torch.testing.assert_close(step_logits, logits[:, position], rtol=1e-10, atol=1e-10)


def literal_continuation(model, prompt, new, boundaries):
    text = list(prompt)
    for _ in range(new):
        read = np.array([text])
        hidden = model(make_windows(read, np.full_like(read, IGNORED), END, boundaries, causal=True))
        text.append(int((model.output_weight @ hidden[-1]).argmax()))
    return text[len(prompt) :]


@every_method
@with_and_without
@torch.no_grad()
def test_a_text_is_continued_with_the_likeliest_tokens(method, boundaries):
    model = build(LanguageModel, method, context=12)
    tokens = set()
    for prompt in ([END], [3, 4], [5, END, 1, 8, 0, 7]):
        for new in (0, 1, 12 - len(prompt)):
            model.train()  # nothing is dropped out all the same
            written = list(likeliest_tokens(model, prompt, new, END if boundaries else None))
            assert not model.training
            assert written == literal_continuation(model, prompt, new, boundaries)
            tokens.update(written)
    assert len(tokens) > 1


# ---- blanks filled


@every_method
@torch.no_grad()
def test_blanks_are_filled_with_the_likeliest_tokens(method):
    model, (read, targets) = build(MaskedModel, method), some_windows()
    batch = pack_windows(MaskedModel, np.where(targets == IGNORED, read, V), targets)
    hidden = model(batch)[batch.targets != IGNORED]
    expected = [max(range(V), key=lambda entry: float(row @ model.embedding.weight[entry])) for row in hidden]
    model.train()  # nothing is dropped out all the same
    assert fill_in(model, batch).tolist() == expected
    assert not model.training
    assert len(set(expected)) > 1
    assert fill_in(model, pack_windows(MaskedModel, read, np.full_like(targets, IGNORED))).tolist() == []
