"""A task of one's own in one file outside headdiv: each letter of a word is to be replaced by its mirror image's.

The model reads a word of fixed length and says, for every position, the letter at the opposite one: attention has to
find it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field
from torch import Tensor

import headdiv
from headdiv.core import distributed
from headdiv.core.errors import DataError
from headdiv.core.settings import Settings
from headdiv.data import cache
from headdiv.data.config import DataConfig
from headdiv.nn.batching import batch_numbers
from headdiv.nn.config import LMConfig
from headdiv.nn.language_model import WindowModel, Windows, make_masked_windows
from headdiv.nn.losses import Losses, linear_cross_entropy
from headdiv.tasks.base import TRAINING_LOSS, VALIDATION_LOSS, MainScore, Panel, Task, score
from headdiv.training.feeds import PlannedFeed


class ReversalData(DataConfig):
    """Words of random letters."""

    letters: int = Field(6, ge=2, le=26, description="of the alphabet")
    length: int = Field(6, ge=2, description="letters of a word")


@dataclass(frozen=True)
class Words:
    """A corpus; each split is (words, length), letters as numbers."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    statistics: dict


def prepare(config: ReversalData, folder: Path) -> dict:
    """Draw the words; their statistics."""
    rng, sizes = np.random.default_rng(1), {"train": config.examples, "valid": config.held_out, "test": config.held_out}
    splits = {name: rng.integers(config.letters, size=(size, config.length)) for name, size in sizes.items()}
    for name, words in splits.items():
        np.save(folder / f"{name}.npy", words)
    counts = {name: {"examples": len(words)} for name, words in splits.items()}
    counts["valid"]["unigram_nll"] = float(np.log(config.letters))
    return {"vocabulary": {"letters": config.letters}, "refused": {}, **counts}


class Model(WindowModel):
    """One stack of encoder layers, its output tied to the embedding."""

    @property
    def output_weight(self) -> Tensor:
        return self.embedding.weight


class Reversal(Task[Words]):
    """Words written backwards, scored by how many are right as a whole."""

    name = "reversal"
    Data, Model, Decode = ReversalData, LMConfig, Settings
    unit, accuracy, unigram = "nats/letter", "share of letters that are right", "every letter alike"
    main_score = MainScore("exact", "Right words", digits=1)
    curves = (TRAINING_LOSS, VALIDATION_LOSS, Panel("validation_accuracy", "letters that are right"))
    curves_caption = "Losses and accuracy by epoch; dashed: every letter alike."
    example_noun, batch_unit = "words", "letters"
    sides, texts, output = ("word", "word"), ("word",), "mirrored"

    def check_data(self, config, at=("data",), source=None) -> None:
        cache.check_data(config, [], at, source)

    def load(self, config: ReversalData) -> Words:
        folder = cache.prepared(config, prepare)
        splits = {name: np.load(folder / f"{name}.npy") for name in ("train", "valid", "test")}
        return Words(**splits, statistics=cache.read_statistics(folder))

    def build(self, config, vocabulary, parts) -> Model:
        return Model(config.model, *vocabulary, config.data.length, parts, "encoder")

    def lay_out(self, words: np.ndarray) -> Windows:
        return make_masked_windows(np.stack([words, words[:, ::-1]], axis=1), end=-1, boundaries=False)

    def feed(self, corpus: Words, config) -> PlannedFeed:
        sizes = np.full(len(corpus.train), config.data.length)
        plan = partial(batch_numbers, sizes, config.train.tokens_per_batch, seed=config.seed)
        return PlannedFeed(lambda epoch: plan(epoch=epoch), lambda numbers: self.lay_out(corpus.train[numbers]))

    def held_out(self, corpus: Words, split: str, config) -> Iterator[Windows]:
        words = getattr(corpus, split)
        for start in range(0, len(words), 100)[distributed.rank() :: distributed.world()]:
            yield self.lay_out(words[start : start + 100])

    def loss(self, model: Callable, weight: Tensor, batch: Windows, smoothing: float = 0.0) -> Losses:
        sums = linear_cross_entropy(model(batch), weight, batch.targets, smoothing)
        return Losses(*sums, count=len(batch.targets), tokens=len(batch.targets))

    def words(self, batch: Windows) -> dict[str, Tensor]:
        return {"encoder": batch.inputs}

    def decode_token(self, corpus: Words, kind: str, index: int) -> str:
        return chr(ord("a") + index)

    def outputs(self, run, words: np.ndarray) -> np.ndarray:
        batch = self.lay_out(words).to(run.device)
        return (run.model(batch) @ run.model.output_weight.T).argmax(-1).view(words.shape).cpu().numpy()

    def scores(self, run) -> dict:
        right = (self.outputs(run, run.corpus.test) == run.corpus.test[:, ::-1]).all(axis=1)
        return {"exact": score(100 * float(right.mean()), "%", f"{len(right)} test words")}

    def as_text(self, word: np.ndarray) -> str:
        return "".join(self.decode_token(None, "encoder", letter) for letter in word)

    def examples(self, run, count: int) -> pd.DataFrame:
        words = run.corpus.test[:count]
        sides = words, words[:, ::-1], self.outputs(run, words)
        rows = [[self.as_text(word) for word in row] for row in zip(*sides, strict=True)]
        return pd.DataFrame(rows, columns=["word", "reference", "mirrored"])

    # What is typed in: attention maps, explorer, `headdiv.apply`.

    def typed(self, run, text: str) -> np.ndarray:
        data = run.config.data
        word = np.array([[ord(letter) - ord("a") for letter in text]])
        if word.shape[1] != data.length or not np.isin(word, range(data.letters)).all():
            raise DataError(f"{text!r}: expected a word of {data.length} of the first {data.letters} letters")
        return word

    def apply(self, run, text: str, second: str | None = None) -> str:
        return self.as_text(self.outputs(run, self.typed(run, text))[0])

    def example_batch(self, run, text: str, second: str | None = None) -> Windows:
        return self.lay_out(self.typed(run, text)).to(run.device)

    def example_text(self, run) -> tuple[str, None]:
        return self.as_text(run.corpus.test[0]), None


headdiv.register(Reversal())
