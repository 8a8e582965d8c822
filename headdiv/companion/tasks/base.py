"""What a task is: its settings, data, model, loss and scores, and what tables and figures call them.

To add a task, write one file with a class after `Task` here, and enter it in ``__init__.py``. The class

1. says what can be configured (`Data`, `Model`, `Decode`), and names units, scores and texts;
2. loads a corpus, builds a model, makes batches and takes a loss. A corpus has
   ``statistics`` (JSON): ``vocabulary`` by side, ``refused`` records by reason, and for "valid", "test" and, unless it
   is a stream, "train" the number of ``examples``; of "valid" also ``unigram_nll``, what the simplest model would
   reach, which `headdiv check` holds every run against;
3. gives texts of its corpus as one would type them in, and handles one: `example_texts`, `apply`, `example_batch`.

`tests/tasks/test_tasks_contract.py` holds every task to this. An experiment needs a table too, in one of the files in
``headdiv/companion/experiments/papers``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.companion import tasks
from headdiv.companion.data import cache
from headdiv.companion.data.data_config import DataConfig
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import distributed
from headdiv.core.settings import Place, Settings, Source
from headdiv.methods.base import Method
from headdiv.nn.records import record_heads
from headdiv.nn.sizes import Sizes
from headdiv.training.batch_streams import BatchStream
from headdiv.training.learner import Losses

Score = dict[str, Any]  # value, unit, signature

BEST = "best"  # name of the best epoch's parameters: in scores and outputs, and of their folder in the run's
AVERAGE = "average"  # likewise, of the mean of the last epochs' parameters
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
    "unigram_nll": "Loss of frequencies alone",
    # The last two are scores of stored runs; no new run has them.
    "training_nll_evaluated": "Training loss in evaluation mode",
    "validation_nll_calibrated": "Validation loss after a temperature is fitted",
}


@dataclass(frozen=True)
class Cut:
    """Texts that are cut at a length, for captions."""

    share: str  # key of each split's statistics: the share of texts that were cut
    what: str  # the texts: "articles"
    limit: str  # key of the data's configuration: how many words are kept


@dataclass(frozen=True)
class MainScore:
    """The score that variants are compared by, and its column where a paper has none."""

    name: str  # among `Task.scores`
    label: str
    better: Literal["higher", "lower"] = "higher"
    digits: int = 2  # decimals


class Example(NamedTuple):
    """A text of a corpus, as one would type it in."""

    text: str
    question: str | None  # on the text, in question answering
    reference: str | None  # the right output


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration, its results and its model."""

    config: RunConfig
    folder: Path
    corpus: Any
    model: nn.Module
    record: dict[str, Any]  # training.json: curve, cost, provenance

    @property
    def point(self) -> dict[str, Any]:
        """The curve's point of the epoch whose parameters the model has: the last unless the record names another."""
        return self.record["curve"][self.record.get("evaluated_epoch", 0) - 1]

    @property
    def task(self) -> Task:
        """The task that it was trained on."""
        return tasks.TASKS[self.config.kind]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def identity(self) -> dict[str, Any]:
        """What identifies the run: the first keys of every file that is stored about it."""
        config = self.config
        names = {name: getattr(config, name) for name in ("paper", "task", "kind", "variant", "seed")}
        return names | {"hash": self.folder.name, "config": config.model_dump(mode="json")}


