"""The ``train`` section of a profile: the trainer's settings, and the batches of a task."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Literal

from pydantic import Field

from headdiv.core.settings import hash_neutral
from headdiv.training.config import TrainerConfig


def examples_of(share: float, count: int) -> int:
    """``share`` of ``count`` examples, rounded up; exact for the decimal that was written, so that 7 % of 100 is 7."""
    return ceil(Fraction(str(share)) * count)


class TrainConfig(TrainerConfig):
    """The ``train`` section of a profile: the trainer's settings, the batches and the task's loss."""

    of_no_effect = (*TrainerConfig.of_no_effect, "activation_checkpointing")

    activation_checkpointing: bool = hash_neutral(
        False, description="keep no activations of layers, and compute them again in the backward pass"
    )
    tokens_per_batch: int = Field(1800, ge=1, le=10**9, description="most tokens in a batch, as the task counts them")
    share: float = hash_neutral(
        1.0,
        gt=0,
        le=1,
        description="train on the first examples alone, on this share of all; the vocabulary is that of all",
    )
    batching: Literal["random"] = Field("random", description="no choice, but part of every run's hash")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    epoch_heads: bool = hash_neutral(
        False, description="measure the heads on the validation split after each epoch: how alike they are becoming"
    )
    epoch_scores: int = Field(
        0, ge=0, description="translation: pairs of training and of validation that are scored after each epoch"
    )
