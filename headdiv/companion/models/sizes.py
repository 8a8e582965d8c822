"""Sizes of the papers' Transformers, and settings of the search for outputs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headdiv.core.settings import Settings, hash_neutral
from headdiv.nn.sizes import Kind, Sizes


class ModelConfig(Sizes):
    """Sizes of the encoder-decoder Transformer; defaults are those of DEACON's Table 3."""

    encoder_layers: int = Field(2, ge=1)
    decoder_layers: int = Field(2, ge=1)
    tied_output: bool = Field(False, description="the output embedding is the target embedding")
    tied: Literal["all"] | None = hash_neutral(
        None, description="all: source, target and output have one embedding, over one vocabulary of both sides"
    )

    @property
    def attention_layers(self) -> dict[Kind, int]:
        """See `Sizes`."""
        return {"encoder": self.encoder_layers, "decoder": self.decoder_layers, "cross": self.decoder_layers}

    @model_validator(mode="after")
    def _tied_once(self) -> ModelConfig:
        if self.tied and self.tied_output:
            raise ValueError("tied_output: found true beside tied = 'all', which includes it; expected one of the two")
        return self


class LMConfig(Sizes):
    """Sizes of a single-stack Transformer; defaults are GPT-2 medium's, which give Table 6's baseline count."""

    d_model: int = Field(1024, ge=1, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(16, ge=1, description="attention heads h")
    d_ff: int = Field(4096, ge=1, description="inner width of the feed-forward layers")
    attention_bias: bool = Field(True, description="bias of the query, key and value projections")
    activation: Literal["relu", "gelu"] = Field("gelu", description="of the feed-forward layers")
    layers: int = Field(24, ge=1)

    @property
    def attention_layers(self) -> dict[Kind, int]:
        """See `Sizes`; the task decides whether the stack is an encoder or a decoder."""
        return {"encoder": self.layers, "decoder": self.layers}


class DecodeConfig(Settings):
    """How translations and summaries are searched."""

    beam: int = Field(5, ge=1, le=256, description="hypotheses kept; 1 is greedy search")
    length_penalty: float = Field(1.0, ge=0, description="α: scores are divided by length to the power α")
    max_length_factor: float = Field(1.5, ge=0, description="longest output, as a multiple of the source…")
    max_length_offset: int = Field(10, ge=1, description="…plus so many tokens")
    batch_sentences: int = Field(64, ge=1, description="sentences searched together")
