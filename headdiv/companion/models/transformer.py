"""The encoder-decoder Transformer (Vaswani et al. 2017) on packed rows.

Post-norm as in the original, without a final layer norm; sinusoidal positions; source, target and output
embeddings untied, unless asked for, and no output bias. These choices reproduce every parameter count of DEACON's
Table 3.

Letters for shapes: B batch, T source rows, U target rows, D model width, V vocabulary.
"""

from __future__ import annotations

import math
import zlib

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from headdiv.companion.models.batching import Batch
from headdiv.companion.models.sizes import ModelConfig
from headdiv.core.precision import autocast
from headdiv.methods.base import Method
from headdiv.nn.caches import Cache, State
from headdiv.nn.dropout import Dropout
from headdiv.nn.linear import Linear
from headdiv.nn.packing import MASKED, MAX_POSITIONS, AttentionLayout, PackedRows, pad_rows
from headdiv.nn.sizes import AttentionSpec, BlockSpec, Kind, Sizes


class FeedForward(nn.Sequential):
    """Position-wise network: W2 relu(W1 x + b1) + b2, or with GELU."""

    def __init__(self, config: Sizes) -> None:
        super().__init__(
            Linear(config.d_model, config.d_ff),
            nn.ReLU(inplace=True) if config.activation == "relu" else nn.GELU(),
            Linear(config.d_ff, config.d_model),
        )


class Layer(nn.Module):
    """Self-attention, in the decoder encoder-decoder attention, feed-forward; each norm(x + dropout(f(x)))."""

    recompute = False  # whether its activations are computed again in the backward pass: see `checkpoint_layers`

    def __init__(self, config: Sizes, method: Method, kinds: list[Kind], layer: int) -> None:
        super().__init__()
        specs = [AttentionSpec(kind, layer, config.d_model, config.heads, config.attention_bias) for kind in kinds]
        self.attention = nn.ModuleDict({spec.kind: method.attention(spec) for spec in specs})
        for attention in self.attention.values():
            attention.method = method
        self.attention_norm = nn.ModuleDict({kind: nn.LayerNorm(config.d_model) for kind in kinds})
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.block_output = method.block_output(BlockSpec(kinds[0], layer, config.d_model))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, memory: Tensor | None, layouts: dict[Kind, AttentionLayout]) -> Tensor:
        """(rows, D) -> (rows, D)."""
        for kind, attention in self.attention.items():
            update = attention(x, memory if kind == "cross" else None, layouts[kind])
            x = self.attention_norm[kind](x + self.dropout(update))
        return self.block_output(self.feed_forward_norm(x + self.dropout(self.feed_forward(x))))

    def step(self, x: Tensor, caches: dict[str, Cache]) -> Tensor:
        """One new position for each line of a search: (N, D) -> (N, D)."""
        for kind, attention in self.attention.items():
            x = self.attention_norm[kind](x + attention.step(x, caches[kind]))
        return self.block_output(self.feed_forward_norm(x + self.feed_forward(x)))


def make_layers(config: Sizes, method: Method, kinds: list[Kind], number: int) -> nn.ModuleList:
    """A stack of layers with attention of these kinds."""
    return nn.ModuleList(Layer(config, method, kinds, layer) for layer in range(number))


def run_layers(layers: nn.ModuleList, x: Tensor, memory: Tensor | None, layouts: dict[Kind, AttentionLayout]) -> Tensor:
    """Run the layers in order: (rows, D) -> (rows, D)."""
    for layer in layers:
        if layer.recompute and torch.is_grad_enabled():
            x = checkpoint(layer, x, memory, layouts, use_reentrant=False)
        else:
            x = layer(x, memory, layouts)
    return x


def checkpoint_layers(model: nn.Module) -> None:
    """Keep no activations of layers in training, but compute them again in the backward pass (Chen et al. 2016).

    Gradients and all statistics are the same to the last bit: a method's module counts nothing of a repeated pass
    (`headdiv.core.tracing.is_recomputing`).
    """
    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.recompute = True


def step_layers(layers: nn.ModuleList, x: Tensor, state: State) -> Tensor:
    """One new position through all layers, (N, D) -> (N, D)."""
    for layer, caches in zip(layers, state.layers, strict=True):
        x = layer.step(x, caches)
    return x


