"""The stored result of one run, its ``metrics.json``: what it holds, where it lies, and how it is read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from headdiv.companion import paths
from headdiv.companion.commands import remedy
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.train_config import examples_of
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import read_json
from headdiv.core.settings import check, nearest, refuse_infinite

QUIET = 0.5  # other busy processes
FORMAT = 3  # of metrics.json
IMPORTANCE = "importance.json"  # beside a run's metrics, of a command of its own
SPLITS = ("train", "valid", "test")
SCORES = ("training_loss", "validation_nll", "unigram_nll")  # of every run, beside its task's main score


class Record(BaseModel):
    """Part of a result; keys that no code reads are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True)


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


class _HeadsContent(Record):
    measures: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Heads:
    """Measures of the attention modules, and artifacts of the method, each under the method's own name for it.

    Kept compressed, two thirds of what a result takes otherwise: a report holds thousands, and looks at the heads of
    one at a time.
    """

    def __init__(self, content: _HeadsContent) -> None:
        self._packed = zlib.compress(json.dumps(content.model_dump()).encode(), level=1)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(cls, handler(_HeadsContent))

    @property
    def measures(self) -> dict[str, dict[str, Any]]:
        """By attention module ("encoder 1"), by measure: numbers by head, or by pair of heads."""
        return _unpacked(self._packed)["measures"]

    def artifact(self, name: str) -> dict[str, Any]:
        """An artifact by attention module, "measures" included; {} where the run has none."""
        return _unpacked(self._packed).get(name, {})


@lru_cache(maxsize=64)
def _unpacked(packed: bytes) -> dict[str, Any]:
    return json.loads(zlib.decompress(packed))


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


class SplitStatistics(Record):
    """Counts of one split; which there are depends on the task."""

    examples: int | None = None
    unigram_nll: float | None = None


class StreamStatistics(Record):
    """What was drawn from each source of a stream of text."""

    tokens: dict[str, int] = Field(default_factory=dict)
    passes: dict[str, int] = Field(default_factory=dict)
    refused: dict[str, int] = Field(default_factory=dict)


class DataStatistics(Record):
    """Counts of the corpus by split, and of the records left out by reason."""

    train: SplitStatistics
    valid: SplitStatistics
    test: SplitStatistics
    refused: dict[str, int] = Field(default_factory=dict)
    content: str | None = None  # `content_key` of its files; None where it was not kept yet
    stream: StreamStatistics = StreamStatistics()

    def split(self, name: str) -> dict[str, Any]:
        """Every statistic of the split "train", "valid" or "test" that the run has, by name."""
        return getattr(self, name).model_dump(exclude_unset=True)

    def by_name(self) -> dict[str, Any]:
        """Every statistic of the corpus by its name ("train.examples"); not what was drawn of a stream."""
        splits = {f"{name}.{key}": value for name in SPLITS for key, value in self.split(name).items()}
        return splits | self.model_dump(exclude={*SPLITS, "stream"}, exclude_unset=True)


class Provenance(Record):
    """Code, packages and machine that a run was made with.

    Attributes:
        cpu: the processor's name and, on Linux, family and model: one name may cover several generations.
        instruction_set: what torch's kernels use, such as AVX512.
        ranks: their number; where it changed when a training went on, (first step, ranks) of each part.
    """

    device: str
    threads: int
    cpu: str | None = None
    instruction_set: str | None = None
    ranks: int | tuple[tuple[int, int], ...] = 1
    commit: str | None = None
    evaluated_at_commit: str | None = None
    method_code: str | None = None  # changes with the code of a method of one's own, since that is kept
    python: str | None = None
    system: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)


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

    @model_validator(mode="before")
    @classmethod
    def _has_finite_numbers(cls, content: Any) -> Any:
        refuse_infinite(content)
        return content

    @model_validator(mode="after")
    def _has_a_known_kind_and_data(self) -> Self:
        if self.kind not in TASKS:
            raise ValueError(f"kind: unknown task {self.kind!r}{nearest(self.kind, list(TASKS))}")
        if "name" not in self.config.data:
            raise ValueError("config.data.name: is missing")
        return self

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
        """What this file holds.

        Args:
            path: among a profile's results.
            profile: that an error's command names; by default the folder of the results has its name.

        Raises:
            DataError: no such file, no JSON, another format, a key that is missing or wrong, or the result of another
                run than its path names.
        """
        key = (cls, path, *_version(path))
        if (known := _READ.get(key)) is not None:
            return known
        try:
            content = read_json(path)
            found = content.get("format") if isinstance(content, dict) else None
            if found != cls.stored_format:
                raise DataError(f"{path}: {cls.noun} of format {found}, expected {cls.stored_format}")
            result = check(cls, content)
            *_, paper, task, variant, seed, _ = path.parts
            named = {"paper": paper, "task": task, "variant": variant, "seed": seed.removeprefix("seed")}
            for name, expected in named.items():
                if (own := str(getattr(result, name))) != expected:
                    raise DataError(f"{path}: {name}: found {own!r}, expected {expected!r}, as in its path")
        except (ConfigError, DataError) as error:
            place = "" if str(path) in str(error) else f"{path}: "
            raise DataError(f"{place}{error}; {remedy(path, profile, cls.command)}") from None
        _READ[key] = result
        return result


