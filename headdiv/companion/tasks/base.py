"""What a task is: its data, model, loss and scores, and how results, figures and the explorer present it.

To add a task, write one class after `Task` here and enter an instance in ``__init__.py``. The class says

1. what can be configured: ``Data`` (after `headdiv.companion.data.data_config.DataConfig`), ``Model``, ``Decode``;
2. how a corpus is loaded, a model built, batches made, a loss taken: the abstract methods. A corpus has
   ``statistics`` (JSON): ``vocabulary`` by side, ``refused`` records by reason, and for "train", "valid" and "test"
   the number of ``examples``; of "valid" also ``unigram_nll``, what the simplest model would reach, which
   `headdiv check` holds every run against;
3. what it is called in tables and figures: the attributes;
4. what can be done with a text that is typed in: `apply`, `example_batch`, `example_text`. Without these the task
   trains and is scored all the same, and attention maps and the explorer say that they are lacking.

An experiment needs a table too: ``papers/<paper>.yaml`` in the project's folder, with the keys of the files in
``headdiv/companion/experiments/papers`` and, under ``plugins``, the task's file. Any profile can then name
``<paper>/<task>``.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.companion.data.data_config import DataConfig
from headdiv.companion.tasks.presentation import LOSS_LABELS, TRAINING_LOSS, VALIDATION_LOSS, Cut, MainScore, Panel
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import distributed
from headdiv.core.errors import DataError
from headdiv.core.files import short_hash
from headdiv.core.settings import Settings, Source
from headdiv.nn.attention import record_heads
from headdiv.nn.losses import Losses
from headdiv.nn.sizes import Sizes
from headdiv.nn.transformer import ModuleFactory
from headdiv.training.batch_streams import BatchStream

CorpusT = TypeVar("CorpusT")
Score = dict[str, Any]  # value, unit, signature


def outputs_path(run: Run, name: str) -> Path:
    """A file beside the model, named by what decides the search."""
    return run.folder / f"{name}-{short_hash(run.config.decode.model_dump(mode='json'))}.json"


@dataclass(frozen=True)
class Run:
    """A finished run: what was asked for, what came of it, and the model to work with."""

    config: RunConfig
    folder: Path
    corpus: Any
    model: nn.Module
    record: dict[str, Any]  # training.json: curve, cost, provenance

    @property
    def point(self) -> dict[str, Any]:
        """The curve's point of the epoch whose parameters the model has: the last, unless the record names another."""
        return self.record["curve"][self.record.get("evaluated_epoch", 0) - 1]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def identity(self) -> dict[str, Any]:
        """Which run it is: the first keys of whatever is stored of it."""
        config = self.config
        names = {name: getattr(config, name) for name in ("paper", "task", "kind", "variant", "seed")}
        return names | {"hash": self.folder.name, "config": config.model_dump(mode="json")}


