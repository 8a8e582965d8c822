"""What is stored of one run: ``metrics.json`` and ``outputs.json.xz``, where they lie, and how they are read."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from headdiv.companion import paths
from headdiv.companion.commands import remedy
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import examples_of
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import parse_json, read_json, replacing
from headdiv.core.settings import check

FORMAT = 3  # of metrics.json
OUTPUTS = "outputs.json.xz"
IMPORTANCE = "importance.json"  # of a command of its own
QUIET = 0.5  # other busy processes


class Record(BaseModel):
    """Part of a result; keys that no code reads are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)


class StoredScore(Record):
    """A number with its unit ("" for none) and its metric's signature."""

    value: float
    unit: str
    signature: str


class CurvePoint(Record):
    """Measurements after one epoch. Scores of that epoch (``validation_bleu``) are further attributes.

    Attributes:
        epoch: counted from 1.
        steps: updates since the start of training.
        training_loss: with label smoothing, dropout and auxiliary losses.
        method: what the method did after this epoch, as it records it: rotation's swaps.
        heads: where ``train.epoch_heads`` asks for it, by attention module and measure: means over its heads, or over
            its pairs of different heads, on the validation split; and what the method measures of its own parameters.
    """

    epoch: int
    steps: int = 0
    training_loss: float
    validation_nll: float
    validation_accuracy: float
    training_nll: float | None = None
    training_accuracy: float | None = None
    auxiliary_loss: float | None = None
    method: dict[str, Any] | None = None
    heads: dict[str, dict[str, float]] | None = None

    def numbers(self) -> dict[str, float]:
        """Every number of this epoch by name."""
        return {name: value for name, value in self.model_dump(exclude_unset=True).items() if type(value) is not dict}


class Configuration(Record):
    """The run's settings by section; which keys a section has is the task's and the method's matter."""

    data: dict[str, Any]
    model: dict[str, Any] = Field(default_factory=dict)
    method: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    decode: dict[str, Any] = Field(default_factory=dict)

    def sections(self) -> dict[str, dict[str, Any]]:
        """Every section by name, in the order in which they are shown."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class SearchCost(Record):
    """How long the search of the test set took: one pass, by the wall clock."""

    seconds: float
    sentences: int
    sentences_per_second: float
    beam: int
    batch_sentences: int
    device: str
    threads: int


class Cost(Record):
    """Time and memory of a run.

    Attributes:
        other_load: how many other processes were busy, on average, at the end of training; None where nobody looked.
        search: None where it was not timed.
    """

    training_seconds: float
    target_tokens_per_second: float
    peak_memory_mib: float
    other_load: float | None = None
    search: SearchCost | None = None

    @property
    def quiet(self) -> bool:
        """Whether nothing else kept the machine busy, so that times may be compared."""
        return self.other_load is not None and self.other_load < QUIET


class StreamStatistics(Record):
    """What was drawn from each source of a stream of text."""

    tokens: dict[str, int] = Field(default_factory=dict)
    passes: dict[str, int] = Field(default_factory=dict)
    refused: dict[str, int] = Field(default_factory=dict)


class DataStatistics(Record):
    """Counts of the corpus by split, which depend on the task, and of the records left out by reason."""

    train: dict[str, Any]
    valid: dict[str, Any]
    test: dict[str, Any]
    refused: dict[str, int] = Field(default_factory=dict)
    content: str | None = None  # `content_key` of its files; None where it was not kept yet
    stream: StreamStatistics = StreamStatistics()


class Provenance(Record):
    """Code, packages and machine that a run was made with, as `headdiv.companion.provenance` finds them.

    Attributes:
        method_code: changes with the code of a method of one's own; None for runs from before it was kept.
    """

    device: str
    threads: int
    method_code: str | None = None


class RunIdentity(Record):
    """Which run something stored belongs to, as `headdiv.companion.tasks.base.Run.identity` writes it."""

    paper: str
    task: str
    kind: str
    variant: str
    seed: int
    hash: str
    config: Configuration

    stored_format: ClassVar[int]
    noun: ClassVar[str]  # what is stored
    command: ClassVar[str]  # that stores it

    @property
    def experiment(self) -> str:
        """``<paper>/<task>``."""
        return f"{self.paper}/{self.task}"

    @property
    def name(self) -> str:
        """What messages call it: "deacon/translation, direct-8, seed 1"."""
        return f"{self.experiment}, {self.variant}, seed {self.seed}"

    @classmethod
    def read(cls, path: Path, profile: str | None = None) -> Self:
        """The content of this file, which is parsed again only where it has changed.

        Args:
            path: among a profile's results.
            profile: that an error's command names; by default the folder of the results has its name.

        Raises:
            DataError: no such file, no JSON, another format, a key that is missing or wrong, or the result of another
                run than its path names.
        """
        try:
            status = path.stat() if path.is_file() else None
            return _read(cls, path, status and (status.st_ino, status.st_size, status.st_mtime_ns))
        except (ConfigError, DataError) as error:
            prefix = "" if str(path) in str(error) else f"{path}: "
            raise DataError(f"{prefix}{error}; {remedy(path, profile, cls.command)}") from None


@lru_cache(maxsize=1024)
def _read(cls: type[RunIdentity], path: Path, version: tuple[int, ...] | None) -> Any:
    content = read_json(path)
    stored_format = content.get("format") if isinstance(content, dict) else None
    if stored_format != cls.stored_format:
        raise DataError(f"{path}: {cls.noun} of format {stored_format}, expected {cls.stored_format}")
    result = check(cls, content)
    *_, paper, task, variant, seed, _ = path.parts
    for key, expected in {"paper": paper, "task": task, "variant": variant, "seed": seed.removeprefix("seed")}.items():
        stored = str(getattr(result, key))
        if stored != expected:  # a copied or renamed folder
            raise DataError(f"{path}: {key}: found {stored!r}, expected {expected!r}, as in its path")
    return result


class RunResult(RunIdentity):
    """The stored result of one run: the content of ``metrics.json``.

    Attributes:
        heads: "measures" by attention module ("encoder 1") and measure, numbers by head or by pair of heads; and the
            method's artifacts, each under the method's own name for it.
        outputs: file of the test set's outputs in the run's folder.
        more_outputs: files of further outputs by name: "best", of the best epoch's parameters where these are others,
            "average", of the mean of the last epochs', and the names of further test splits.
        evaluated_epoch: the epoch, from 1, whose parameters are scored; None for runs stored before it was: the last.
    """

    stored_format, noun, command = FORMAT, "metrics", "train"

    format: int
    parameters: int = Field(gt=0)
    scores: dict[str, StoredScore]
    curve: list[CurvePoint] = Field(min_length=1)
    heads: dict[str, Any]
    outputs: str | None = None
    more_outputs: dict[str, str] = Field(default_factory=dict)
    evaluated_epoch: int | None = None
    cost: Cost
    data: DataStatistics
    provenance: Provenance

    @classmethod
    def parse(cls, metrics: Mapping[str, Any]) -> RunResult:
        """The result of this content of metrics.json. Raises ConfigError: a key is missing or has another type."""
        return check(cls, metrics)

    @property
    def data_name(self) -> str:
        """The name of the data set."""
        return self.config.data["name"]

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return len(self.curve)

    @property
    def training_examples(self) -> int | None:
        """How many examples of the corpus were learnt from, see ``train.share``; None of a stream."""
        examples = self.data.train.get("examples")
        return None if examples is None else examples_of(self.config.train.get("share", 1.0), examples)

    def failures(self) -> list[str]:
        """What every run must show before its numbers count, and this one does not: a sentence each.

        The training loss must have fallen from the first epoch to the last (where there are two) and must have kept at
        least half of its fall; the validation loss must be below that of the simplest model, which knows frequencies
        only.
        """
        losses, sentences = [point.training_loss for point in self.curve], []
        first, lowest, last = losses[0], min(losses), losses[-1]
        nll, unigram = self.value("validation_nll"), self.value("unigram_nll")
        if len(losses) > 1 and last >= first:
            sentences.append(f"the training loss went from {first:.4f} to {last:.4f}")
        elif last > (first + lowest) / 2:
            sentences.append(f"the training loss went from {first:.4f} to {lowest:.4f} and then to {last:.4f}")
        if nll is not None and unigram is not None and nll >= unigram:
            sentences.append(f"the validation loss {nll:.4f} is not below {unigram:.4f}, that of frequencies alone")
        return sentences

    def value(self, name: str) -> float | None:
        """A number of a paper's column: a score, ``parameters``, ``training_hours``; None where the run has none."""
        if name in self.scores:
            return self.scores[name].value
        return {"parameters": self.parameters, "training_hours": self.cost.training_seconds / 3600}.get(name)


