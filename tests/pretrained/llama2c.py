"""A trained Llama of llama2.c's format (https://github.com/karpathy/llama2.c, run.c) as a folder of transformers'.

``python tests/pretrained/llama2c.py SOURCE FOLDER`` reads ``stories260K.bin`` and ``tok512.bin`` and writes it, with
400 texts that it has drawn itself (``stories.txt``, one a line).
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from torch import Tensor

SPACE = "▁"  # what stands for a space in sentencepiece's pieces
BYTES = 3 + 256  # pieces that are special or one byte each; those after them merge


@dataclass(frozen=True)
class Llama2C:
    """A file's header, and its parameters by llama2.c's names, stacked over layers."""

    dim: int
    hidden: int
    layers: int
    heads: int
    key_heads: int
    words: int
    length: int
    weights: dict[str, Tensor]


def read_model(path: Path) -> Llama2C:
    """Header of seven integers, then float32 weights; the embedding is also the output."""
    content = path.read_bytes()
    dim, hidden, layers, heads, key_heads, words, length = struct.unpack_from("<7i", content)
    if words <= 0:
        raise ValueError(f"{path}: expected one embedding for input and output, found two")
    keys, half = dim // heads * key_heads, dim // heads // 2
    shapes = {
        "embedding": (words, dim), "attention_norm": (layers, dim),
        "q": (layers, dim, dim), "k": (layers, keys, dim), "v": (layers, keys, dim), "o": (layers, dim, dim),
        "mlp_norm": (layers, dim), "w1": (layers, hidden, dim), "w2": (layers, dim, hidden),
        "w3": (layers, hidden, dim), "norm": (dim,), "cosine": (length, half), "sine": (length, half),
    }  # fmt: skip
    numbers, weights, first = torch.frombuffer(bytearray(content[28:]), dtype=torch.float32), {}, 0
    for name, shape in shapes.items():
        size = torch.Size(shape).numel()
        weights[name] = numbers[first : first + size].view(shape)
        first += size
    if first != len(numbers):
        raise ValueError(f"{path}: expected {first} numbers after the header, found {len(numbers)}")
    return Llama2C(dim, hidden, layers, heads, key_heads, words, length, weights)


def read_pieces(path: Path) -> list[tuple[str, float]]:
    """The vocabulary: each piece with its score, by which pieces merge."""
    content, first, pieces = path.read_bytes(), 4, []
    while first < len(content):
        score, size = struct.unpack_from("<fi", content, first)
        pieces.append((content[first + 8 : first + 8 + size].decode(), score))
        first += 8 + size
    return pieces


def as_transformers(model: Llama2C) -> transformers.LlamaForCausalLM:
    """The same model. Rotary embeddings pair unit i of a head with i + half its width there, with i + 1 here."""
    config = transformers.LlamaConfig(
        vocab_size=model.words, hidden_size=model.dim, intermediate_size=model.hidden, num_hidden_layers=model.layers,
        num_attention_heads=model.heads, num_key_value_heads=model.key_heads, max_position_embeddings=model.length,
        rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    result, width, w = transformers.LlamaForCausalLM(config), model.dim // model.heads, model.weights

    def halves(weight: Tensor) -> Tensor:
        return weight.view(-1, width // 2, 2, model.dim).transpose(1, 2).reshape(-1, model.dim)

    named = {
        "self_attn.q_proj": [halves(each) for each in w["q"]], "self_attn.k_proj": [halves(each) for each in w["k"]],
        "self_attn.v_proj": w["v"], "self_attn.o_proj": w["o"], "mlp.gate_proj": w["w1"], "mlp.down_proj": w["w2"],
        "mlp.up_proj": w["w3"], "input_layernorm": w["attention_norm"], "post_attention_layernorm": w["mlp_norm"],
    }  # fmt: skip
    state = {f"model.layers.{i}.{name}.weight": of[i] for name, of in named.items() for i in range(model.layers)}
    outer = {"model.embed_tokens": "embedding", "lm_head": "embedding", "model.norm": "norm"}
    result.load_state_dict(state | {f"{name}.weight": w[key] for name, key in outer.items()})
    return result.eval()


def as_tokenizer(pieces: list[tuple[str, float]]) -> transformers.PreTrainedTokenizerFast:
    """The same pieces: the pair whose union has the highest score is merged first; unknown characters become bytes."""
    ids = {"<unk>": 0, "<s>": 1, "</s>": 2}
    shown = [piece.replace(" ", SPACE) for piece, _ in pieces]
    ids |= {piece: i for i, piece in enumerate(shown) if i >= len(ids)}
    merges = [
        (-score, piece[:cut], piece[cut:])
        for piece, (_, score) in zip(shown[BYTES:], pieces[BYTES:], strict=True)
        for cut in range(1, len(piece))
    ]
    pairs = [(one, two) for _, one, two in sorted(merges) if one in ids and two in ids]
    core = Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    core.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **named)


def drawn(model: transformers.LlamaForCausalLM, tokenizer: Any, count: int, seed: int = 1) -> list[str]:
    """First paragraphs of stories drawn from the model (temperature 1, at most 220 tokens)."""
    torch.manual_seed(seed)
    start = torch.full((count, 1), tokenizer.bos_token_id)
    ids = model.generate(start, attention_mask=torch.ones_like(start), do_sample=True, top_k=0, max_new_tokens=220)
    return [text.splitlines()[0].strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def convert(source: Path, folder: Path) -> tuple[Any, list[str]]:
    """Write the model, its tokeniser and its texts, and return these two."""
    model = as_transformers(read_model(source / "stories260K.bin"))
    tokenizer = as_tokenizer(read_pieces(source / "tok512.bin"))
    texts = drawn(model, tokenizer, 400)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "stories.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return tokenizer, texts


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))
