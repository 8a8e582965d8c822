"""Trained translation and summarisation models in the formats of CTranslate2 and Hugging Face's transformers.

Both know the plain post-norm Transformer, so a model is folded first (`headdiv.nn.folding`). Words that are never
output (PAD and BEGIN) get an output bias of `NEVER`, in place of the search's own rule.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from headdiv.companion.tasks.base import Run
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import replacing, write_json
from headdiv.nn.batching import BEGIN, END, PAD, SPECIALS
from headdiv.nn.folding import fold
from headdiv.nn.linear import LINEAR
from headdiv.nn.multi_head_attention import is_identity_in_evaluation
from headdiv.nn.transformer import MAX_POSITIONS, Transformer

NEVER = -1e9

# What an export holds. One with anything else beside it is not replaced.
FILES = (
    {"config.json", "model.bin", "source_vocabulary.json", "target_vocabulary.json"},
    {"config.json", "model.bin", "shared_vocabulary.json"},
    {"config.json", "generation_config.json", "model.safetensors", "target_vocab.json", "vocab.json"},
    {"config.json", "model.safetensors", "target_vocab.json", "vocab.json"},  # as 0.2 and earlier versions wrote
)


def export(run: Run, folder: Path, to: str, quantization: str | None = None) -> Path:
    """Write a run's model to ``folder``, whole or not at all; returns it. An earlier export there is replaced.

    Args:
        run: of a task whose model is an encoder-decoder that writes words.
        to: a key of `FORMATS`.
        quantization: CTranslate2's: "int8", "int16", "float16", …; None: float32.

    Raises:
        ConfigError: the model is not plain attention in evaluation, the format's package is not installed, or it has
            no such quantization. Nothing is written then.
        DataError: ``folder`` holds something that is no export.
        StorageError: the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} not in (set(), *FILES)):
        raise DataError(f"{folder}: holds something that is no export; expected an empty folder, an export, or none")
    model = _plain(run)
    try:
        with replacing(folder) as temporary:
            FORMATS[to](model, run, temporary, quantization)
    except ModuleNotFoundError as error:
        raise ConfigError(f"--to {to} needs the package {error.name}, which is not installed") from None
    return folder


def _plain(run: Run) -> Transformer:
    """The run's model, folded; an error where that is not the plain Transformer."""
    what = f"{run.config.label} cannot be exported: "
    model = run.model
    if not isinstance(model, Transformer) or len(model.output_weight) != len(model.target_embedding.weight):
        raise ConfigError(f"{what}expected a model that writes words, of translation or summarisation")
    model = fold(model).cpu().float()
    for layer in [*model.encoder, *model.decoder]:
        for part in layer.attention.values():
            if not part.is_plain or type(part.output) not in LINEAR:
                raise ConfigError(f"{what}its {part.spec.place} attention is not plain attention in evaluation either")
        if not is_identity_in_evaluation(layer.block_output):
            raise ConfigError(f"{what}what follows {part.spec.place} changes its layer's output in evaluation too")
    return model


def _to_ctranslate2(model: Transformer, run: Run, folder: Path, quantization: str | None) -> None:
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

    if quantization not in (None, *ACCEPTED_MODEL_TYPES):
        raise ConfigError(f"--quantization: expected one of {', '.join(ACCEPTED_MODEL_TYPES)}, found {quantization!r}")

    def put(spec: Any, weight: Tensor, bias: Tensor | None = None) -> None:
        spec.weight = weight.detach().numpy()
        if bias is not None:
            spec.bias = bias.detach().numpy()

    def norm(spec: Any, module: nn.LayerNorm) -> None:
        spec.gamma, spec.beta = (part.detach().numpy() for part in (module.weight, module.bias))

    sizes, corpus = run.config.model, run.corpus
    spec = TransformerSpec.from_config(
        (sizes.encoder_layers, sizes.decoder_layers),
        sizes.heads,
        pre_norm=False,
        activation=Activation[sizes.activation.upper()],
    )
    for stack, layers, embedding in (
        (spec.encoder, model.encoder, model.source_embedding),
        (spec.decoder, model.decoder, model.target_embedding),
    ):
        put(stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings, embedding.weight)
        stack.position_encodings.encodings = model.position_table.numpy()
        for made, layer in zip(stack.layer, layers, strict=True):
            for kind, attention in layer.attention.items():
                into = made.attention if kind == "cross" else made.self_attention
                blocks = (slice(0, 1), slice(1, 3)) if kind == "cross" else (slice(0, 3),)
                for linear, block in zip(into.linear, blocks, strict=False):
                    rows = slice(block.start * sizes.d_model, block.stop * sizes.d_model)
                    bias = attention.in_projection.bias
                    put(linear, attention.in_projection.weight[rows], None if bias is None else bias[rows])
                put(into.linear[-1], attention.output.weight, attention.output.bias)
                norm(into.layer_norm, layer.attention_norm[kind])
            put(made.ffn.linear_0, layer.feed_forward[0].weight, layer.feed_forward[0].bias)
            put(made.ffn.linear_1, layer.feed_forward[2].weight, layer.feed_forward[2].bias)
            norm(made.ffn.layer_norm, layer.feed_forward_norm)
    put(spec.decoder.projection, model.output_weight, _output_bias(model))
    spec.register_source_vocabulary(corpus.source.words)
    spec.register_target_vocabulary(corpus.target.words)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = SPECIALS[1:]
    spec.config.decoder_start_token = SPECIALS[BEGIN]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


