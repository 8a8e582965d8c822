"""Translation and summarisation: from a source text to a target text, word by word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import sacrebleu
import torch
from torch import Tensor, nn

from headdiv.core import distributed
from headdiv.core.files import read_json, write_json
from headdiv.core.settings import Source, mistake
from headdiv.data import cache as sources
from headdiv.data.config import SummarisationData, TranslationData
from headdiv.data.corpora.seq2seq import Corpus, load_summarisation, load_translation, word_rules
from headdiv.data.readers.ted import languages_of
from headdiv.data.tokenization.torchtext06 import token_bleu
from headdiv.data.tokenization.words import detokenize, tokenize
from headdiv.nn.batching import BEGIN, END, Batch, batch_numbers, make_batch
from headdiv.nn.config import DecodeConfig, ModelConfig
from headdiv.nn.decoding import translate
from headdiv.nn.losses import Losses, linear_cross_entropy
from headdiv.nn.transformer import ModuleFactory, Transformer
from headdiv.tasks.base import Run, Score, Task, outputs_path, score
from headdiv.tasks.config import RunConfig
from headdiv.tasks.imi import imi
from headdiv.tasks.rouge import rouge
from headdiv.training.feeds import Feed, PlannedFeed

EVALUATION_TOKENS = 4000  # of a batch when nothing is learnt
# After an epoch; not the run's own search, which may be another for the same training.
EPOCH_SEARCH = DecodeConfig(beam=1, batch_sentences=128)


WORDS = {"moses": "Moses", "spacy": "spaCy"}


class Seq2Seq(Task[Corpus]):
    """What both have in common: the encoder-decoder Transformer, teacher forcing, beam search."""

    Model = ModelConfig
    Decode = DecodeConfig
    unit = "nats/token"
    accuracy = "share of target words (end mark included) that are likeliest, given the right ones before them"
    unigram = "every word by its frequency in the training targets"
    curves_caption = (
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of target "
        "words that are the likeliest) after each epoch; dashed: what the words' frequencies alone give."
    )
    budget: tuple[str, ...]  # sides that a batch's budget of tokens counts

    def build(self, config: RunConfig, vocabulary: tuple[int, ...], parts: ModuleFactory) -> Transformer:
        """See `Task`."""
        return Transformer(config.model, *vocabulary, parts)

    def feed(self, corpus: Corpus, config: RunConfig) -> Feed:
        """See `Task`."""
        pairs, train = corpus.train.pairs, config.train
        sizes = pairs.sizes(*self.budget)

        def plan(epoch: int) -> list[list[int]]:
            bucketed = train.batching == "bucketed"
            return batch_numbers(sizes, train.tokens_per_batch, seed=config.seed, epoch=epoch, bucketed=bucketed)

        return PlannedFeed(plan, lambda numbers: make_batch(pairs, numbers))

    def held_out(self, corpus: Corpus, split: str, config: RunConfig) -> Iterator[Batch]:
        """See `Task`."""
        pairs = getattr(corpus, split).pairs
        plan = batch_numbers(pairs.sizes(*self.budget), EVALUATION_TOKENS, seed=None)
        for numbers in plan[distributed.rank() :: distributed.world()]:
            yield make_batch(pairs, numbers)

    def loss(self, model: Callable[[Batch], Tensor], weight: Tensor, batch: Batch, smoothing: float = 0.0) -> Losses:
        """Cross-entropy of every target word and END."""
        hidden = model(batch)
        sums = linear_cross_entropy(hidden, weight, batch.target_out, smoothing)
        return Losses(*sums, count=len(hidden), tokens=len(hidden))

    def special_tokens(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """END behind the source, BEGIN before the target."""
        source, target = batch.source == END, batch.target_in == BEGIN
        return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}

    def words(self, batch: Batch) -> dict[str, Tensor]:
        """What is read on either side."""
        return {"encoder": batch.source, "decoder": batch.target_in, "cross": batch.target_in}

    def decode_token(self, corpus: Corpus, kind: str, index: int) -> str:
        """A word, or a piece of one, of the side that asks."""
        return (corpus.source if kind == "encoder" else corpus.target).words[index]

    def outputs_file(self, run: Run) -> Path:
        """A JSON list of texts, in the test set's order."""
        return outputs_path(run, "outputs")

    def outputs(self, run: Run) -> list[str]:
        """The test set's sources in the form of targets, as text; kept beside the model for the next time."""
        path = self.outputs_file(run)
        if path.is_file():
            return read_json(path)
        found = translate(run.model, run.corpus.test.pairs.source, run.config.decode, run.device)
        lines = [self.as_text(run, output) for output in found]
        write_json(path, lines)
        return lines

    def as_text(self, run: Run, output: list[int]) -> str:
        """Word indices as text."""
        return detokenize(run.corpus.decode(output), getattr(run.config.data, "target", "en"))

    def apply(self, run: Run, text: str) -> str:
        """One text, typed in."""
        data = run.config.data
        words = tokenize(text, getattr(data, "source", "en"), **word_rules(data))
        words = words[: getattr(data, "document_words", None)]
        (output,) = translate(run.model, [run.corpus.encode(words)], run.config.decode, run.device)
        return self.as_text(run, output)

    def references(self, run: Run) -> list[str]:
        """The test set's targets as they are scored against."""
        fold = run.config.data.lowercase
        return [target.lower() if fold else target for _, target in run.corpus.test.text]

    def _examples(self, run: Run, count: int, columns: list[str]) -> pd.DataFrame:
        rows = [(*pair, line) for pair, line in zip(run.corpus.test.text, self.outputs(run), strict=True)][:count]
        return pd.DataFrame(rows, columns=columns)


