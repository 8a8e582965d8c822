"""How a task is described without running it: what can be configured, and what tables and captions call things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headdiv.companion.data.data_config import DataConfig
from headdiv.core.settings import Place, Settings, Source
from headdiv.nn.sizes import Sizes

BEST = "best"  # what scores and outputs of the best epoch's parameters are called, and their folder in a run's
AVERAGE = "average"  # and those of the mean of the last epochs' parameters
OF_PARAMETERS = {BEST: "of the best epoch", AVERAGE: "of the mean of the last epochs"}


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
VALIDATION_LOSS = Panel("validation_nll", "validation loss", unit=None, unigram=True)
LOSS_LABELS = {
    "training_nll": "Training loss without smoothing",
    "validation_nll": "Validation loss",
    "training_nll_evaluated": "Training loss in evaluation mode",
    "validation_nll_calibrated": "Validation loss after a temperature is fitted",
    "unigram_nll": "Loss of frequencies alone",
}


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


def no_model_check(model: Any, data: Any, at: Place = ("model",), source: Source | None = None) -> None:
    """A model of any sizes fits any data."""


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task's configuration and its words.

    Attributes:
        name: what papers and `RunConfig.kind` call it.
        Data: the keys of ``data`` in a profile; likewise Model and Decode.
        check_data: checks the data's part of a configuration, which ``at`` leads to in ``source``, against the files
            there are; raises ConfigError.
        check_model: checks the model's part against the data's; raises ConfigError.
        ignores: keys of ``train`` that have no effect.
        unit: of losses: "nats/token".
        accuracy: what the accuracy is the share of.
        unigram: what the loss of the simplest model is.
        main_score: what variants are compared by.
        test_score_name: the score on the test set that masked heads are judged by.
        also_compared: scores that the best epoch's parameters and further test sets get, beside `test_score_name`.
        score_labels: what tables call other scores, where it is not the name with spaces.
        curves: panels of the figure of learning curves; ``curves_caption``: what that figure shows.
        example_noun: what the data's examples are called, in the plural.
        batch_unit: what ``train.tokens_per_batch`` counts.
        cuts: texts that are cut at a length.
        mentioned: counts among a split's statistics that a caption mentions where they are above 0.
        sides: what the encoder reads, and what the decoder reads; the same twice for a model of one stack.
        texts: what is typed in: the text, and the second one if there is any.
        second_is_input: the second text is read as well (a question); otherwise it is the output that is looked at,
            the model's own where it is left out.
        output: what the model's output is called.
        predicts_text: what is predicted of a typed text is the text itself and not the output.
    """

    name: str
    Data: type[DataConfig]
    Model: type[Sizes]
    Decode: type[Settings]
    check_data: Callable[..., None]
    check_model: Callable[..., None] = no_model_check
    ignores: tuple[str, ...] = ("epoch_scores",)
    unit: str
    accuracy: str
    unigram: str
    main_score: MainScore
    test_score_name: str
    also_compared: tuple[str, ...] = ()
    score_labels: Mapping[str, str] = field(default_factory=dict)
    curves: tuple[Panel, ...]
    curves_caption: str
    example_noun: str
    batch_unit: str = "tokens"
    cuts: tuple[Cut, ...] = ()
    mentioned: Mapping[str, str] = field(default_factory=dict)
    sides: tuple[str, str] = ("text", "text")
    texts: tuple[str, ...] = ("text",)
    second_is_input: bool = False
    output: str
    predicts_text: bool = False

    def score_label(self, name: str) -> str:
        """What tables call a score: "Validation loss"."""
        known = {**LOSS_LABELS, self.main_score.name: self.main_score.label, **self.score_labels}
        for base in (self.test_score_name, *self.also_compared, "validation_nll"):
            if name not in known and name.startswith(f"{base}_"):
                of = name.removeprefix(f"{base}_")
                return f"{self.score_label(base)} {OF_PARAMETERS.get(of, f'on {of}')}"
        return known.get(name) or name.replace("_", " ").capitalize()

    def training_size(self, data: Mapping[str, Any], statistics: Mapping[str, Any], whole: int | None = None) -> str:
        """How much is learnt from: "29,000 training pairs", or "100,000 tokens of text an epoch".

        Args:
            data: configuration of the data.
            statistics: of the corpus.
            whole: how many examples the training set has of which these are a part.
        """
        if "epoch_tokens" in data:
            return f"{data['epoch_tokens']:,} tokens of text an epoch"
        of = f" of {whole:,}" if whole else ""
        return f"{statistics['train']['examples']:,}{of} training {self.example_noun}"