class Task(ABC):
    """One kind of task. It has no state: everything is an argument. A ``corpus`` is what `load` returns."""

    name: ClassVar[str]  # what papers and `RunConfig.kind` call it
    Data: ClassVar[type[DataConfig]]  # the keys of ``data`` in a profile; likewise Model and Decode
    Model: ClassVar[type[Sizes]]
    Decode: ClassVar[type[Settings]]
    roles: ClassVar[tuple[str, ...]] = ("examples",)  # of files: each split must have one of these
    ignores: ClassVar[tuple[str, ...]] = ("epoch_scores",)  # keys of ``train`` that have no effect

    unit: ClassVar[str]  # of losses: "nats/token"
    accuracy: ClassVar[str]  # what the accuracy measures
    unigram: ClassVar[str]  # how the simplest model predicts, whose loss is compared
    main_score: ClassVar[MainScore]  # what variants are compared by
    test_score_name: ClassVar[str]  # the score on the test set by which masked heads are judged
    also_compared: ClassVar[tuple[str, ...]] = ()  # further scores of the best epoch and on further test sets
    score_labels: ClassVar[Mapping[str, str]] = {}  # of other scores, where a label is not the name with spaces
    curves: ClassVar[tuple[Panel, ...]]  # panels of the figure of learning curves
    curves_caption: ClassVar[str]

    example_noun: ClassVar[str]  # what the data's examples are called, in the plural
    batch_unit: ClassVar[str] = "tokens"  # what ``train.tokens_per_batch`` counts
    cuts: ClassVar[tuple[Cut, ...]] = ()
    mentioned: ClassVar[Mapping[str, str]] = {}  # counts of a split that a caption mentions where they are above 0
    sides: ClassVar[tuple[str, str]] = ("text", "text")  # what encoder and decoder read; the same twice for one stack
    output: ClassVar[str]  # what the model's output is called
    second_is_input: ClassVar[bool] = False  # whether a second typed text is a question, else it is the decoder's text
    predicts_text: ClassVar[bool] = False  # whether a typed text itself is predicted, not an output

    # ---- settings and labels

    def check_data(self, config: Any, at: Place = ("data",), source: Source | None = None) -> None:
        """Check the data's settings, at ``at`` in ``source``, against the files that exist: ConfigError."""
        cache.check_data(config, self.roles, at, source)

    def check_model(self, model: Any, data: Any) -> None:  # noqa: B027
        """Check the model's settings against the data's: ConfigError, with keys from ``model`` on."""

    def score_label(self, name: str) -> str:
        """What tables call a score: "Validation loss"."""
        labels = {**LOSS_LABELS, self.main_score.name: self.main_score.label, **self.score_labels}
        if name in labels:
            return labels[name]
        for base in (self.test_score_name, *self.also_compared, "validation_nll"):
            if name.startswith(f"{base}_"):
                suffix = name.removeprefix(f"{base}_")
                return f"{self.score_label(base)} {OF_PARAMETERS.get(suffix, f'on {suffix}')}"
        return name.replace("_", " ").capitalize()

    def training_size(self, data: Mapping[str, Any], statistics: Mapping[str, Any], whole: int | None = None) -> str:
        """How much a run trains on, by the data's settings and the corpus's statistics: "29,000 training pairs".

        ``whole``: how many examples the training set has, where only a part is trained on.
        """
        part_of = f" of {whole:,}" if whole else ""
        return f"{statistics['train']['examples']:,}{part_of} training {self.example_noun}"

    # ---- data and model

    @abstractmethod
    def load(self, config: Any) -> Any:
        """The prepared corpus, fetched and prepared where that has not been done; raises DataError."""

    def vocabulary(self, config: Any) -> tuple[int, ...]:
        """Sizes of the vocabularies, which decide the model's sizes together with the configuration."""
        return vocabulary_of(self.load(config))

    @abstractmethod
    def build(self, config: RunConfig, vocabulary: tuple[int, ...], method: Method) -> nn.Module:
        """The model, not yet initialised."""

    # ---- training

    @abstractmethod
    def batch_stream(self, corpus: Any, config: RunConfig) -> BatchStream:
        """The training batches."""

    @abstractmethod
    def held_out(self, corpus: Any, split: str, config: RunConfig) -> Iterator[Any]:
        """Batches of the split "valid" or "test", each example once; with several ranks, this one's share."""

    @abstractmethod
    def loss(self, model: Callable[[Any], Tensor], weight: Tensor, batch: Any, smoothing: float = 0.0) -> Losses:
        """Loss and accuracy of the model on a batch; ``weight`` is its output weight."""

    def epoch_scores(
        self, model: nn.Module, corpus: Any, config: RunConfig, device: torch.device | str
    ) -> dict[str, float]:
        """Scores after every epoch besides the losses, by their names in the curve; the same on every rank.

        It must draw no random numbers, since the training continues after it.
        """
        return {}

    # ---- tokens

    def special_tokens(self, batch: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """By kind of attention, which rows hold a special token: masks (T,) of the queries, (T',) of the keys."""
        return {}

    @abstractmethod
    def words(self, batch: Any) -> dict[str, Tensor]:
        """By kind of attention, the index of the token that each query stands for: (T,)."""

    @abstractmethod
    def decode_token(self, corpus: Any, kind: str, index: int) -> str:
        """A token as text."""

    # ---- results

    @abstractmethod
    def scores(self, run: Run) -> dict[str, Score]:
        """The task's scores with units and signatures; outputs are stored beside the model."""

    def compared_scores(self, run: Run) -> dict[str, Score]:
        """The scores ``test_score_name`` and ``also_compared``; outputs are stored in the run's folder."""
        scores = self.scores(run)
        return {name: scores[name] for name in (self.test_score_name, *self.also_compared)}

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """The scores that follow from outputs, as in `outputs_file`, and references; none where these are no texts.

        The run's model is not used. ``tokens``: the outputs' own tokens, where the task stores them.
        """
        return {}

    def sentence_counts(self, run: Run, lines: list[str]) -> np.ndarray | None:
        """The counts from which the main score is computed, a row for each output; None where there are none."""
        return None

    def further_tests(self, run: Run) -> dict[str, Run]:
        """The run with each further test set that it is scored on (`compared_scores`), by name, with its own folder."""
        return {}

    def outputs_file(self, run: Run) -> Path | None:
        """The JSON file of outputs beside the model; None for a task without outputs.

        ``test`` has those of the test set; ``time`` how long a search word by word took.
        """
        return None

    @abstractmethod
    def lengths(self, corpus: Any) -> dict[str, np.ndarray]:
        """Lengths of the texts in words or tokens, by the texts' name and unit: "source (tokens)"."""

    # ---- texts of the corpus, and those that are typed in

    @abstractmethod
    def example_texts(self, corpus: Any, split: str, count: int) -> list[Example]:
        """The first examples of the split "valid" or "test"."""

    def examples(self, run: Run, count: int) -> pd.DataFrame:
        """The first examples of the test set with the model's outputs; a column that is empty is left out."""
        examples = self.example_texts(run.corpus, "test", count)
        outputs = [self.apply(run, text, question) for text, question, _ in examples]
        table = pd.DataFrame(examples, columns=Example._fields).assign(**{self.output: outputs})
        return table.dropna(axis="columns", how="all")

    @abstractmethod
    def apply(self, run: Run, text: str, second: str | None = None) -> str:
        """The model's output for a text that is typed in: a translation, a summary, a continuation, an answer.

        Args:
            run: a finished run.
            text: in question answering the passage.
            second: the question; other tasks ignore it.

        Raises:
            DataError: the task cannot use these texts.
        """

    @abstractmethod
    def example_batch(self, run: Run, text: str, second: str | None = None) -> Any:
        """A typed text as a batch of one example, packed like the task's own batches, on the run's device.

        Where ``second`` is the decoder's text, the default is the model's own output.

        Raises:
            DataError: texts that cannot be packed.
        """

    def unknown_words(self, run: Run, text: str) -> list[str]:
        """The words of a typed text that the model does not know; none if its tokens go down to single bytes."""
        return []

    def expect_output(self, run: Run, batch: Any) -> Any:
        """An example batch in which the model's own output (or the text, see ``predicts_text``) is to be predicted.

        Raises:
            DataError: there is nothing to predict.
        """
        return batch


def vocabulary_of(corpus: Any) -> tuple[int, ...]:
    """Sizes of a corpus's vocabularies."""
    return tuple(corpus.statistics["vocabulary"].values())


def score(value: float, unit: str, signature: str) -> Score:
    """A number with its unit and with how it was measured."""
    return {"value": value, "unit": unit, "signature": signature}


@torch.no_grad()
def observed_heads(run: Run, weights: bool = True) -> Iterator[Observed]:
    """The heads' records, batch by batch of the validation split, without dropout; of several ranks, this one's share.

    Attention weights are left out unless ``weights``.
    """
    task, model = run.task, run.model.eval()
    for batch in task.held_out(run.corpus, "valid", run.config):
        batch = batch.to(run.device)
        with record_heads(model, weights) as records:
            model(batch)
        yield Observed(records, task.special_tokens(batch), task.words(batch))


@torch.no_grad()
def held_out_loss(run: Run, split: str) -> dict[str, float]:
    """Loss in nats per prediction and accuracy in percent on a split, without dropout."""
    task, model = run.task, run.model.eval()
    nll = correct = count = 0.0
    for batch in task.held_out(run.corpus, split, run.config):
        losses = task.loss(model, model.output_weight, batch.to(run.device))
        nll, correct, count = nll + losses.nll.item(), correct + losses.correct.item(), count + losses.count
    nll, correct, count = distributed.total_numbers(nll, correct, count)
    return {"nll": nll / count, "accuracy": 100 * correct / count}
