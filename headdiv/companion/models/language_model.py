"""Single-stack Transformers on windows of tokens: a decoder for language modelling, an encoder for masked text.

GPT-2's parts (learned positions, biases everywhere, output tied to the embedding) with the layers of
`transformer`: post-norm, no layer norm at the end. With GPT-2 medium's sizes and the 50,254 entries of
GPT-NeoX's byte-pair encoding that makes 354,818,048 parameters, the baseline of DEACON's Table 6.

Letters for shapes: R windows, N tokens of each, T = R·N rows, D model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from headdiv.companion.models.batching import IGNORED
from headdiv.companion.models.sizes import LMConfig
from headdiv.companion.models.transformer import make_layers, run_layers, step_layers
from headdiv.core.precision import autocast
from headdiv.methods.base import Method
from headdiv.nn.caches import State
from headdiv.nn.dropout import Dropout
from headdiv.nn.packing import AttentionLayout, attention_mask, pack
from headdiv.nn.sizes import Kind


@dataclass(frozen=True)
class Windows:
    """One batch of windows on rows."""

    inputs: Tensor  # (T,)
    targets: Tensor  # (T,) what is to be predicted at each; IGNORED where nothing is
    layout: AttentionLayout
    predicted: Tensor  # (P,) the rows with a target, found when packed: on a GPU, finding them means waiting

    def to(self, device: torch.device | str) -> Windows:
        """The same on another device."""
        return Windows(**{name: part.to(device) for name, part in vars(self).items()})

    def with_targets(self, targets: Tensor) -> Windows:
        """The same with another target."""
        return replace(self, targets=targets, predicted=_rows_with_target(targets))


def make_windows(inputs: np.ndarray, targets: np.ndarray, end: int, boundaries: bool, causal: bool) -> Windows:
    """Lay out windows of tokens.

    Args:
        inputs: the tokens that are read, (R, N); IGNORED, which fills up the last window of a text, makes no rows.
        targets: what is to be predicted at each, (R, N); IGNORED where nothing is.
        end: the token at the beginning of every document.
        boundaries: attention and positions start again there; otherwise they run through the window.
        causal: a token sees itself and those before it; otherwise all of its window, or of its document.
    """
    R, N = inputs.shape
    present = inputs != IGNORED
    first = np.zeros((R, N), dtype=bool)
    first[:, 0] = True
    if boundaries:
        first |= inputs == end
    starts = np.flatnonzero(first)
    lengths = np.add.reduceat(present.reshape(-1), starts, dtype=np.int64)
    by_window = np.split(np.arange(len(starts)), np.searchsorted(starts, np.arange(1, R) * N))
    rows = pack(lengths.tolist(), [part.tolist() for part in by_window])
    mask = attention_mask(rows, rows, causal) if boundaries or not rows.full or not causal else None
    read, to_predict = (torch.from_numpy(tokens[present].astype(np.int64)) for tokens in (inputs, targets))
    return Windows(read, to_predict, AttentionLayout(rows, rows, mask), _rows_with_target(to_predict))


def _rows_with_target(targets: Tensor) -> Tensor:
    return (targets != IGNORED).nonzero().flatten()


class WindowModel(nn.Module):
    """Embeddings, and one stack of layers.

    Args:
        config: the sizes.
        entries: rows of the embedding.
        context: tokens of the longest window.
        method: makes attention modules, and what a layer's output goes through.
        stack: "decoder" or "encoder": the kind of its attention for methods, and the name of its layers.
    """

    def __init__(self, config: LMConfig, entries: int, context: int, method: Method, stack: Kind) -> None:
        super().__init__()
        self.embedding = nn.Embedding(entries, config.d_model)
        self.positions = nn.Embedding(context, config.d_model)
        self.stack = stack
        self.add_module(stack, make_layers(config, method, [stack], config.layers))
        self.dropout = Dropout(config.dropout)

    @property
    def layers(self) -> nn.ModuleList:
        """The stack's layers."""
        return self.get_submodule(self.stack)

    def forward(self, batch: Windows) -> Tensor:
        """Hidden states before the output: (T, D)."""
        x = self._embed(batch.inputs, batch.layout.queries.positions)
        return run_layers(self.layers, x, None, {self.stack: batch.layout})

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        scale = math.sqrt(self.embedding.embedding_dim)  # to unit variance: both embeddings start with 1/√D
        return self.dropout(autocast((self.embedding(tokens) + self.positions(positions)) * scale))


class LanguageModel(WindowModel):
    """Decoder-only; inputs and outputs share one vocabulary."""

    def __init__(self, config: LMConfig, vocabulary: int, context: int, method: Method) -> None:
        super().__init__(config, vocabulary, context, method, "decoder")

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the embedding itself."""
        return self.embedding.weight

    # ---- one token at a time

    def start(self, lines: int) -> State:
        """A line for each of this many texts."""
        like = self.embedding.weight
        return State([{"decoder": layer.attention["decoder"].self_cache(lines, like)} for layer in self.layers])

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """Hidden states for the next token's logits, (N,) -> (N, D)."""
        state.advance()
        x = self._embed(tokens, torch.full_like(tokens, state.position))
        return step_layers(self.layers, x, state)


class MaskedModel(WindowModel):
    """Encoder-only: every token attends to those before and after it.

    The embedding has one row more than the vocabulary, the last: the mask token. The output is tied to the
    other V rows, so that the mask token is never predicted.
    """

    def __init__(self, config: LMConfig, vocabulary: int, context: int, method: Method) -> None:
        super().__init__(config, vocabulary + 1, context, method, "encoder")

    @property
    def output_weight(self) -> Tensor:
        """(V, D), the embedding without the mask token's row."""
        return self.embedding.weight[:-1]


@torch.inference_mode()
def fill_in(model: MaskedModel, batch: Windows) -> Tensor:
    """The likeliest token wherever the batch asks for one, each separately: (predictions,)."""
    model.eval()
    batch = batch.to(model.embedding.weight.device)
    hidden = model(batch)[batch.predicted]  # (predictions, D)
    return (hidden @ model.output_weight.T).argmax(dim=-1)


def likeliest_tokens(model: LanguageModel, prompt: list[int], new_tokens: int, end: int | None = None) -> Iterator[int]:
    """The likeliest next token, ``new_tokens`` times, with cached keys and values; the prompt is read before the first.

    Prompt and new tokens must fit into the model's context. ``end``: the token at which attention and positions start
    again, see `make_windows`; None: nowhere.
    """
    model.eval()
    device = model.embedding.weight.device
    token, state = prompt[0], None
    for position in range(len(prompt) + new_tokens - 1):
        with torch.inference_mode():  # not around a yield, which would leave it on for the caller
            if state is None or token == end:
                state = model.start(1)
            logits = model.step(torch.tensor([token], device=device), state) @ model.output_weight.T
        if position < len(prompt) - 1:
            token = prompt[position + 1]
        else:
            token = int(logits.argmax())
            yield token
