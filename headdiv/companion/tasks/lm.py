"""Language modelling: the next token of a text."""

from __future__ import annotations

import math
import re
import statistics
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from headdiv.companion.data.corpora.lm import LMCorpus, load_lm
from headdiv.companion.data.corpora.mixture import HeldOut, Mixture
from headdiv.companion.data.data_config import DataConfig
from headdiv.companion.data.readers.documents import SLIMPAJAMA
from headdiv.companion.data.readers.lines import unpacked
from headdiv.companion.models.batching import IGNORED
from headdiv.companion.models.language_model import LanguageModel, Windows, likeliest_tokens, make_windows
from headdiv.companion.models.losses import linear_cross_entropy
from headdiv.companion.models.sizes import LMConfig
from headdiv.companion.tasks.base import (
    TRAINING_LOSS,
    Example,
    MainScore,
    Panel,
    Run,
    Score,
    Task,
    held_out_loss,
    score,
)
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.text_batch_stream import TextBatchStream
from headdiv.core import distributed
from headdiv.core.errors import DataError
from headdiv.core.settings import Place, Settings, Source, config_error, nearest, refuse_unread
from headdiv.methods.base import Method
from headdiv.training.batch_streams import BatchStream
from headdiv.training.learner import Losses

EVALUATION_TOKENS = 8000  # of a batch without training
REPEATS = 5  # of the timed continuation
WITHIN = 0.01  # relative distance to the lowest perplexity at which a run counts as converged
EXAMPLE_TOKENS = 24  # of an example text
NEW_TOKENS = 20  # of a continuation

PERPLEXITY_CAPTION = (
    "Training loss (mean over an epoch, dropout on) and validation perplexity per {}, on a logarithmic axis, after "
    "each epoch; dashed: what token frequencies alone give."
)


def perplexity_curves(predicted: str) -> tuple[Panel, ...]:
    """Panels of a task that predicts this kind of token: "token", "masked token"."""
    perplexity = Panel("validation_nll", "validation perplexity", f"by {predicted}", perplexity=True, unigram=True)
    return TRAINING_LOSS, perplexity


class LMData(DataConfig):
    """Plain text, or shards of JSON lines in SlimPajama's form, as a stream."""

    files: dict[str, list[str]] | None = Field(None, description="by split: files or patterns (*.jsonl.zst, *.txt)")
    mixture: Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)] | None = Field(
        None, description="weights by source of SlimPajama; null: one stream, the files in their order"
    )
    document_start: str | None = Field(
        None, description="plain text: pattern of a document's first line; null: empty lines separate documents"
    )
    tokenizer_file: str | None = Field(None, description="a tokenizer.json (GPT-NeoX's); null: train one")
    tokenizer_documents: int = Field(2000, ge=1, description="training documents from which a tokeniser is trained")
    vocabulary_size: int = Field(50254, ge=257, description="V, entries of the byte-pair encoding")
    context: int = Field(1024, ge=4, le=65536, description="tokens of a window")
    held_out_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens of each held-out split, mixed like the training text (of generated text what there is); "
        "null: all, as it stands",
    )
    boundaries: bool = Field(True, description="attention and positions restart at each document")
    epoch_tokens: int = Field(ge=1, description="training tokens of an epoch")
    block: int = Field(256, ge=1, description="windows that are shuffled together")

    @field_validator("document_start")
    @classmethod
    def _is_a_pattern(cls, document_start: str | None) -> str | None:
        try:
            re.compile(document_start or "")
        except re.error as error:
            context = {"problem": str(error)}
            raise PydanticCustomError("pattern", "Input should be a regular expression ({problem})", context) from None
        return document_start

    @model_validator(mode="after")
    def _a_stream_has_no_examples(self) -> LMData:
        if self.examples is not None and not self.is_toy:
            raise ValueError("examples: files are read as a stream; epoch_tokens says how much of it an epoch takes")
        return self


