"""Machine translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn

from headdiv.companion.data import cache
from headdiv.companion.data.corpora.seq2seq import Corpus, load_further_test, load_translation
from headdiv.companion.data.data_config import WordsConfig
from headdiv.companion.data.tokenization.words import detokenize, tokenize
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.sizes import DecodeConfig, ModelConfig
from headdiv.companion.tasks import bleu
from headdiv.companion.tasks.base import OF_PARAMETERS, MainScore, Run, Score, score
from headdiv.companion.tasks.imi import imi
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.core.files import short_hash
from headdiv.core.settings import Distinct, Place, Source, config_error, hash_neutral, refuse_unread

# Used after each epoch in place of the run's own search, on which training must not depend.
EPOCH_SEARCH = DecodeConfig(beam=1, batch_sentences=128)
TAKEN = {*OF_PARAMETERS, "references", "tokens"}  # ends of other scores' names: "bleu_best", "bleu_tokens"
TOKENIZERS = {"moses": "Moses", "spacy": "spaCy", "lossless": "lossless"}


SplitName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # it becomes part of files' names


class TranslationData(WordsConfig):
    """Parallel text: files of each language, or an archive with both."""

    scored_alone = ("more_tests",)

    files: dict[str, dict[str, str | list[str]]] | None = Field(
        None,
        description="by split and language, a file or several in their order: *.xml is a TED test set, train.tags.* "
        "tagged TED text, all else has one sentence a line; or by split {archive: de-en.tgz}, in WIT³'s layout",
    )
    source: str = Field("en", description="language translated from")
    target: str = Field("de", description="language translated into")
    split_dashes: bool = Field(True, description="Moses rules split words at dashes (a-b: a @-@ b)")
    max_words: int | None = Field(
        None, ge=1, description="training pairs with more words on a side, or none, are left out"
    )
    max_ratio: float | None = Field(None, ge=1, description="most words of one side per word of the other")
    valid_every: int | None = Field(
        None, ge=2, description="every n-th remaining training pair is used for validation; null: a split of its own"
    )
    merges: int | None = Field(
        None,
        ge=1,
        description="of a byte-pair encoding of both languages' words; case is then folded after Moses rules, as is "
        "usual with it, not before; null: whole words",
    )

    tokenized: bool = hash_neutral(
        False,
        description="the files' text is tokenised already by Moses' scripts: its words are joined again and entities "
        "(&apos;) undone before anything else",
    )
    joint_vocabulary: bool = hash_neutral(
        False, description="one vocabulary of both languages, each word counted on both sides; model.tied: all needs it"
    )
    more_tests: Distinct[SplitName] = hash_neutral(
        [], description="further test splits that a finished run is scored on; training and hash do not depend on them"
    )

    @property
    def cleans(self) -> bool:
        """Whether training pairs are left out."""
        return self.max_words is not None or self.max_ratio is not None

    @property
    def read_splits(self) -> dict[str, str]:
        """Without validation where `valid_every` takes it from the training pairs."""
        return {key: name for key, name in self.splits.items() if key != "valid" or self.valid_every is None}

    @property
    def word_rules(self) -> dict[str, Any]:
        return super().word_rules | {"split_dashes": self.split_dashes, "fold_late": self.merges is not None}

    @property
    def selects(self) -> bool:
        """Whether training pairs are left out, or taken for validation."""
        return self.cleans or self.valid_every is not None

    @model_validator(mode="after")
    def _dashes_are_of_moses_rules(self) -> TranslationData:
        if self.tokenizer != "moses" and not self.split_dashes:
            raise ValueError(f"split_dashes: it is a choice of Moses rules, and the tokenizer is {self.tokenizer!r}")
        return self


class Translation(Seq2Seq):
    """Machine translation, scored by BLEU and chrF."""

    name = "translation"
    Data = TranslationData
    roles, ignores = (), ()
    main_score = MainScore("bleu", "BLEU")
    test_score_name = "bleu"
    also_compared = ("chrf",)
    score_labels: ClassVar = {
        "chrf": "chrF",
        "bleu_tokens": "BLEU of tokens",
        "bleu_references": "BLEU of the references joined again",
        "training_bleu": "Training BLEU",
        "validation_bleu": "Validation BLEU",
        "training_imi": "Training IMI",
    }
    curves_caption = (
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of "
        "target words that are likeliest) after each epoch; dashed: what word frequencies alone give."
    )
    example_noun = "pairs"
    batch_unit = "target tokens"
    sides = ("source", "target")
    output = "translation"

    def check_data(self, config: TranslationData, at: Place = ("data",), source: Source | None = None) -> None:
        """Every split needs both languages, as files or in an archive; so do further test sets."""
        super().check_data(config, at, source)
        if config.is_toy:
            reason = "generated text is English and German as it is written, and has no other splits"
            refuse_unread(config, ("source", "target", "tokenized", "more_tests"), reason, at, source)
            return
        if config.valid_every is not None:
            refuse_unread(config, ("valid",), "valid_every takes validation from the training pairs", at, source)
        languages, roles = (config.source, config.target), cache.files_of_splits(config)
        for key, name in config.read_splits.items():
            if "archive" in roles[name]:
                if key == "valid":
                    reason = (
                        "the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
                    )
                    raise config_error((*at, "valid_every"), f"is missing: {reason}", source)
                continue  # its reader names missing members
            for side, language in zip(("source", "target"), languages, strict=True):
                if language not in roles[name]:
                    message = f"{language!r} is not known; there are: {', '.join(sorted(roles[name]))}"
                    raise config_error((*at, side), message, source)
        for number, name in enumerate(config.more_tests):
            place = (*at, "more_tests", number)
            if name not in roles:
                message = f"{name!r} is not known; there are: {', '.join(sorted(roles))}"
                raise config_error(place, message, source)
            if name in TAKEN:
                message = f"found {name!r}, but bleu_{name} is another score's name; expected another name of the split"
                raise config_error(place, message, source)
            if "archive" not in roles[name] and not {*languages} <= {*roles[name]}:
                message = f"{name!r} has no file for one of the languages; found {', '.join(roles[name])}"
                raise config_error(place, message, source)

    def check_model(self, model: ModelConfig, data: TranslationData) -> None:
        """A tied embedding of both sides needs a joint vocabulary."""
        if model.tied and not data.joint_vocabulary:
            reason = "source and target have a vocabulary each; expected data.joint_vocabulary: true"
            raise config_error(("model", "tied"), f"found {model.tied!r}, but {reason}")

    def load(self, config: TranslationData) -> Corpus:
        return load_translation(config)

    def epoch_scores(
        self, model: nn.Module, corpus: Corpus, config: RunConfig, device: torch.device | str
    ) -> dict[str, float]:
        """BLEU over words (0 to 100) of the first ``train.epoch_scores`` pairs of training and of validation, greedy.

        The training pairs are those of ``train.share``. Every rank translates all pairs, which takes no longer than if
        one did. Training text is stored only as indices, so references are the vocabulary's words, and ``<unk>`` is one
        of them.
        """
        scores = {}
        for name, count in self._scored_counts(corpus, config).items():
            pairs = (corpus.train if name == "training" else corpus.valid).pairs
            outputs = translate(model, pairs.source[:count], EPOCH_SEARCH, device)
            words, references = ([corpus.decode(line) for line in side] for side in (outputs, pairs.target[:count]))
            scores[f"{name}_bleu"] = bleu.token_bleu(words, references)
        return scores

    def _scored_counts(self, corpus: Corpus, config: RunConfig) -> dict[str, int]:
        """How many of the first pairs of training and of validation are scored after an epoch; {} if none are."""
        if not config.train.epoch_scores:
            return {}
        sizes = {"training": len(self.learnt(corpus.train, config)), "validation": len(corpus.valid.pairs)}
        return {name: min(config.train.epoch_scores, size) for name, size in sizes.items()}

    def scores(self, run: Run) -> dict[str, Score]:
        """BLEU and chrF by sacrebleu against the raw references; torchtext's BLEU over the model's own tokens."""
        searched = self.searched(run)
        curve_scores = _curve_scores(run.record["curve"], self._scored_counts(run.corpus, run.config))
        return self.score_lines(run, searched["test"], searched["tokens"]) | curve_scores

    def sentence_counts(self, run: Run, lines: list[str]) -> np.ndarray:
        """Matching n-grams, all n-grams and lengths, (S, 10)."""
        return bleu.sentence_counts(lines, self.references(run), run.config.data.lowercase)

    def further_tests(self, run: Run) -> dict[str, Run]:
        """The test sets of ``data.more_tests``; a folder's name has the hash of the set, which the run's name lacks."""
        runs = {}
        for name in run.config.data.more_tests:
            test = load_further_test(run.config.data, name, run.corpus)
            folder = run.folder / f"{name}-{short_hash(test.text)}"
            runs[name] = replace(run, folder=folder, corpus=replace(run.corpus, test=test))
        return runs

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """BLEU, chrF and the BLEU of tokens of any translations, with ``<unk>`` for unknown words.

        References are not lower-cased, since sacrebleu folds case itself. The BLEU of tokens is that of ``tokens``, by
        default of the lines' own.
        """
        data, references, words = run.config.data, self.references(run), TOKENIZERS[run.config.data.tokenizer]
        scores = bleu.text_scores(lines, references, data.lowercase)
        for name in ("bleu", "chrf"):
            if data.tokenizer == "spacy":
                scores[name]["signature"] += f"; words of {words}, joined by Moses rules"
            if data.tokenized:
                scores[name]["signature"] += "; references that were tokenised, joined by Moses rules"
        rules = data.word_rules
        scores["bleu_references"] = _reference_round_trip(tuple(references), data.target, tuple(rules.items()))
        scores["bleu"]["signature"] += f"; references joined again: {scores['bleu_references']['value']:.2f}"
        if not tokens:  # case is folded first, since translations have no capitals that Moses rules could use
            rules |= {"fold_late": False}
        expected = [tokenize(line, data.target, **rules) for line in bleu.scored_references(references)]
        origin = "the model's own" if tokens else "of the joined text"
        tokens = tokens or [tokenize(line, data.target, **rules) for line in bleu.scored_text(lines)]
        case = "lower case" if data.lowercase else "case kept"
        signature = f"torchtext 0.6.0 bleu_score, {words} tokens, {origin}, {case}, one reference"
        scores["bleu_tokens"] = score(bleu.token_bleu(tokens, expected), "0 to 100", signature)
        return scores


@lru_cache  # all runs of an experiment have one test set
def _reference_round_trip(references: tuple[str, ...], language: str, rules: tuple[tuple[str, Any], ...]) -> Score:
    """BLEU of the references, tokenised and joined again; below 100 a warning says so."""
    options = dict(rules)
    words = (tokenize(line, language, **options) for line in references)
    joined = [detokenize(line, language, tokenizer=options["tokenizer"]) for line in words]
    return bleu.round_trip(joined, references, options["lowercase"])


def _curve_scores(curve: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> dict[str, Score]:
    """The best BLEUs of a curve, and how soon training text was learnt; ``counts``: how many pairs were scored."""
    metrics = {
        split: f"BLEU of words by torchtext 0.6.0, greedy, of the first {count:,} pairs of {split}"
        for split, count in counts.items()
    }
    scores = {}
    for split, metric in metrics.items():
        best = max(point[f"{split}_bleu"] for point in curve)
        scores[f"{split}_bleu"] = score(best, "0 to 100", f"{metric}, after the best of {len(curve)} epochs")
    if metrics and len(curve) > 1:  # else there is no area
        area = imi([point["training_bleu"] for point in curve], ideal=100)
        signature = f"area under the curve of {metrics['training']}, over that of 100 from epoch 1 to {len(curve)}"
        scores["training_imi"] = score(area, "0 to 1", signature)
    return scores
