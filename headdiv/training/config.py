"""Optimiser, schedule and batches of a training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headdiv.core.settings import Settings

Decay = Annotated[float, Field(ge=0, lt=1)]


class TrainConfig(Settings):
    """Optimiser, schedule and batches."""

    epochs: int = Field(30, ge=1)
    tokens_per_batch: int = Field(1800, ge=1, description="most tokens in a batch, as the task counts them")
    batching: Literal["random", "bucketed"] = Field("random", description="bucketed: similar lengths together")
    learning_rate: float = Field(5e-4, gt=0, description="Adam's step at its peak")
    schedule: Literal["constant", "inverse_sqrt", "linear"] = Field(
        "inverse_sqrt", description="after the warm-up: stay, fall with 1/√step, or fall to 0 in a line"
    )
    warmup_steps: int = Field(400, ge=0, description="linear rise from 0")
    betas: tuple[Decay, Decay] = Field((0.9, 0.98), description="Adam's decay rates")
    epsilon: float = Field(1e-9, gt=0, description="Adam's ε")
    weight_decay: float = Field(0.0, ge=0, description="decoupled (AdamW)")
    clip_norm: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16: matrix products only")
    epoch_scores: int = Field(
        0, ge=0, description="translation: after each epoch so many pairs of training and of validation are scored"
    )
    checkpoint_seconds: float = Field(120.0, gt=0, description="longest work lost when a run is killed")
