"""What a method may change in a model and in its training; every hook is neutral by default.

A method that builds attention modules of a class of its own derives that class from
`headdiv.nn.attention.AttentionModule`, which says what a module must offer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headdiv.core.settings import Settings
from headdiv.nn.attention import AttentionSpec, BlockSpec, HeadRecord, MultiHeadAttention
from headdiv.nn.config import Sizes

RequiredRecords = Literal["nothing", "heads", "weights"]
DecodeToken = Callable[[str, int], str]  # kind of attention and index of a word -> what to print


@dataclass(frozen=True)
class Observed:
    """What the heads did with one batch: their records, which rows are marks instead of words, and the words."""

    records: list[HeadRecord]
    special_tokens: dict[
        str, tuple[Tensor, Tensor]
    ]  # by kind of attention: (T,) queries and (T',) keys, True where a mark
    words: dict[str, Tensor] = field(default_factory=dict)  # by kind: (T,) index of the word each query stands for


@dataclass(frozen=True)
class EpochEnd:
    """What a method is shown between two epochs."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    epoch: int  # that is over, from 1
    epochs: int
    seed: int
    history: list[dict[str, Any]]  # what `after_epoch` returned after the earlier epochs
    observe: Callable[[], Iterator[Observed]]  # the heads on this rank's share of the validation split


class Method:
    """The plain Transformer. A method overrides what it needs; one object lives as long as its model."""

    class Options(Settings):
        """The method's own keys in a configuration, beside its name."""

    def __init__(self, options: Settings) -> None:
        self.options = options

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """What is wrong with these options for a model of these sizes (key and sentence), or None."""
        return None

    def attention(self, spec: AttentionSpec) -> nn.Module:
        """The attention module to put at the place that ``spec`` describes."""
        return MultiHeadAttention(spec)

    def block_output(self, spec: BlockSpec) -> nn.Module:
        """What the output of the layer that ``spec`` describes goes through: (rows, D) -> (rows, D)."""
        return nn.Identity()

    def required_records(self) -> RequiredRecords:
        """What `aux_loss` is to be shown of the heads; "weights": values and outputs too."""
        return "nothing"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """What is added to the loss (nats for each prediction); None: nothing.

        With several ranks each adds its own, and the mean over the ranks counts: a sum over examples is multiplied by
        the number of ranks.

        Args:
            model: the model in training.
            records: of this batch, as `required_records` asks for.
            progress: share of the training that is done, from 0 to 1.
            count: predictions of the batch, on all ranks.
        """
        return None

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Parameters that the method trains itself; clipping and the optimiser leave them alone."""
        return []

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Called between two epochs, after validation; what it returns (JSON) is kept with the epoch's results."""
        return {}

    def artifacts(self, model: nn.Module) -> dict[str, Any]:
        """What of the trained model's parameters the results keep (JSON), by name."""
        return {}

    def observed_artifacts(
        self, observed: Iterable[Observed], vocabulary: int, decode_token: DecodeToken
    ) -> dict[str, Any]:
        """What the results keep (JSON) of what the trained model's heads do, by name.

        Args:
            observed: the validation split, without attention weights; the model runs only as far as it is read.
            vocabulary: above every word index of any kind.
            decode_token: how a word is printed.
        """
        return {}

    def frozen_parameters(self, model: nn.Module, progress: float) -> list[nn.Parameter]:
        """Parameters that this step is to leave as they are: without a gradient, clipping and optimiser pass them."""
        return []

    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Called with all gradients in place, before the optimiser's step.

        Args:
            model: the model in training.
            progress: share of the training that is done, from 0 to 1.
        """
