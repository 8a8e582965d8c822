"""Tasks on pairs of texts, and those that write a target word by word: translation and summarisation."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from headdiv.companion.data.corpora.seq2seq import Corpus
from headdiv.companion.data.tokenization.words import SPACE, detokenize, tokenize
from headdiv.companion.models.batching import BEGIN, END, UNKNOWN, UNKNOWN_WORD, Batch, Pairs, batch_numbers, make_batch
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.losses import linear_cross_entropy
from headdiv.companion.models.sizes import DecodeConfig, ModelConfig
from headdiv.companion.models.transformer import Transformer
from headdiv.companion.provenance import provenance
from headdiv.companion.tasks.base import TRAINING_LOSS, VALIDATION_LOSS, Example, Panel, Run, Task
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.text_batch_stream import PlannedBatchStream
from headdiv.companion.tasks.train_config import examples_of
from headdiv.core import distributed, manifest
from headdiv.core.files import read_json, short_hash, write_json
from headdiv.methods.base import Method
from headdiv.training.batch_streams import BatchStream
from headdiv.training.learner import Losses


class PairTask(Task):
    """A task on pairs of texts, one for the encoder and one for the decoder, in memory as ``pairs`` of a split."""

    evaluation_tokens: ClassVar[int] = 8000  # of a batch without training
    budget: ClassVar[tuple[str, ...]] = ("target",)  # sides whose tokens count for the size of a batch

    @abstractmethod
    def pack(self, split: Any, numbers: Sequence[int]) -> Batch:
        """A batch of these examples."""

    def scored(self, split: Any) -> np.ndarray:
        """Numbers of the examples that have a loss."""
        return np.arange(len(split.pairs))

    def learnt(self, split: Any, config: RunConfig) -> np.ndarray:
        """Numbers of the examples that are trained on."""
        numbers = self.scored(split)
        return numbers[: examples_of(config.train.share, len(numbers))]

    @abstractmethod
    def search(self, run: Run) -> dict[str, Any]:
        """The test set's outputs (``test``), and whatever else is stored with them."""

    def outputs_file(self, run: Run) -> Path:
        return run.folder / f"texts-{short_hash(run.config.decode.model_dump(mode='json'))}.json"

    def searched(self, run: Run) -> dict[str, Any]:
        """The result of `search`, stored beside the model in a file whose name depends on the settings of decoding."""
        path = self.outputs_file(run)
        if not manifest.whole(path, "the search is made again"):
            write_json(path, self.search(run))
            manifest.note(path.parent, path.name)
        return read_json(path)

    def batch_stream(self, corpus: Any, config: RunConfig) -> BatchStream:
        split, train = corpus.train, config.train
        config.check_budget(int(split.pairs.sizes(*self.budget).max()), "tokens of the longest example")
        numbers = self.learnt(split, config)
        sizes = split.pairs.sizes(*self.budget)[numbers]

        def plan(epoch: int) -> list[list[int]]:
            batches = batch_numbers(sizes, train.tokens_per_batch, seed=config.seed, epoch=epoch)
            return [numbers[batch].tolist() for batch in batches]

        return PlannedBatchStream(plan, partial(self.pack, split))

    def held_out(self, corpus: Any, split: str, config: RunConfig) -> Iterator[Batch]:
        data = getattr(corpus, split)
        numbers = self.scored(data)
        batches = batch_numbers(data.pairs.sizes(*self.budget)[numbers], self.evaluation_tokens, seed=None)
        for batch in batches[distributed.rank() :: distributed.world()]:
            yield self.pack(data, numbers[batch].tolist())

    def words(self, batch: Batch) -> dict[str, Tensor]:
        """The tokens that each side reads."""
        return {"encoder": batch.source, "decoder": batch.target_in, "cross": batch.target_in}


