"""Sizes of models and of their attention modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import Field, model_validator

from headdiv.core.settings import Settings

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

    d_model: int = Field(256, ge=1, description="width D of the embeddings and of every sub-layer")
    heads: int = Field(8, ge=1, description="attention heads h")
    d_ff: int = Field(512, ge=1, description="inner width of the feed-forward layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="on embeddings and on every sub-layer's output")
    attention_bias: bool = Field(False, description="bias of the query, key and value projections")
    activation: Literal["relu", "gelu"] = Field("relu", description="of the feed-forward layers")

    @property
    def attention_layers(self) -> dict[Kind, int]:
        """How many layers have each kind of attention that the model may have; empty where that is not known."""
        return {}

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Sizes:
        if self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide d_model = {self.d_model}")
        return self