class TimingConfig(Settings):
    """How the time of inference is measured: greedy, one text, keys and values cached."""

    prompt_tokens: int = Field(16, ge=1, description="tokens read before the clock starts")
    new_tokens: int = Field(64, ge=1, description="tokens written and timed")


class StreamTask(Task):
    """What tasks on a stream of text share: training batches, batches of held-out windows, and the loss."""

    Network: ClassVar[type[nn.Module]]
    Stream: ClassVar[type[Mixture]] = Mixture  # of the training text, from its beginning
    nothing_to_predict: ClassVar[str]  # what is missing where a text has nothing to predict

    Model = LMConfig
    ignores = ("epoch_scores", "share")
    main_score = MainScore("perplexity", "Perplexity", better="lower")  # of validation, as papers report it
    test_score_name = "test_perplexity"
    score_labels: ClassVar = {"inference_ms": "Inference time"}
    example_noun = "documents"

    def check_data(self, config: LMData, at: Place = ("data",), source: Source | None = None) -> None:
        """The mixture's sources must be SlimPajama's; ``document_start`` is of plain text alone."""
        super().check_data(config, at, source)
        names = [name for split in config.read_splits.values() for name in (config.files or {}).get(split, [])]
        if config.is_toy or (names and all(unpacked(Path(name)).suffix == ".jsonl" for name in names)):
            refuse_unread(config, ("document_start",), "JSON lines are a document each", at, source)
        for name in config.mixture or {}:
            if name not in SLIMPAJAMA:
                raise config_error((*at, "mixture", name), f"unknown source{nearest(name, list(SLIMPAJAMA))}", source)

    def training_size(self, data: Mapping[str, Any], statistics: Mapping[str, Any], whole: int | None = None) -> str:
        return f"{data['epoch_tokens']:,} tokens of text an epoch"

    def vocabulary(self, config: LMData) -> tuple[int, ...]:
        """Entries of the encoding; the configuration says how many, so that no data is needed."""
        return (config.vocabulary_size,)

    def build(self, config: RunConfig, vocabulary: tuple[int, ...], method: Method) -> nn.Module:
        (entries,) = vocabulary
        return self.Network(config.model, entries, config.data.context, method)

    @abstractmethod
    def windows(self, corpus: Any, split: str) -> np.ndarray:
        """All windows of a held-out split, in the form of the stream's."""

    @abstractmethod
    def pack(self, windows: np.ndarray, corpus: Any, data: Any) -> Windows:
        """A batch of such windows."""

    def words(self, batch: Windows) -> dict[str, Tensor]:
        """The tokens that are read, for either kind of attention that the stack may have."""
        return {"encoder": batch.inputs, "decoder": batch.inputs}

    def decode_token(self, corpus: Any, kind: str, index: int) -> str:
        """A token, with signs for the space that begins a word and for the end of a line."""
        return corpus.bpe.decode([index]).replace(" ", "␣").replace("\n", "↵")

    def lengths(self, corpus: Any) -> dict[str, np.ndarray]:
        """Of the validation text's documents, their ends counted."""
        targets = corpus.valid.windows[:, 1:].reshape(-1)  # every token, and an end after each document
        ends = np.flatnonzero(targets[targets != IGNORED] == corpus.bpe.end)
        return {"document (tokens)": np.diff(ends, prepend=-1)}

    def batch_stream(self, corpus: Any, config: RunConfig) -> BatchStream:
        """See `Task`; an epoch is ``data.epoch_tokens`` of the stream, whatever the length of the text."""
        data = config.data
        config.check_budget(data.context, "tokens of a window (data.context)")
        windows = config.train.tokens_per_batch // data.context  # of a batch
        batches = max(1, round(data.epoch_tokens / (windows * data.context)))  # of an epoch
        pack = partial(self.pack, corpus=corpus, data=data)
        stream = self.Stream(corpus.shards, corpus.bpe, data, config.seed, corpus.bad_records)
        return TextBatchStream(stream, windows, batches, pack, corpus.bad_records)

    def held_out(self, corpus: Any, split: str, config: RunConfig) -> Iterator[Windows]:
        windows, data = self.windows(corpus, split), config.data
        size = max(1, EVALUATION_TOKENS // data.context)
        starts = range(0, len(windows), size)
        for start in starts[distributed.rank() :: distributed.world()]:
            yield self.pack(windows[start : start + size], corpus, data)

    def loss(
        self, model: Callable[[Windows], Tensor], weight: Tensor, batch: Windows, smoothing: float = 0.0
    ) -> Losses:
        """Cross-entropy of all tokens to predict; only their rows are multiplied by the output weight."""
        hidden, targets = model(batch), batch.targets
        if len(batch.predicted) < len(targets):
            hidden, targets = hidden[batch.predicted], targets[batch.predicted]
        sums = linear_cross_entropy(hidden, weight, targets, smoothing)
        return Losses(*sums, count=len(targets), tokens=len(targets))

    def compared_scores(self, run: Run) -> dict[str, Score]:
        """Perplexity on the test split, which needs no outputs."""
        nll = held_out_loss(run, "test")["nll"]
        return {"test_perplexity": score(perplexity(nll), "", f"exp({self.unit}), e^700 at most; test split")}

    def expect_output(self, run: Run, batch: Windows) -> Windows:
        """See `Task`: the targets are there already."""
        if not len(batch.predicted):
            raise DataError(f"a text without anything to predict: expected one {self.nothing_to_predict} at least")
        return batch


class LanguageModelling(StreamTask):
    """Language modelling, scored by perplexity."""

    name = "lm"
    Data, Decode = LMData, TimingConfig
    unit = "nats/token"
    accuracy = "share of tokens that are the likeliest, given those before them"
    unigram = "every token by its frequency in the documents that the tokeniser is trained on"
    curves = perplexity_curves("token")
    curves_caption = PERPLEXITY_CAPTION.format("token")
    output = "goes on"
    predicts_text = True

    Network = LanguageModel
    nothing_to_predict = "token"

    def load(self, config: LMData) -> LMCorpus:
        return load_lm(config)

    def windows(self, corpus: LMCorpus, split: str) -> np.ndarray:
        return getattr(corpus, split).windows

    def pack(self, windows: np.ndarray, corpus: LMCorpus, data: LMData) -> Windows:
        return make_windows(windows[:, :-1], windows[:, 1:], corpus.bpe.end, data.boundaries, causal=True)

    def scores(self, run: Run) -> dict[str, Score]:
        """Perplexity by token and by word, bits per byte, of both held-out splits; cost; convergence."""
        scores = text_measures(run.point["validation_nll"], run.corpus.valid, "", "valid")
        scores |= text_measures(held_out_loss(run, "test")["nll"], run.corpus.test, "test_", "test")
        milliseconds, conditions = self.milliseconds_a_token(run)
        return scores | {
            "training_days": score(
                run.record["cost"]["training_seconds"] / 86400,
                "days",
                "optimiser steps with their batches, no evaluation",
            ),
            "inference_ms": score(
                milliseconds,
                "ms/token",
                f"greedy, one text, cached keys and values, {conditions}, median of {REPEATS}",
            ),
            "convergence_epoch": score(
                convergence_epoch(run.record["curve"]),
                "epochs",
                f"where validation perplexity, in a straight line between epochs, first comes within "
                f"{WITHIN:.0%} of its lowest",
            ),
        }

    def milliseconds_a_token(self, run: Run) -> tuple[float, str]:
        """Time of one more token when a text is continued, keys and values cached; and the numbers of tokens."""
        timing, context = run.config.decode, run.config.data.context
        prompt_tokens = min(timing.prompt_tokens, context // 2)
        prompt = np.maximum(run.corpus.test.windows[0, :prompt_tokens], 0).tolist()
        new_tokens = min(timing.new_tokens, context - prompt_tokens - 1)
        seconds = []
        for _ in range(REPEATS):
            tokens = likeliest_tokens(run.model, prompt, new_tokens + 1)
            next(tokens)
            start = time.perf_counter()
            deque(tokens, maxlen=0)  # reads them all
            seconds.append((time.perf_counter() - start) / new_tokens)
        return 1000 * statistics.median(seconds), f"{new_tokens} tokens after {prompt_tokens}"

    def apply(self, run: Run, text: str, second: str | None = None) -> str:
        """The likeliest continuation, of at most 20 tokens and half the context.

        Of a text that does not fit into the rest of the context, the end is read.
        """
        bpe, context = run.corpus.bpe, run.config.data.context
        new_tokens = min(NEW_TOKENS, context // 2)
        prompt = [bpe.end, *bpe.encode_batch([text])[0]][-max(1, context - new_tokens) :]
        boundary = bpe.end if run.config.data.boundaries else None  # as in the run's training
        return bpe.decode(list(likeliest_tokens(run.model, prompt, new_tokens, boundary)))

    def example_batch(self, run: Run, text: str, second: str | None = None) -> Windows:
        """See `Task`: one window, which begins with the token ``end``; of a text longer than the context, its end."""
        bpe, data = run.corpus.bpe, run.config.data
        tokens = [bpe.end, *bpe.encode_batch([text])[0]][-data.context :]
        return self.pack(np.array([[*tokens, IGNORED]]), run.corpus, data).to(run.device)

    def example_texts(self, corpus: LMCorpus, split: str, count: int) -> list[Example]:
        """The beginnings of the first documents, and how they go on."""
        bpe, tokens = corpus.bpe, getattr(corpus, split).windows[:, :-1]
        length = min(EXAMPLE_TOKENS, tokens.shape[1] // 2)
        tokens = tokens[tokens != IGNORED]
        documents = np.split(tokens, np.flatnonzero(tokens == bpe.end))[1 : count + 1]
        parts = [(document[1 : length + 1], document[length + 1 :][:NEW_TOKENS]) for document in documents]
        return [Example(bpe.decode(text), None, bpe.decode(continuation)) for text, continuation in parts]


def perplexity(nats: float) -> float:
    """e to the power of a mean loss, at most e^700: the loss of a model that has diverged may exceed 700."""
    return math.exp(min(nats, 700.0))


def text_measures(nll: float, text: HeldOut, prefix: str, split: str) -> dict[str, Score]:
    """Perplexities and bits per byte of a split from its mean loss in nats per token."""
    total = nll * text.targets
    details = f"{split} split, {text.targets:,} tokens in {text.documents:,} documents, an end of each counted"
    return {
        f"{prefix}perplexity": score(perplexity(nll), "", f"by token: exp(nats/token); {details}"),
        f"{prefix}word_perplexity": score(
            perplexity(total / text.words),
            "",
            f"exp(nats/word), e^700 at most, {text.words:,} words between spaces; {details}",
        ),
        f"{prefix}bits_per_byte": score(
            total / math.log(2) / text.bytes, "bits/byte", f"{text.bytes:,} bytes of UTF-8; {details}"
        ),
    }


def convergence_epoch(curve: list[dict[str, Any]]) -> float:
    """The epoch, in fractions, at which validation perplexity first comes within 1 % of its lowest."""
    losses = np.array([point["validation_nll"] for point in curve])
    values, threshold = np.exp(np.minimum(losses - losses.min(), 700.0)), 1 + WITHIN  # in units of the lowest
    index = int(np.flatnonzero(values <= threshold)[0])
    if index == 0:
        return float(curve[0]["epoch"])
    before, after = values[index - 1], values[index]
    return float(curve[index - 1]["epoch"] + (before - threshold) / (before - after))