class Seq2Seq(PairTask):
    """The encoder-decoder Transformer, teacher forcing, beam search."""

    Model, Decode = ModelConfig, DecodeConfig
    unit = "nats/token"
    accuracy = "share of target words (end mark included) that are likeliest, given the right ones before them"
    unigram = "every word by its frequency in the training targets"
    curves = (TRAINING_LOSS, VALIDATION_LOSS, Panel("validation_accuracy", "validation token accuracy"))
    evaluation_tokens = 4000
    limits: ClassVar[dict[str, str]] = {}  # by side: the key of the data that says how many words are read

    def build(self, config: RunConfig, vocabulary: tuple[int, ...], method: Method) -> Transformer:
        return Transformer(config.model, *vocabulary, method)

    def pack(self, split: Any, numbers: Sequence[int]) -> Batch:
        return make_batch(split.pairs, numbers)

    def loss(self, model: Callable[[Batch], Tensor], weight: Tensor, batch: Batch, smoothing: float = 0.0) -> Losses:
        """Cross-entropy of every target word and END."""
        hidden = model(batch)
        sums = linear_cross_entropy(hidden, weight, batch.target_out, smoothing)
        return Losses(*sums, count=len(hidden), tokens=len(hidden))

    def special_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """END after the source, BEGIN before the target."""
        source, target = batch.source == END, batch.target_in == BEGIN
        return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}

    def decode_token(self, corpus: Corpus, kind: str, index: int) -> str:
        """A word, or a piece of one, of the side that the queries come from."""
        return (corpus.source if kind == "encoder" else corpus.target).words[index]

    def lengths(self, corpus: Corpus) -> dict[str, np.ndarray]:
        """Lengths of the training pairs, in words or pieces of words, with the end token."""
        return {f"{side} (tokens)": corpus.train.pairs.sizes(side) for side in ("source", "target")}

    # ---- outputs

    def search(self, run: Run) -> dict[str, Any]:
        """Texts, the words that they are joined from, the main score's counts of each, and how long the search took.

        The time is that of one pass by the wall clock, with the model loaded before, until all texts are written. It is
        not repeated: on a machine that is busy otherwise the number is noisy.
        """
        start = time.perf_counter()
        outputs = translate(run.model, run.corpus.test.pairs.source, run.config.decode, run.device)
        tokens = [run.corpus.decode(output) for output in outputs]
        lines = [self._join(run, words) for words in tokens]
        seconds = time.perf_counter() - start
        counts, decode = self.sentence_counts(run, lines), run.config.decode
        machine = provenance(run.config.threads, run.device)
        return {
            "test": lines,
            "tokens": tokens,
            "counts": None if counts is None else counts.tolist(),
            "time": {
                "seconds": seconds,
                "sentences": len(lines),
                "sentences_per_second": len(lines) / seconds,
                "beam": decode.beam,
                "batch_sentences": decode.batch_sentences,
                "device": machine["device"],
                "threads": machine["threads"],
            },
        }

    def outputs(self, run: Run) -> list[str]:
        """The test set's outputs as text."""
        return self.searched(run)["test"]

    def references(self, run: Run) -> list[str]:
        """The test set's targets, against which outputs are scored."""
        return [target for _, target in run.corpus.test.text]

    def as_text(self, run: Run, output: list[int]) -> str:
        """Word indices as text."""
        return self._join(run, run.corpus.decode(output))

    def _join(self, run: Run, words: list[str]) -> str:
        data = run.config.data
        if data.tokenizer == "lossless" and run.corpus.subwords is None:  # a piece's unknown character brings no space
            words = [f"{SPACE}{word}" if word == UNKNOWN_WORD else word for word in words]
        return detokenize(words, getattr(data, "target", "en"), tokenizer=data.tokenizer)

    # ---- texts that are typed in

    def _tokenize(self, run: Run, text: str, side: str) -> list[str]:
        """A text of the source's or the target's side as words."""
        data, limit = run.config.data, self.limits.get(side)
        if limit:  # texts with a limit have single spaces in the corpus too
            text = " ".join(text.split())
        words = tokenize(text, getattr(data, side, "en"), **data.word_rules)
        return words[: getattr(data, limit)] if limit else words

    def unknown_words(self, run: Run, text: str) -> list[str]:
        """The words of a source that have an unknown piece."""
        words = dict.fromkeys(self._tokenize(run, text, "source"))
        return [word for word in words if (run.corpus.encode([word], "source") == UNKNOWN).any()]

    def apply(self, run: Run, text: str, second: str | None = None) -> str:
        return self.as_text(run, self.example_batch(run, text).target_out[:-1].tolist())

    def example_batch(self, run: Run, text: str, second: str | None = None) -> Batch:
        """See `Task`; ``second`` is the text that the decoder reads."""
        source = run.corpus.encode(self._tokenize(run, text, "source"), "source")
        if second is None:
            (output,) = translate(run.model, [source], run.config.decode, run.device)
            target = np.array(output, dtype=np.int32)
        else:
            target = run.corpus.encode(self._tokenize(run, second, "target"), "target")
        return make_batch(Pairs([source], [target]), [0]).to(run.device)

    def example_texts(self, corpus: Corpus, split: str, count: int) -> list[Example]:
        return [Example(source, None, target) for source, target in getattr(corpus, split).text[:count]]
