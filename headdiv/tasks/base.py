"""What the trainer and the evaluation ask of a task: its data, its model, its loss, its scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd
import torch
from torch import Tensor, nn

from headdiv.core import distributed
from headdiv.core.files import short_hash
from headdiv.core.settings import Settings, Source
from headdiv.data.config import DataConfig
from headdiv.methods.base import Observed
from headdiv.nn.attention import record_heads
from headdiv.nn.config import Sizes
from headdiv.nn.losses import Losses
from headdiv.nn.transformer import ModuleFactory
from headdiv.tasks.config import RunConfig
from headdiv.training.feeds import Feed

CorpusT = TypeVar("Corpus")
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
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def identity(self) -> dict[str, Any]:
        """Which run it is: the first keys of whatever is stored of it."""
        config = self.config
        names = {name: getattr(config, name) for name in ("paper", "task", "kind", "variant", "seed")}
        return names | {"hash": self.folder.name, "config": config.model_dump(mode="json")}


class Task(ABC, Generic[CorpusT]):
    """One kind of task. Without state: everything is handed in."""

    Data: type[DataConfig]
    Model: type[Sizes]
    Decode: type[Settings]
    unit: str  # of losses: nats for each …
    accuracy: str  # what the accuracy is the share of
    unigram: str  # what the loss of the simplest model is
    curves_caption = (  # under the figure of its learning curves
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy after each epoch."
    )

    @abstractmethod
    def check_data(self, config: Any, at: tuple[str, ...] = ("data",), source: Source | None = None) -> None:
        """Hold the data's part of a configuration against what there is; raises ConfigError."""

    @abstractmethod
    def load(self, config: Any) -> CorpusT:
        """The prepared corpus, fetched and prepared where that has not been done; raises DataError."""

    def vocabulary(self, config: Any) -> tuple[int, ...]:
        """Sizes of the vocabularies, which with the configuration decide the model's."""
        return vocabulary_of(self.load(config))

    @abstractmethod
    def build(self, config: RunConfig, vocabulary: tuple[int, ...], parts: ModuleFactory) -> nn.Module:
        """The model, not yet initialised."""

    @abstractmethod
    def feed(self, corpus: CorpusT, config: RunConfig) -> Feed:
        """The training batches."""

    @abstractmethod
    def held_out(self, corpus: CorpusT, split: str, config: RunConfig) -> Iterator[Any]:
        """Batches of the split "valid" or "test", each example once; with several ranks, this one's share."""

    @abstractmethod
    def loss(self, model: Callable[[Any], Tensor], weight: Tensor, batch: Any, smoothing: float = 0.0) -> Losses:
        """What the model makes of a batch; ``weight`` is its output weight."""

    def special_tokens(self, batch: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """By kind of attention, which rows hold a mark instead of a word: (T,) of the queries, (T',) of the keys."""
        return {}

    def epoch_scores(
        self, model: nn.Module, corpus: CorpusT, config: RunConfig, device: torch.device | str
    ) -> dict[str, float]:
        """What is scored after every epoch beside the losses, by its name in the curve; the same on every rank.

        It must draw nothing at random: the training goes on behind it.
        """
        return {}

    def words(self, batch: Any) -> dict[str, Tensor]:
        """By kind of attention, the index of the word that each query stands for: (T,)."""
        return {}

    def decode_token(self, corpus: CorpusT, kind: str, index: int) -> str:
        """How such a word is printed; by its index where a task has no better way."""
        return str(index)

    @abstractmethod
    def scores(self, run: Run) -> dict[str, Score]:
        """What the task is scored by, with signatures; outputs are kept beside the model."""

    def outputs_file(self, run: Run) -> Path | None:
        """Where the test set's outputs lie beside the model: JSON; None for a task without."""
        return None

    @abstractmethod
    def examples(self, run: Run, count: int) -> pd.DataFrame:
        """A few inputs and outputs of the test set."""


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
    """What the heads do, batch by batch of a split, nothing dropped out; with several ranks, this one's share.

    Attention weights are left out unless ``weights``.
    """
    model.eval()
    for batch in task.held_out(corpus, split, config):
        batch = batch.to(device)
        with record_heads(model, weights) as records:
            model(batch)
        yield Observed(records, task.special_tokens(batch), task.words(batch))


@torch.no_grad()
def held_out_loss(
    task: Task[Any], model: nn.Module, corpus: Any, split: str, config: RunConfig, device: torch.device | str
) -> dict[str, float]:
    """Loss in nats for each prediction and accuracy in percent on a split, nothing dropped out."""
    model.eval()
    nll = correct = count = 0.0
    for batch in task.held_out(corpus, split, config):
        losses = task.loss(model, model.output_weight, batch.to(device))
        nll, correct, count = nll + losses.nll.item(), correct + losses.correct.item(), count + losses.count
    nll, correct, count = distributed.total_numbers(nll, correct, count)
    return {"nll": nll / count, "accuracy": 100 * correct / count}
