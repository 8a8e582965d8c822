"""A plain post-norm encoder-decoder as a model of CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from torch import nn

from headdiv.companion.data.corpora.seq2seq import Corpus
from headdiv.companion.models.batching import BEGIN, PAD, SPECIALS
from headdiv.companion.models.transformer import Transformer

NEVER = -1e9  # output bias of the words that are never output


def convert(model: Transformer, activation: str, corpus: Corpus, folder: Path) -> Path:
    """Write a float32 model with ordinary heads, and its vocabularies, to a new folder."""
    width, heads = model.target_embedding.weight.shape[1], model.encoder[0].attention["encoder"].spec.heads
    layers = len(model.encoder), len(model.decoder)
    spec = TransformerSpec.from_config(layers, heads, pre_norm=False, activation=Activation[activation.upper()])
    stacks = (
        (spec.encoder, model.encoder, spec.encoder.embeddings[0], model.source_embedding),
        (spec.decoder, model.decoder, spec.decoder.embeddings, model.target_embedding),
    )
    for stack, stack_layers, embeddings, embedding in stacks:
        embeddings.weight = embedding.weight.detach().numpy()
        stack.position_encodings.encodings = model.position_table.numpy()
        for layer_spec, layer in zip(stack.layer, stack_layers, strict=True):
            for kind, attention in layer.attention.items():
                part = layer_spec.attention if kind == "cross" else layer_spec.self_attention
                parts = [width, 2 * width] if kind == "cross" else [3 * width]  # Q and KV, or QKV in one matrix
                weights = attention.in_projection.weight.split(parts)
                biases = attention.in_projection.bias.split(parts) if attention.in_projection.bias is not None else ()
                for number, weight in enumerate(weights):
                    _put(part.linear[number], weight, biases[number] if biases else None)
                _put(part.linear[-1], attention.output.weight, attention.output.bias)
                _put_norm(part.layer_norm, layer.attention_norm[kind])
            _put(layer_spec.ffn.linear_0, layer.feed_forward[0].weight, layer.feed_forward[0].bias)
            _put(layer_spec.ffn.linear_1, layer.feed_forward[2].weight, layer.feed_forward[2].bias)
            _put_norm(layer_spec.ffn.layer_norm, layer.feed_forward_norm)
    output_bias = torch.zeros(len(model.output_weight))
    output_bias[[PAD, BEGIN]] = NEVER
    _put(spec.decoder.projection, model.output_weight, output_bias)
    spec.register_source_vocabulary(corpus.source.words)
    spec.register_target_vocabulary(corpus.target.words)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = SPECIALS[1:]
    spec.config.decoder_start_token = SPECIALS[BEGIN]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    return folder


def _put(spec: Any, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    spec.weight = weight.detach().numpy()
    if bias is not None:
        spec.bias = bias.detach().numpy()


def _put_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()
