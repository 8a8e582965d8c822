"""How tables and figures present what a task measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Panel:
    """A measure by epoch: one panel of the figure of learning curves."""

    key: str  # of the curve's points
    label: str
    unit: str | None = "%"  # None: that of the losses
    perplexity: bool = False  # e to the power of the measure, on a logarithmic axis
    unigram: bool = False  # a dashed line at the level of the simplest model

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return self.unit == "%"


TRAINING_LOSS = Panel("training_loss", "training loss", unit=None)
LOSS_LABELS = {
    "training_nll": "Training loss without smoothing",
    "validation_nll": "Validation loss",
    "training_nll_evaluated": "Training loss in evaluation mode",
    "validation_nll_calibrated": "Validation loss after a temperature is fitted",
    "unigram_nll": "Loss of frequencies alone",
}
VALIDATION_LOSS = Panel("validation_nll", "validation loss", unit=None, unigram=True)


@dataclass(frozen=True)
class Cut:
    """Something that is cut at a length, and what captions call it."""

    share: str  # key of each split's statistics: the share of texts that were cut
    what: str  # "articles"
    limit: str  # key of the data's configuration: how many words are left


@dataclass(frozen=True)
class MainScore:
    """The score that variants are compared by, and its column where a paper has none."""

    name: str  # among `Task.scores`
    label: str
    better: Literal["higher", "lower"] = "higher"
    digits: int = 2  # decimals