class Translation(Seq2Seq):
    """Machine translation, scored by BLEU and chrF."""

    Data = TranslationData
    budget = ("target",)

    def check_data(
        self, config: TranslationData, at: tuple[str, ...] = ("data",), source: Source | None = None
    ) -> None:
        """Both languages must be there in every split, as files or in an archive."""
        sources.check_data(config, [], at, source)
        for key, language in (("source", "en"), ("target", "de")):
            known = {language} if config.files is None and config.name == "toy" else _languages(config, at, source)
            value = getattr(config, key)
            if known is not None and value not in known:
                raise mistake((*at, key), f"{value!r} is not known; there are: {', '.join(sorted(known))}", source)

    def load(self, config: TranslationData) -> Corpus:
        """See `Task`."""
        return load_translation(config)

    def epoch_scores(
        self, model: nn.Module, corpus: Corpus, config: RunConfig, device: torch.device | str
    ) -> dict[str, float]:
        """BLEU over words (0 to 100) of the first ``train.epoch_scores`` pairs of training and of validation, greedy.

        Every rank translates all of them, which takes no longer than if one did. Training text is kept as indices
        alone, so references are the vocabulary's words, and ``<unk>`` is one of them.
        """
        told, count = {}, config.train.epoch_scores
        for name, split in (("training", corpus.train), ("validation", corpus.valid)) if count else ():
            sources, targets = (side[:count] for side in (split.pairs.source, split.pairs.target))
            outputs = translate(model, sources, EPOCH_SEARCH, device)
            told[f"{name}_bleu"] = token_bleu(*([corpus.decode(line) for line in side] for side in (outputs, targets)))
        return told

    def scores(self, run: Run) -> dict[str, Score]:
        """BLEU and chrF by sacrebleu against the raw references; torchtext's BLEU over tokens as a cross-check."""
        return self.score_lines(run, self.outputs(run)) | _by_epoch(run)

    def references(self, run: Run) -> list[str]:
        """The test set's targets as they stand: sacrebleu folds case itself, and its signature says so."""
        return [target for _, target in run.corpus.test.text]

    def score_lines(self, run: Run, lines: list[str]) -> dict[str, Score]:
        """The same for translations from anywhere."""
        data, references, told = run.config.data, self.references(run), {}
        metrics = {"bleu": sacrebleu.BLEU(lowercase=data.lowercase), "chrf": sacrebleu.CHRF(lowercase=data.lowercase)}
        for name, metric in metrics.items():
            result = metric.corpus_score(lines, [references])
            joined = "" if data.tokenizer == "moses" else f"; words of {WORDS[data.tokenizer]}, joined by Moses rules"
            told[name] = score(result.score, "0 to 100", f"{metric.get_signature()}{joined}")
        # Case is folded before words are found, since translations have none that the rules could go by.
        rules = word_rules(data) | {"fold_late": False}
        tokens = [[tokenize(line, data.target, **rules) for line in side] for side in (lines, references)]
        case = "lower case" if data.lowercase else "case kept"
        signature = f"torchtext 0.6.0 bleu_score, {WORDS[data.tokenizer]} tokens, {case}, one reference"
        told["bleu_tokens"] = score(token_bleu(*tokens), "0 to 100", signature)
        return told

    def examples(self, run: Run, count: int) -> pd.DataFrame:
        """Source, reference, translation."""
        return self._examples(run, count, ["source", "reference", "translation"])


