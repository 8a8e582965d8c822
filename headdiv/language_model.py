"""A decoder-only Transformer for language modelling, on windows of tokens.

GPT-2's parts (learned positions, biases everywhere, output tied to the embedding) with the layers of
`headdiv.model`: post-norm, no layer norm at the end. With GPT-2 medium's sizes and the 50,254 entries of
GPT-NeoX's byte-pair encoding that makes 354,818,048 parameters, the baseline of DEACON's Table 6.

Letters for shapes: R windows, N tokens of each, T = R·N rows, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from headdiv.attention import AttentionLayout, Cache
from headdiv.config import LMConfig
from headdiv.dropout import Dropout
from headdiv.errors import DataError
from headdiv.model import BuildAttention, Layer
from headdiv.packing import attention_mask, lay_out

IGNORED = -1  # stands in targets where nothing is to be predicted


@dataclass(frozen=True)
class Windows:
    """One batch of windows on rows, full from end to end."""

    inputs: Tensor  # (T,)
    targets: Tensor  # (T,) the token behind each; IGNORED in what a last window lacks
    layout: AttentionLayout

    def to(self, device: torch.device | str) -> Windows:
        """The same on another device."""
        if torch.device(device).type == "cpu":
            return self
        side, mask = self.layout.queries.to(device), self.layout.mask
        layout = AttentionLayout(side, side, mask if mask is None else mask.to(device))
        return Windows(self.inputs.to(device), self.targets.to(device), layout)


def make_windows(tokens: np.ndarray, end: int, boundaries: bool) -> Windows:
    """Lay out windows of N + 1 tokens each: (R, N + 1).

    Args:
        tokens: the first N of a window are read, the last N predicted; IGNORED fills up the last window.
        end: the token that stands at the beginning of every document.
        boundaries: attention and positions begin anew there; otherwise they run through the window.
    """
    R, N = tokens.shape[0], tokens.shape[1] - 1
    inputs, targets = tokens[:, :-1].reshape(-1), tokens[:, 1:].reshape(-1)
    first = np.zeros((R, N), dtype=bool)
    first[:, 0] = True
    if boundaries:
        first |= tokens[:, :-1] == end
    starts = np.flatnonzero(first)
    lengths = np.diff(starts, append=R * N)
    of_window = np.split(np.arange(len(starts)), np.searchsorted(starts, np.arange(1, R) * N))
    side = lay_out(lengths.tolist(), [part.tolist() for part in of_window])
    mask = attention_mask(side, side, causal=True) if boundaries else None
    as_tensor = (torch.from_numpy(part.astype(np.int64)) for part in (np.maximum(inputs, 0), targets))
    return Windows(*as_tensor, AttentionLayout(side, side, mask))


class LanguageModel(nn.Module):
    """Decoder-only; attention modules come from ``build_attention``, one call for each layer."""

    def __init__(self, config: LMConfig, vocabulary: int, context: int, build_attention: BuildAttention) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.positions = nn.Embedding(context, config.d_model)
        self.decoder = nn.ModuleList(
            Layer(config, build_attention, ["decoder"], layer) for layer in range(config.layers)
        )
        self.dropout = Dropout(config.dropout)

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the embedding itself."""
        return self.embedding.weight

    def forward(self, batch: Windows) -> Tensor:
        """Hidden states before the output: (T, D)."""
        x = self._embed(batch.inputs, batch.layout.queries.positions)
        for layer in self.decoder:
            x = layer(x, None, {"decoder": batch.layout})
        return x

    # ---- one token at a time

    def start(self, texts: int, length: int) -> list[dict[str, Cache]]:
        """Empty caches for ``length`` positions of so many texts."""
        like = self.embedding.weight
        return [{"decoder": layer.attention["decoder"].self_cache(texts, length, like)} for layer in self.decoder]

    def step(self, tokens: Tensor, position: int, caches: list[dict[str, Cache]]) -> Tensor:
        """Logits of the next token, (B,) -> (B, V); the caches grow by one position."""
        x = self._embed(tokens, torch.full_like(tokens, position))
        for layer, layer_caches in zip(self.decoder, caches, strict=True):
            x = layer.step(x, layer_caches)
        return x @ self.output_weight.T

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        scale = math.sqrt(self.embedding.embedding_dim)  # to unit variance: both embeddings start with 1/√D
        return self.dropout((self.embedding(tokens) + self.positions(positions)) * scale)


def continue_text(model: LanguageModel, prompt: list[int], new_tokens: int) -> list[int]:
    """The likeliest next token, ``new_tokens`` times.

    Raises:
        DataError: an empty prompt, or one that leaves too little room in the model's context.
    """
    return list(likeliest_tokens(model, prompt, new_tokens))


def likeliest_tokens(model: LanguageModel, prompt: list[int], new_tokens: int) -> Iterator[int]:
    """The same one by one, with cached keys and values; the prompt is read before the first."""
    context = model.positions.num_embeddings
    if not prompt or len(prompt) + new_tokens > context:
        raise DataError(f"a prompt of {len(prompt)} tokens and {new_tokens} new ones: expected 1 to {context} in all")
    model.eval()
    device = model.embedding.weight.device
    with torch.inference_mode():
        caches = model.start(1, len(prompt) + new_tokens)
    token = prompt[0]
    for position in range(len(prompt) + new_tokens - 1):
        with torch.inference_mode():  # not around a yield, which would leave it on for the caller
            logits = model.step(torch.tensor([token], device=device), position, caches)
        if position < len(prompt) - 1:
            token = prompt[position + 1]
        else:
            token = int(logits.argmax())
            yield token
