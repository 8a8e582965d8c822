"""Model sizes, kinds of attention, and settings of the search for outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import Field, model_validator

from headdiv.core.settings import Settings, hash_neutral

WIDEST, MOST_LAYERS = 65_536, 1_024  # no machine holds a model beyond these

Kind = Literal["encoder", "decoder", "cross"]  # of attention: encoder self-, decoder self-, encoder-decoder attention
ATTENTION_KINDS: tuple[Kind, ...] = get_args(Kind)
Normalisation = Literal["batch", "layer", "none"]


@dataclass(frozen=True)
class AttentionSpec:
    """Position and sizes of an attention module to be built by a method."""

    kind: Kind  # encoder self-, decoder self- or encoder-decoder attention
    layer: int  # from 0
    d_model: int  # D
    heads: int  # H
    bias: bool = False  # of the query, key and value projections
    width: int | None = None  # K, where it is not D / H

    @property
    def d_head(self) -> int:
        """K, the paper's d_k: D / H unless ``width`` says otherwise."""
        return self.width or self.d_model // self.heads

    @property
    def name(self) -> str:
        """Its name in results: "encoder 1", "decoder 2", "cross 1"."""
        return f"{self.kind} {self.layer + 1}"


@dataclass(frozen=True)
class BlockSpec:
    """Position and width of a block (layer) whose output a method may change."""

    stack: Literal["encoder", "decoder"]
    layer: int  # from 0
    d_model: int  # D

    @property
    def name(self) -> str:
        """Its name in results: "encoder block 1"."""
        return f"{self.stack} block {self.layer + 1}"


class Sizes(Settings):
    """What every Transformer has."""

    d_model: int = Field(256, ge=1, le=WIDEST, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(8, ge=1, le=WIDEST, description="attention heads h")
    d_ff: int = Field(512, ge=1, le=8 * WIDEST, description="inner width of the feed-forward layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on every sub-layer's output")
    attention_bias: bool = Field(False, description="bias of the query, key and value projections")
    activation: Literal["relu", "gelu"] = Field("relu", description="of the feed-forward layers")

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Sizes:
        if self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model = {self.d_model}")
        return self


class ModelConfig(Sizes):
    """Sizes of the encoder-decoder Transformer; defaults are those of DEACON's Table 3."""

    encoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    decoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    tied_output: bool = Field(False, description="the output embedding is the target embedding")
    tied: Literal["all"] | None = hash_neutral(
        None, description="all: source, target and output have one embedding, over one vocabulary of both sides"
    )

    @model_validator(mode="after")
    def _tied_once(self) -> ModelConfig:
        if self.tied and self.tied_output:
            raise ValueError("tied_output: found true beside tied = 'all', which includes it; expected one of the two")
        return self


class LMConfig(Sizes):
    """Sizes of a single-stack Transformer; defaults are GPT-2 medium's, which give Table 6's baseline count."""

    d_model: int = Field(1024, ge=1, le=WIDEST, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(16, ge=1, le=WIDEST, description="attention heads h")
    d_ff: int = Field(4096, ge=1, le=8 * WIDEST, description="inner width of the feed-forward layers")
    attention_bias: bool = Field(True, description="bias of the query, key and value projections")
    activation: Literal["relu", "gelu"] = Field("gelu", description="of the feed-forward layers")
    layers: int = Field(24, ge=1, le=MOST_LAYERS)


class DecodeConfig(Settings):
    """How translations and summaries are searched."""

    beam: int = Field(5, ge=1, le=256, description="hypotheses kept; 1 is greedy search")
    length_penalty: float = Field(1.0, ge=0, description="α: scores are divided by length to the power α")
    max_length_factor: float = Field(1.5, ge=0, description="longest output, as a multiple of the source…")
    max_length_offset: int = Field(10, ge=1, description="…plus so many tokens")
    batch_sentences: int = Field(64, ge=1, description="sentences searched together")