def metrics_path(profile: str, experiment: str, variant: str, seed: int) -> Path:
    """``results/<profile>/<paper>/<task>/<variant>/seed<k>/metrics.json``."""
    return paths.results(profile) / experiment / variant / f"seed{seed}" / "metrics.json"


def stored_files(profile: str, runs: Iterable[RunConfig]) -> dict[Path, RunConfig]:
    """The metrics that are stored of these runs of a profile, each with its run; they need not be readable."""
    files = {metrics_path(profile, run.experiment, run.variant, run.seed): run for run in runs}
    return {path: run for path, run in files.items() if os.path.lexists(path)}


# ---- outputs


class StoredOutputs(BaseModel):
    """The content of ``outputs.json.xz``: enough to score a run and to compare it with others anew.

    Outputs are in the test set's order, or by the name of each example.

    Attributes:
        test: outputs of the test set: translations, summaries, answers; [] for a task without.
        tokens: the words of each before they were joined; None where they are the text's.
        counts: of a translation, what BLEU needs of each sentence (`headdiv.companion.tasks.bleu.sentence_counts`).
        more: other outputs by name: "best", "average", further test sets.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    test: list[Any] | dict[str, Any] = Field(default_factory=list)
    tokens: list[list[str]] | None = None
    counts: list[tuple[int, int, int, int, int, int, int, int, int, int]] | None = Field(None, min_length=1)
    more: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)


def write_outputs(metrics: Path, outputs: StoredOutputs) -> None:
    """Write a run's outputs beside its metrics: the same bytes for the same outputs."""
    text = json.dumps(outputs.model_dump(exclude_none=True), ensure_ascii=False, separators=(",", ":"))
    with replacing(metrics.with_name(OUTPUTS)) as temporary:
        temporary.write_bytes(lzma.compress(text.encode()))


def read_outputs(metrics: Path, profile: str | None = None) -> StoredOutputs:
    """The outputs beside a run's metrics.

    Raises:
        DataError: the file is missing or damaged; the sentence has the command that makes it anew.
    """
    path = metrics.with_name(OUTPUTS)
    try:
        return check(StoredOutputs, parse_json(lzma.decompress(path.read_bytes()).decode(), path))
    except FileNotFoundError:
        raise DataError(f"{path}: missing; {remedy(path, profile)}") from None
    except (lzma.LZMAError, EOFError, UnicodeDecodeError, ConfigError, DataError) as error:
        raise DataError(f"{path}: damaged ({error}); {remedy(path, profile)}") from None