def _to_huggingface(model: Transformer, run: Run, folder: Path, quantization: str | None) -> None:
    """Marian's layout: as ours, but positions have their sines first, which orders the width's dimensions anew."""
    if quantization:
        raise ConfigError(f"--quantization {quantization}: is CTranslate2's; expected none with --to huggingface")
    sizes, corpus = run.config.model, run.corpus
    order = torch.arange(sizes.d_model).view(-1, 2).T.flatten()  # even dimensions, then odd ones
    found = {"lm_head.weight": model.output_weight[:, order], "final_logits_bias": _output_bias(model)[None]}

    def put(name: str, weight: Tensor, bias: Tensor | None) -> None:
        found[f"model.{name}.weight"] = weight
        found[f"model.{name}.bias"] = torch.zeros(len(weight)) if bias is None else bias

    for stack, layers, embedding in (
        ("encoder", model.encoder, model.source_embedding),
        ("decoder", model.decoder, model.target_embedding),
    ):
        found[f"model.{stack}.embed_tokens.weight"] = embedding.weight[:, order]
        for number, layer in enumerate(layers):
            at = f"{stack}.layers.{number}"
            for kind, attention in layer.attention.items():
                name = "encoder_attn" if kind == "cross" else "self_attn"
                biases = attention.in_projection.bias
                for block, part in enumerate("qkv"):
                    rows = slice(block * sizes.d_model, (block + 1) * sizes.d_model)
                    weight = attention.in_projection.weight[rows][:, order]
                    put(f"{at}.{name}.{part}_proj", weight, None if biases is None else biases[rows])
                put(f"{at}.{name}.out_proj", attention.output.weight[order], attention.output.bias[order])
                norm = layer.attention_norm[kind]
                put(f"{at}.{name}_layer_norm", norm.weight[order], norm.bias[order])
            first, _, last = layer.feed_forward
            put(f"{at}.fc1", first.weight[:, order], first.bias)
            put(f"{at}.fc2", last.weight[order], last.bias[order])
            put(f"{at}.final_layer_norm", layer.feed_forward_norm.weight[order], layer.feed_forward_norm.bias[order])
    folder.mkdir()
    save_file({name: value.detach().contiguous() for name, value in found.items()}, folder / "model.safetensors")
    special = {
        "pad_token_id": PAD,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "decoder_start_token_id": BEGIN,
        "forced_eos_token_id": END,
    }
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "d_model": sizes.d_model,
        "vocab_size": len(corpus.source),
        "decoder_vocab_size": len(corpus.target),
        "encoder_layers": sizes.encoder_layers,
        "decoder_layers": sizes.decoder_layers,
        **{f"{stack}_attention_heads": sizes.heads for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": sizes.d_ff for stack in ("encoder", "decoder")},
        "activation_function": sizes.activation,
        "dropout": sizes.dropout,
        "scale_embedding": True,
        "max_position_embeddings": MAX_POSITIONS,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "is_encoder_decoder": True,
        **special,
    }
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", special | _huggingface_search(run))
    for name, vocabulary in (("vocab", corpus.source), ("target_vocab", corpus.target)):
        write_json(folder / f"{name}.json", {word: index for index, word in enumerate(vocabulary.words)})


def _huggingface_search(run: Run) -> dict[str, float]:
    """The run's search; the longest output, BEGIN counted, is that of the longest training text, in place of 20 words.

    Here every text has a limit of its own, which transformers does not know.
    """
    decode, longest = run.config.decode, int(run.corpus.train.pairs.sizes("source").max())
    limit = min(int(longest * decode.max_length_factor + decode.max_length_offset), MAX_POSITIONS)
    return {"num_beams": decode.beam, "length_penalty": decode.length_penalty, "max_length": 1 + limit}


def _output_bias(model: Transformer) -> Tensor:
    bias = torch.zeros(len(model.output_weight))
    bias[[PAD, BEGIN]] = NEVER
    return bias


FORMATS: dict[str, Callable[[Transformer, Run, Path, str | None], None]] = {
    "ctranslate2": _to_ctranslate2,
    "huggingface": _to_huggingface,
}