def _by_epoch(run: Run) -> dict[str, Score]:
    """Scores of the curve, where it has BLEUs: the best of the run, and how soon training text was learnt."""
    curve, told = run.record["curve"], {}
    if "training_bleu" not in curve[0]:
        return told
    words = f"of words by torchtext 0.6.0, greedy, of the first {run.config.train.epoch_scores:,} pairs"
    for name, split in (("training_bleu", "training"), ("validation_bleu", "validation")):
        best = max(point[name] for point in curve)
        told[name] = score(best, "0 to 100", f"BLEU {words} of {split}, after the best of {len(curve)} epochs")
    if len(curve) > 1:  # else there is no area
        area = imi([point["training_bleu"] for point in curve], ideal=100)
        signature = f"area under the curve of BLEU {words} of training, over that of 100 from epoch 1 to {len(curve)}"
        told["training_imi"] = score(area, "0 to 1", signature)
    return told


def _languages(config: TranslationData, at: tuple[str, ...], source: Source | None) -> set[str] | None:
    """The languages of which every split that is read has files; None where an archive's name does not tell."""
    known: set[str] | None = None
    roles = sources.roles_of_splits(config)
    for key, name in sources.read_splits(config).items():
        archived = "archive" in roles[name]
        told = _archived(config, key, name, at, source) if archived else set(roles[name])
        if told is not None:
            known = told if known is None else known & told
    return known


def _archived(
    config: TranslationData, key: str, name: str, at: tuple[str, ...], source: Source | None
) -> set[str] | None:
    if key == "valid":
        what = "is missing: the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
        raise mistake((*at, "valid_every"), what, source)
    if config.files is None:
        return languages_of(sources.fetch.load_registry()[config.name].splits[name].files["archive"])
    told = config.files[name]
    if len(told) > 1 or not isinstance(told["archive"], str):
        what = f"found {', '.join(told)}, expected one archive and nothing else, or files of both languages"
        raise mistake((*at, "files", name), what, source)
    return languages_of(told["archive"])


class Summarisation(Seq2Seq):
    """Summarisation, scored by ROUGE. One vocabulary for documents and summaries, two embeddings."""

    Data = SummarisationData
    budget = ("source", "target")
    curves_caption = Seq2Seq.curves_caption.replace("target words", "the summaries' words")

    def check_data(
        self, config: SummarisationData, at: tuple[str, ...] = ("data",), source: Source | None = None
    ) -> None:
        """JSON lines, or the public archive."""
        sources.check_data(config, ["examples|archive"], at, source)

    def load(self, config: SummarisationData) -> Corpus:
        """See `Task`."""
        return load_summarisation(config)

    def scores(self, run: Run) -> dict[str, Score]:
        """ROUGE-1, -2, -L and -Lsum by rouge-score against the whole reference summaries."""
        return self.score_lines(run, self.outputs(run))

    def score_lines(self, run: Run, lines: list[str]) -> dict[str, Score]:
        """The same for summaries from anywhere."""
        return rouge(lines, self.references(run))

    def examples(self, run: Run, count: int) -> pd.DataFrame:
        """Document, reference, summary."""
        return self._examples(run, count, ["document", "reference", "summary"])
