"""The packed Transformer against one written out, and what keeps runs comparable."""

import math

import numpy as np
import packed
import pytest
import torch
from examples import deacon
from small_runs import randomise
from torch.nn import functional as F

from headdiv.companion.models.batching import Pairs, make_batch
from headdiv.companion.models.sizes import ModelConfig
from headdiv.companion.models.transformer import MAX_POSITIONS, Transformer, count_parameters, initialise
from headdiv.core.errors import DataError
from headdiv.methods import make_method

SMALL = ModelConfig(d_model=packed.D, heads=packed.H, encoder_layers=2, decoder_layers=2, d_ff=20, dropout=0.3)
WORDS = 15
METHODS = {"baseline": {"name": "baseline"}, "direct-3": deacon("direct", 3), "nonlinear-3": deacon("nonlinear", 3)}


def build(config=SMALL, seed=1, method=None):
    model = Transformer(config, WORDS, WORDS, make_method(method or {"name": "baseline"}))
    initialise(model, seed)
    return model


def some_pairs(seed=0, n=6):
    rng = np.random.default_rng(seed)
    return Pairs(*([rng.integers(4, WORDS, rng.integers(0, 7)) for _ in range(n)] for _ in range(2)))


# ---- the whole model, written out


def literal_embedding(words, embedding):
    D = embedding.embedding_dim
    positions = torch.zeros(len(words), D, dtype=embedding.weight.dtype)
    for p in range(len(words)):
        for i in range(D):
            angle = p / 10000 ** (2 * (i // 2) / D)
            positions[p, i] = math.sin(angle) if i % 2 == 0 else math.cos(angle)
    return embedding.weight[words] * math.sqrt(D) + positions


def literal_activation(x, name):
    """Gaussian error linear unit as Hendrycks and Gimpel define it: x Φ(x)."""
    return torch.clamp(x, min=0) if name == "relu" else x * (1 + torch.erf(x / math.sqrt(2))) / 2


def literal_transformer(model, activation, source, target):
    """Words of one sentence pair, (S,) and (N,) -> (N, D)."""

    def norm(x, layer):
        return F.layer_norm(x, (packed.D,), layer.weight, layer.bias)

    def feed_forward(x, layer):
        first, _, second = layer.feed_forward
        inner = literal_activation(x @ first.weight.T + first.bias, activation)
        return norm(x + inner @ second.weight.T + second.bias, layer.feed_forward_norm)

    def attend(x, memory, layer, kind):
        update = packed.literal_attention(layer.attention[kind], x, memory, kind)
        return norm(x + update, layer.attention_norm[kind])

    memory = literal_embedding(source, model.source_embedding)
    for layer in model.encoder:
        memory = feed_forward(attend(memory, memory, layer, "encoder"), layer)
    x = literal_embedding(target, model.target_embedding)
    for layer in model.decoder:
        x = attend(attend(x, x, layer, "decoder"), memory, layer, "cross")
        x = feed_forward(x, layer)
    return x


@pytest.mark.parametrize(("bias", "activation", "window"), [(False, "relu", 1), (True, "relu", 9), (True, "gelu", 48)])
def test_packed_model_is_the_one_written_out_with_its_gradients(bias, activation, window):
    config = SMALL.model_copy(update={"attention_bias": bias, "activation": activation, "dropout": 0.0})
    model = randomise(build(config)).double()
    pairs = some_pairs()
    batch = make_batch(pairs, range(len(pairs)), window)
    sides = (batch.source, batch.source_rows), (batch.target_in, batch.target_rows)
    sentences = zip(*(words.split(rows.lengths.tolist()) for words, rows in sides), strict=True)
    expected = torch.cat([literal_transformer(model, activation, *pair) for pair in sentences])
    output = model(batch)
    torch.testing.assert_close(output, expected, atol=1e-6, rtol=1e-6)  # the table of positions is float32
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(4), dtype=output.dtype)
    parameters = [p for name, p in model.named_parameters() if not name.startswith("output_embedding")]
    grads = [torch.autograd.grad((x * weights).sum(), parameters) for x in (output, expected)]
    torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-5)


# ---- positions


def test_a_sentence_longer_than_the_positions_is_refused():
    """Before attention's rectangle is made: for a sentence of 120 kB it would take 80 GB."""
    with pytest.raises(DataError, match=r"^a sentence of 4097 tokens: the model has positions for 4096$"):
        make_batch(Pairs([np.full(MAX_POSITIONS, 5)], [np.array([4])]), [0])


# ---- starting values


def values(model):
    return dict(model.named_parameters())


def test_variants_of_one_seed_start_from_common_values():
    config = ModelConfig(d_model=32, d_ff=24)
    first, *others = (values(build(config, method=method)) for method in METHODS.values())
    for other in others:
        common = [name for name, value in first.items() if name in other and value.shape == other[name].shape]
        assert {name.split(".")[0] for name in common} >= {"source_embedding", "encoder", "decoder"}
        assert any("in_projection" in name for name in common)
        assert all(torch.equal(first[name], other[name]) for name in common)


def test_outputs_need_not_be_words():
    """Question answering: two scores for each row of the decoder; everything else is as it was."""
    words = build()
    spans = Transformer(SMALL, WORDS, WORDS, make_method({"name": "baseline"}), outputs=2)
    initialise(spans, 1)
    assert spans.output_weight is spans.output_embedding.weight
    assert (words.output_weight.shape, spans.output_weight.shape) == ((WORDS, packed.D), (2, packed.D))
    assert count_parameters(words) - count_parameters(spans) == (WORDS - 2) * packed.D
    for name, value in values(spans).items():
        assert name.startswith("output_embedding") or torch.equal(value, values(words)[name])