class Task(ABC, Generic[CorpusT]):
    """One kind of task. Without state: everything is handed in.

    Attributes:
        name: what papers and `RunConfig.kind` call it.
        Data: the keys of ``data`` in a profile; likewise Model and Decode.
        ignores: keys of ``train`` that have no effect.
        unit: of losses: "nats/token".
        accuracy: what the accuracy is the share of.
        unigram: what the loss of the simplest model is.
        main_score: what variants are compared by.
        also_compared: scores that the best epoch's parameters and further test sets get, beside `test_score_name`.
        score_labels: what tables call other scores, where it is not the name with spaces.
        curves: panels of the figure of learning curves.
        curves_caption: what that figure shows.
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

    name: ClassVar[str]
    Data: ClassVar[type[DataConfig]]
    Model: ClassVar[type[Sizes]]
    Decode: ClassVar[type[Settings]]
    ignores: ClassVar[tuple[str, ...]] = ("epoch_scores",)
    unit: ClassVar[str]
    accuracy: ClassVar[str]
    unigram: ClassVar[str]
    main_score: ClassVar[MainScore]
    also_compared: ClassVar[tuple[str, ...]] = ()
    score_labels: ClassVar[Mapping[str, str]] = {}
    curves: ClassVar[tuple[Panel, ...]] = (TRAINING_LOSS, VALIDATION_LOSS)
    curves_caption: ClassVar[str] = (
        "Training loss (mean over an epoch, dropout on) and validation loss after each epoch; dashed: what "
        "frequencies alone give."
    )
    example_noun: ClassVar[str] = "examples"
    batch_unit: ClassVar[str] = "tokens"
    cuts: ClassVar[tuple[Cut, ...]] = ()
    mentioned: ClassVar[Mapping[str, str]] = {}
    sides: ClassVar[tuple[str, str]] = ("text", "text")
    texts: ClassVar[tuple[str, ...]] = ("text",)
    second_is_input: ClassVar[bool] = False
    output: ClassVar[str] = "output"
    predicts_text: ClassVar[bool] = False

    # ---- data and model

    @abstractmethod
    def check_data(self, config: Any, at: tuple[str, ...] = ("data",), source: Source | None = None) -> None:
        """Check the data's part of a configuration against the files there are; raises ConfigError."""

    def check_model(
        self, model: Any, data: Any, at: tuple[str, ...] = ("model",), source: Source | None = None
    ) -> None:
        """Check the model's part of a configuration against the data's; raises ConfigError."""

    @abstractmethod
    def load(self, config: Any) -> CorpusT:
        """The prepared corpus, fetched and prepared where that has not been done; raises DataError."""

    def vocabulary(self, config: Any) -> tuple[int, ...]:
        """Sizes of the vocabularies, which with the configuration decide the model's."""
        return vocabulary_of(self.load(config))

    @abstractmethod
    def build(self, config: RunConfig, vocabulary: tuple[int, ...], parts: ModuleFactory) -> nn.Module:
        """The model, not yet initialised."""

    # ---- training

    @abstractmethod
    def batch_stream(self, corpus: CorpusT, config: RunConfig) -> BatchStream:
        """The training batches."""

    def sample_batches(self, config: RunConfig) -> tuple[dict[float, Any], int]:
        """Batches for their sizes alone, by the share of a training batch that they are, and batches of an epoch.

        The corpus is prepared where that is needed.
        """
        stream = self.batch_stream(self.load(config.data), config)
        return {1.0: next(stream.epoch(0))}, stream.batches(0)

    @abstractmethod
    def held_out(self, corpus: CorpusT, split: str, config: RunConfig) -> Iterator[Any]:
        """Batches of the split "valid" or "test", each example once; with several ranks, this one's share."""

    def training_sample(self, corpus: CorpusT, config: RunConfig) -> tuple[Iterator[Any], str] | None:
        """Batches of a fixed part of the training text, as large as the validation split, and what it is in words.

        None for a task without: the training loss in evaluation mode is then not measured.
        """
        return None

    @abstractmethod
    def loss(self, model: Callable[[Any], Tensor], weight: Tensor, batch: Any, smoothing: float = 0.0) -> Losses:
        """Loss and accuracy of the model on a batch; ``weight`` is its output weight, divided by the temperature."""

    def epoch_scores(
        self, model: nn.Module, corpus: CorpusT, config: RunConfig, device: torch.device | str
    ) -> dict[str, float]:
        """Scores after every epoch beside the losses, by their names in the curve; the same on every rank.

        It must draw no random numbers: the training goes on after it.
        """
        return {}

    # ---- tokens

    def special_tokens(self, batch: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """By kind of attention, which rows hold a special token: (T,) of the queries, (T',) of the keys."""
        return {}

    def words(self, batch: Any) -> dict[str, Tensor]:
        """By kind of attention, the index of the token that each query stands for: (T,)."""
        return {}

    def decode_token(self, corpus: CorpusT, kind: str, index: int) -> str:
        """A token as text; its index where a task has no better way."""
        return str(index)

    # ---- results

    @abstractmethod
    def scores(self, run: Run) -> dict[str, Score]:
        """The task's scores with units and signatures; outputs are kept beside the model."""

    def score_label(self, name: str) -> str:
        """What tables call a score: "Validation loss"."""
        main = {self.main_score.name: self.main_score.label}
        known = {**LOSS_LABELS, **main, **self.score_labels}
        for base in (self.test_score_name, *self.also_compared, "validation_nll"):
            if name not in known and name.startswith(f"{base}_"):
                of = name.removeprefix(f"{base}_")
                return f"{self.score_label(base)} {'of the best epoch' if of == 'best' else f'on {of}'}"
        return known.get(name) or name.replace("_", " ").capitalize()

    @property
    def test_score_name(self) -> str:
        """Name of `test_score`."""
        return self.main_score.name

    def test_score(self, run: Run) -> Score:
        """The score on the test set that masked heads are judged by: `main_score`.

        The model is searched anew; outputs that are kept beside it are neither read nor written.
        """
        with tempfile.TemporaryDirectory() as folder:
            return self.scores(replace(run, folder=Path(folder)))[self.test_score_name]

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """The scores that outputs, as `outputs_file` has them, and references decide; none where these are no texts.

        The run's model is not asked. ``tokens``: the outputs' own tokens, where the task keeps them.
        """
        return {}

    def sentence_counts(self, run: Run, lines: list[str]) -> np.ndarray | None:
        """What the main score needs of each output, see ``counts.py``; None where nothing is kept of it."""
        return None

    def compared_scores(self, run: Run) -> dict[str, Score]:
        """`test_score` and those of `also_compared`, by name; outputs are kept in the run's folder."""
        return {self.test_score_name: self.test_score(run)}

    def further_tests(self, run: Run) -> dict[str, Run]:
        """The run with other test sets that it is scored on (`compared_scores`), by name; each with its own folder."""
        return {}

    def search_time(self, run: Run) -> dict[str, Any] | None:
        """How long the search of the test set's outputs took; None for a task without a search word by word."""
        return None

    def outputs_file(self, run: Run) -> Path | None:
        """The test set's outputs, JSON beside the model; None for a task without."""
        return None

    def data_examples(self, corpus: CorpusT, count: int) -> pd.DataFrame:
        """A few examples of the validation split as text, a row each; none where a task does not show its data."""
        return pd.DataFrame()

    def lengths(self, corpus: CorpusT) -> dict[str, np.ndarray]:
        """Lengths of the texts in words or tokens, by what they are lengths of."""
        return {}

    @abstractmethod
    def examples(self, run: Run, count: int) -> pd.DataFrame:
        """A few inputs and outputs of the test set."""

    def training_size(self, data: Mapping[str, Any], statistics: Mapping[str, Any]) -> str:
        """How much is learnt from: "29,000 training pairs".

        Args:
            data: configuration of the data.
            statistics: of the corpus.
        """
        return f"{statistics['train']['examples']:,} training {self.example_noun}"

    # ---- texts that are typed in

    def apply(self, run: Run, text: str, second: str | None = None) -> str:
        """The model's output for a text that is typed in.

        Args:
            run: a finished run.
            text: the first of `texts`.
            second: the second of `texts`, where that is read as well.

        Raises:
            DataError: the task has no use for typed texts, or for these.
        """
        raise DataError(f"{self.name}: this task has no output for a text that is typed in")

    def response(self, run: Run, text: str, second: str | None = None) -> str:
        """The output as the explorer shows it: without the text itself."""
        return self.apply(run, text, second)

    def example_batch(self, run: Run, text: str, second: str | None = None) -> Any:
        """A typed text as a batch of one example, laid out as the task lays out its own, on the run's device.

        Args:
            run: a finished run.
            text: the first of `texts`.
            second: the second; an output (`second_is_input` is false) is the model's own where left out.

        Raises:
            DataError: texts that cannot be laid out.
        """
        raise DataError(f"{self.name}: this task cannot read a text that is typed in")

    def example_text(self, run: Run) -> tuple[str, str | None]:
        """The first example of the test set as one would type it in: the text, and the second one if it is read."""
        raise DataError(f"{self.name}: this task has no example text")

    def expect_output(self, run: Run, batch: Any) -> Any:
        """An example batch in which the model's own output (or the text, see `predicts_text`) is to be predicted.

        Raises:
            DataError: there is nothing to predict.
        """
        return batch


def vocabulary_of(corpus: Any) -> tuple[int, ...]:
    """Sizes of a corpus's vocabularies."""
    return tuple(corpus.statistics["vocabulary"].values())


def score(value: float, unit: str, signature: str) -> Score:
    """One number with what it takes to read it."""
    return {"value": value, "unit": unit, "signature": signature}


@torch.no_grad()
def observed_heads(
    task: Task[Any],
    model: nn.Module,
    corpus: Any,
    split: str,
    config: RunConfig,
    device: torch.device | str,
    weights: bool = True,
) -> Iterator[Observed]:
    """The heads' records, batch by batch of a split, without dropout; with several ranks, this one's share.

    Attention weights are left out unless ``weights``.
    """
    model.eval()
    for batch in task.held_out(corpus, split, config):
        batch = batch.to(device)
        with record_heads(model, weights) as records:
            model(batch)
        yield Observed(records, task.special_tokens(batch), task.words(batch))


def held_out_loss(
    task: Task[Any], model: nn.Module, corpus: Any, split: str, config: RunConfig, device: torch.device | str
) -> dict[str, float]:
    """Loss in nats for each prediction and accuracy in percent on a split, nothing dropped out."""
    return evaluation_loss(task, model, task.held_out(corpus, split, config), device)


@torch.no_grad()
def evaluation_loss(
    task: Task[Any],
    model: nn.Module,
    batches: Iterable[Any],
    device: torch.device | str,
    temperature: float = 1.0,
) -> dict[str, float]:
    """The same for any batches; logits are divided by ``temperature``."""
    model.eval()
    nll = correct = count = 0.0
    weight = model.output_weight if temperature == 1 else model.output_weight / temperature
    for batch in batches:
        losses = task.loss(model, weight, batch.to(device))
        nll, correct, count = nll + losses.nll.item(), correct + losses.correct.item(), count + losses.count
    nll, correct, count = distributed.total_numbers(nll, correct, count)
    return {"nll": nll / count, "accuracy": 100 * correct / count}