class Transformer(nn.Module):
    """Encoder–decoder; attention modules come from ``method``, one call per module.

    Args:
        config: the sizes.
        source_words: words that the encoder can read.
        target_words: words that the decoder can read.
        method: makes attention modules, and what a layer's output goes through.
        outputs: scores for each row of the decoder; by default one for each target word.
    """

    def __init__(
        self,
        config: ModelConfig,
        source_words: int,
        target_words: int,
        method: Method,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        D = config.d_model
        self.source_embedding = nn.Embedding(source_words, D)
        self.target_embedding = nn.Embedding(target_words, D)
        if config.tied:
            self.source_embedding.weight = self.target_embedding.weight
        self.encoder = make_layers(config, method, ["encoder"], config.encoder_layers)
        self.decoder = make_layers(config, method, ["decoder", "cross"], config.decoder_layers)
        self.output_embedding = nn.Linear(D, outputs or target_words, bias=False)
        if config.tied_output or config.tied:
            self.output_embedding.weight = self.target_embedding.weight
        self.dropout = Dropout(config.dropout)
        self.register_buffer("position_table", sinusoids(MAX_POSITIONS, D), persistent=False)

    @property
    def output_weight(self) -> Tensor:
        """(V, D)."""
        return self.output_embedding.weight

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states before the output embedding, teacher forcing: (U, D)."""
        return self.decode(batch, self.encode(batch.source, batch.encoder))

    def encode(self, source: Tensor, layout: AttentionLayout) -> Tensor:
        """(T,) source words -> (T, D)."""
        x = self._embed(self.source_embedding, source, layout.queries.positions)
        return run_layers(self.encoder, x, None, {"encoder": layout})

    def decode(self, batch: Batch, memory: Tensor) -> Tensor:
        """(T, D) encoder states -> (U, D)."""
        x = self._embed(self.target_embedding, batch.target_in, batch.target_rows.positions)
        return run_layers(self.decoder, x, memory, {"decoder": batch.decoder, "cross": batch.cross})

    # ---- one token at a time

    def start(self, memory: Tensor, rows: PackedRows, width: int = 1) -> State:
        """``width`` lines for each of n texts, of memory (T, D) on ``rows``."""
        memory = pad_rows(memory, rows)  # (n, S, D)
        empty = torch.arange(memory.shape[1], device=memory.device) >= rows.lengths[:, None]
        excluded = max(MASKED, torch.finfo(memory.dtype).min)  # float16 has no `MASKED`
        mask = memory.new_zeros(empty.shape).masked_fill_(empty, excluded)  # (n, S)
        layers = [
            {
                "decoder": layer.attention["decoder"].self_cache(len(memory) * width, like=memory),
                "cross": layer.attention["cross"].cross_cache(memory, mask),
            }
            for layer in self.decoder
        ]
        return State(layers)

    def step(self, words: Tensor, state: State) -> Tensor:
        """Hidden states for the next word's logits, (N,) -> (N, D)."""
        state.advance()
        x = self._embed(self.target_embedding, words, torch.full_like(words, state.position))
        return step_layers(self.decoder, x, state)

    def _embed(self, embedding: nn.Embedding, words: Tensor, positions: Tensor) -> Tensor:
        scale = math.sqrt(embedding.embedding_dim)
        return self.dropout(autocast(embedding(words) * scale + self.position_table[positions]))


def sinusoids(positions: int, width: int) -> Tensor:
    """The original's fixed positions: sin and cos of p / 10000^(2i/D) in alternate columns, (positions, D)."""
    # Computed on the CPU, also for a model on the meta device: torch imports its compiler for torch.exp there.
    position = torch.arange(positions, dtype=torch.float64, device="cpu")
    dimensions = torch.arange(0, width, 2, dtype=torch.float64, device="cpu")
    angle = position[:, None] * torch.exp(dimensions * (-math.log(10000.0) / width))  # (positions, ceil(D / 2))
    table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
    return table.float().to(torch.empty(0).device)  # in torch 2.6 get_default_device ignores `with torch.device`


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every parameter from (seed, its own name) alone.

    Two variants with the same seed therefore start from equal values wherever their parameters have equal
    names and shapes, whatever else they contain: the common random seed of the paper, made exact.
    A module with its own ``initialise(generator)`` method fills its parameters itself; an output tied to an embedding
    is drawn as the embedding.
    """
    embedded = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, module in model.named_modules():
        # Seed and name go into 32 bits together: torch's generator on the CPU ignores the upper ones.
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        if hasattr(module, "initialise"):
            module.initialise(generator)
        elif isinstance(module, nn.Linear) and id(module.weight) not in embedded:
            nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5, generator=generator)


def count_parameters(model: nn.Module) -> int:
    """Trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