# What was read of a file and is still held by somebody: a report, its tables and the ledger ask for the same runs.
_READ: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def _version(path: Path) -> tuple[int, ...]:
    """Changes when the file does; () where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


class RunResult(RunIdentity):
    """The stored result of one run: the content of ``metrics.json``.

    Attributes:
        outputs: file of the test set's outputs.
        more_outputs: files of further outputs by name: "best", of the best epoch's parameters where these are others,
            "average", of the mean of the last epochs', and the names of further test splits.
        evaluated_epoch: the epoch, from 1, whose parameters are scored; None for runs stored before it was: the last.
    """

    stored_format, noun, command = FORMAT, "metrics", "train"

    format: int
    parameters: int = Field(gt=0)
    scores: dict[str, StoredScore]
    curve: list[CurvePoint] = Field(min_length=1)
    heads: Heads
    outputs: str | None = None
    more_outputs: dict[str, str] = Field(default_factory=dict)
    evaluated_epoch: int | None = None
    cost: Cost
    data: DataStatistics
    provenance: Provenance

    @model_validator(mode="after")
    def _has_what_every_run_has(self) -> Self:
        if "tokens_per_batch" not in self.config.train:
            raise ValueError("config.train.tokens_per_batch: is missing")
        for name in (*SCORES, TASKS[self.kind].main_score.name):
            if name not in self.scores:
                raise ValueError(f"scores.{name}: is missing")
        return self

    @classmethod
    def parse(cls, metrics: Mapping[str, Any] | RunResult) -> RunResult:
        """The result of this content of metrics.json. Raises ConfigError: a key is missing or has another type."""
        return metrics if isinstance(metrics, RunResult) else check(cls, metrics)

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
        every = self.data.train.examples
        return None if every is None else examples_of(self.config.train.get("share", 1.0), every)

    def failures(self) -> list[str]:
        """What any run must show before its numbers are worth a look, and this one does not: a sentence each.

        The training loss must have fallen from the first epoch to the last (where there are two) and must have kept at
        least half of its fall; the validation loss must be below that of the simplest model, which knows frequencies
        only.
        """
        losses, found = [point.training_loss for point in self.curve], []
        first, lowest, last = losses[0], min(losses), losses[-1]
        nll, unigram = self.value("validation_nll"), self.value("unigram_nll")
        if len(losses) > 1 and last >= first:
            found.append(f"the training loss went from {first:.4f} to {last:.4f}")
        elif last > (first + lowest) / 2:
            found.append(f"the training loss went from {first:.4f} to {lowest:.4f} and then to {last:.4f}")
        if nll is not None and unigram is not None and nll >= unigram:
            found.append(f"the validation loss {nll:.4f} is not below {unigram:.4f}, that of frequencies alone")
        return found

    def value(self, name: str) -> float | None:
        """A number of a paper's column: a score, ``parameters``, ``training_hours``; None where the run has none."""
        found = self.scores.get(name)
        own = {"parameters": self.parameters, "training_hours": self.cost.training_seconds / 3600}
        return found.value if found else own.get(name)


def metrics_path(profile: str, experiment: str, variant: str, seed: int) -> Path:
    """``results/<profile>/<paper>/<task>/<variant>/seed<k>/metrics.json``."""
    return paths.results(profile) / experiment / variant / f"seed{seed}" / "metrics.json"


def is_stored(metrics: Path) -> bool:
    """Whether anything lies where a run's metrics do; what cannot be read there is an error, not a run that lacks."""
    return os.path.lexists(metrics)


def stored_files(profile: str, runs: Iterable[RunConfig]) -> dict[Path, RunConfig]:
    """The metrics that are stored of these runs of a profile, each with its run."""
    files = {metrics_path(profile, run.experiment, run.variant, run.seed): run for run in runs}
    return {path: run for path, run in files.items() if is_stored(path)}
