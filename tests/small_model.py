"""A small encoder-decoder on packed rows, of the library's parts alone: what tests of methods run on."""

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from headdiv.core.precision import autocast
from headdiv.nn.caches import State
from headdiv.nn.packing import AttentionLayout, assign_windows, attention_mask, pack
from headdiv.nn.sizes import AttentionSpec, BlockSpec, Sizes

BEGIN, END, WORDS = 2, 3, 15


class SmallSizes(Sizes):
    encoder_layers: int = 1
    decoder_layers: int = 1

    @property
    def attention_layers(self):
        return {"encoder": self.encoder_layers, "decoder": self.decoder_layers, "cross": self.decoder_layers}


@dataclass
class Pairs:
    """Sentence pairs as word indices, without BEGIN and END."""

    source: list
    target: list

    def __len__(self):
        return len(self.source)


@dataclass
class Batch:
    numbers: torch.Tensor  # of the pairs, in row order
    source: torch.Tensor
    target_in: torch.Tensor
    target_out: torch.Tensor
    encoder: AttentionLayout
    decoder: AttentionLayout
    cross: AttentionLayout

    @property
    def source_rows(self):
        return self.encoder.queries

    @property
    def target_rows(self):
        return self.decoder.queries


def some_pairs(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return Pairs(*([rng.integers(4, WORDS, rng.integers(1, 7)) for _ in range(n)] for _ in range(2)))


def make_batch(pairs, numbers, window=48):
    """The pairs with these numbers; END is appended to the source, BEGIN and END enclose the target."""
    sources = [[*pairs.source[i], END] for i in numbers]
    targets = [[BEGIN, *pairs.target[i], END] for i in numbers]
    return batch_of(list(numbers), sources, targets, window)


def batch_of(numbers, sources, targets, window=48):
    """Of whole sentences; the targets' words but the last are read, those but the first predicted."""
    lengths = [len(words) for words in sources], [len(words) - 1 for words in targets]
    windows = assign_windows(*lengths, width=window)
    order = [i for each in windows for i in each]
    source, target = (pack(side, windows) for side in lengths)
    sides = ([sources[i] for i in order], [targets[i][:-1] for i in order], [targets[i][1:] for i in order])
    rows = (torch.tensor([int(word) for words in side for word in words], dtype=torch.int64) for side in sides)
    return Batch(
        torch.tensor([numbers[i] for i in order], dtype=torch.int64),
        *rows,
        AttentionLayout(source, source, attention_mask(source, source)),
        AttentionLayout(target, target, attention_mask(target, target, causal=True)),
        AttentionLayout(target, source, attention_mask(target, source)),
    )


class Layer(nn.Module):
    """Attention of these kinds, each norm(x + dropout(f(x))), and what a method does to the layer's output."""

    def __init__(self, sizes, method, kinds, layer):
        super().__init__()
        specs = [AttentionSpec(kind, layer, sizes.d_model, sizes.heads, sizes.attention_bias) for kind in kinds]
        self.attention = nn.ModuleDict({spec.kind: method.attention(spec) for spec in specs})
        for attention in self.attention.values():
            attention.method = method
        self.norm = nn.ModuleDict({kind: nn.LayerNorm(sizes.d_model) for kind in kinds})
        self.block_output = method.block_output(BlockSpec(kinds[0], layer, sizes.d_model))
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x, memory, layouts):
        for kind, attention in self.attention.items():
            update = attention(x, memory if kind == "cross" else None, layouts[kind])
            x = self.norm[kind](x + self.dropout(update))
        return self.block_output(x)

    def step(self, x, caches):
        for kind, attention in self.attention.items():
            x = self.norm[kind](x + attention.step(x, caches[kind]))
        return self.block_output(x)


class Small(nn.Module):
    def __init__(self, sizes, method):
        super().__init__()
        D = sizes.d_model
        self.source_embedding, self.target_embedding = nn.Embedding(WORDS, D), nn.Embedding(WORDS, D)
        self.positions = nn.Embedding(16, D)
        self.encoder = nn.ModuleList(Layer(sizes, method, ["encoder"], i) for i in range(sizes.encoder_layers))
        self.decoder = nn.ModuleList(Layer(sizes, method, ["decoder", "cross"], i) for i in range(sizes.decoder_layers))
        self.output_weight = nn.Parameter(torch.empty(WORDS, D))

    def initialise(self, generator):
        nn.init.xavier_uniform_(self.output_weight, generator=generator)

    def forward(self, batch):
        """Hidden states of the target's rows."""
        return self.decode(batch, self.encode(batch.source, batch.encoder))

    def encode(self, source, layout):
        x = autocast(self.source_embedding(source) + self.positions(layout.queries.positions))
        for layer in self.encoder:
            x = layer(x, None, {"encoder": layout})
        return x

    def decode(self, batch, memory):
        x = autocast(self.target_embedding(batch.target_in) + self.positions(batch.target_rows.positions))
        for layer in self.decoder:
            x = layer(x, memory, {"decoder": batch.decoder, "cross": batch.cross})
        return x

    def start(self, memory, mask, width=1):
        """``width`` lines for each text of padded memory (n, S, D) with mask (n, S)."""
        caches = [
            {
                "decoder": layer.attention["decoder"].self_cache(len(memory) * width, memory),
                "cross": layer.attention["cross"].cross_cache(memory, mask),
            }
            for layer in self.decoder
        ]
        return State(caches)

    def step(self, words, state):
        """Hidden states after one more word of each line."""
        state.advance()
        x = self.target_embedding(words) + self.positions(torch.full_like(words, state.position))
        for layer, caches in zip(self.decoder, state.layers, strict=True):
            x = layer.step(x, caches)
        return x


def initialise(model, seed):
    """Every parameter from seed and name, so that models with equal names start equal."""
    for name, module in model.named_modules():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        if hasattr(module, "initialise"):
            module.initialise(generator)
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, generator=generator)


def loss_of(model, hidden, batch, reduction="mean"):
    """The cross-entropy of the batch's predictions."""
    return F.cross_entropy(hidden @ model.output_weight.T.to(hidden.dtype), batch.target_out, reduction=reduction)


def count_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())
