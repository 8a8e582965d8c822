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
from headdiv.companion.tasks.base import MainScore, Run, Score, score
from headdiv.companion.tasks.imi import imi
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.core.files import short_hash
from headdiv.core.settings import Distinct, Place, Source, config_error, hash_neutral, refuse_unread

# After an epoch; not the run's own search, which may be another for the same training.
EPOCH_SEARCH = DecodeConfig(beam=1, batch_sentences=128)
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
        """Both languages must be there in every split, as files or in an archive; further test sets likewise."""
        super().check_data(config, at, source)
        if config.is_toy:
            why = "generated text is English and German as it is written, and has no other splits"
            refuse_unread(config, ("source", "target", "tokenized", "more_tests"), why, at, source)
            return
        languages, roles = (config.source, config.target), cache.roles_of_splits(config)
        for key, name in config.read_splits.items():
            if "archive" in roles[name]:
                if key == "valid":
                    what = "the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
                    raise config_error((*at, "valid_every"), f"is missing: {what}", source)
                continue  # its reader names the members that it lacks
            for side, language in zip(("source", "target"), languages, strict=True):
                if language not in roles[name]:
                    what = f"{language!r} is not known; there are: {', '.join(sorted(roles[name]))}"
                    raise config_error((*at, side), what, source)
        for number, name in enumerate(config.more_tests):
            what = ""
            if name not in roles:
                what = f"{name!r} is not known; there are: {', '.join(sorted(roles))}"
            elif "archive" not in roles[name] and not {*languages} <= {*roles[name]}:
                what = f"{name!r} has no file for one of the languages; found {', '.join(roles[name])}"
            if what:
                raise config_error((*at, "more_tests", number), what, source)

    def check_model(
        self, model: ModelConfig, data: TranslationData, at: Place = ("model",), source: Source | None = None
    ) -> None:
        """One embedding of both sides needs one vocabulary."""
        if model.tied and not data.joint_vocabulary:
            what = "source and target have a vocabulary each; expected data.joint_vocabulary: true"
            raise config_error((*at, "tied"), f"found {model.tied!r}, but {what}", source)

    def load(self, config: TranslationData) -> Corpus:
        return load_translation(config)

    def epoch_scores(
        self, model: nn.Module, corpus: Corpus, config: RunConfig, device: torch.device | str
    ) -> dict[str, float]:
        """BLEU over words (0 to 100) of the first ``train.epoch_scores`` pairs of training and of validation, greedy.

        Of training only pairs that are learnt from count, see ``train.share``.
        Every rank translates all of them, which takes no longer than if one did. Training text is kept as indices
        alone, so references are the vocabulary's words, and ``<unk>`` is one of them.
        """
        scores = {}
        for name, count in self._scored_pairs(corpus, config).items():
            pairs = (corpus.train if name == "training" else corpus.valid).pairs
            outputs = translate(model, pairs.source[:count], EPOCH_SEARCH, device)
            words, references = ([corpus.decode(line) for line in side] for side in (outputs, pairs.target[:count]))
            scores[f"{name}_bleu"] = bleu.token_bleu(words, references)
        return scores

    def _scored_pairs(self, corpus: Corpus, config: RunConfig) -> dict[str, int]:
        """How many of the first pairs of training and of validation are scored after an epoch; {} if none are."""
        if not config.train.epoch_scores:
            return {}
        there = {"training": len(self.learnt(corpus.train, config)), "validation": len(corpus.valid.pairs)}
        return {name: min(config.train.epoch_scores, count) for name, count in there.items()}

    def scores(self, run: Run) -> dict[str, Score]:
        """BLEU and chrF by sacrebleu against the raw references; torchtext's BLEU over the model's own tokens."""
        searched = self.searched(run)
        by_epoch = _by_epoch(run.record["curve"], self._scored_pairs(run.corpus, run.config))
        return self.score_lines(run, searched["test"], searched["tokens"]) | by_epoch

    def sentence_counts(self, run: Run, lines: list[str]) -> np.ndarray:
        """Matching n-grams, all n-grams and lengths, (S, 10)."""
        return bleu.sentence_counts(lines, self.references(run), run.config.data.lowercase)

    def further_tests(self, run: Run) -> dict[str, Run]:
        """Those of ``data.more_tests``; a folder belongs to a set's content, which the run's name does not say."""
        runs = {}
        for name in run.config.data.more_tests:
            test = load_further_test(run.config.data, name, run.corpus)
            folder = run.folder / f"{name}-{short_hash(test.text)}"
            runs[name] = replace(run, folder=folder, corpus=replace(run.corpus, test=test))
        return runs

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """The same for translations from anywhere, with ``<unk>`` for unknown words.

        References stand as they are, since sacrebleu folds case itself. The BLEU of tokens is of ``tokens``; where they
        are left out, of those of the text.
        """
        data, references, words = run.config.data, self.references(run), TOKENIZERS[run.config.data.tokenizer]
        scores = bleu.text_scores(lines, references, data.lowercase)
        joined = f"; words of {words}, joined by Moses rules" if data.tokenizer == "spacy" else ""
        joined += "; references that were tokenised, joined by Moses rules" if data.tokenized else ""
        scores["bleu"]["signature"] += joined
        scores["chrf"]["signature"] += joined
        rules = data.word_rules
        scores["bleu_references"] = _references_joined(tuple(references), data.target, tuple(rules.items()))
        scores["bleu"]["signature"] += f"; references joined again: {scores['bleu_references']['value']:.2f}"
        if not tokens:  # case is folded before words are found, since translations have none that the rules could go by
            rules |= {"fold_late": False}
        expected = [tokenize(line, data.target, **rules) for line in bleu.scored_references(references)]
        whose = "the model's own" if tokens else "of the joined text"
        tokens = tokens or [tokenize(line, data.target, **rules) for line in bleu.scored_text(lines)]
        case = "lower case" if data.lowercase else "case kept"
        signature = f"torchtext 0.6.0 bleu_score, {words} tokens, {whose}, {case}, one reference"
        scores["bleu_tokens"] = score(bleu.token_bleu(tokens, expected), "0 to 100", signature)
        return scores


@lru_cache  # all runs of an experiment have one test set
def _references_joined(references: tuple[str, ...], language: str, rules: tuple[tuple[str, Any], ...]) -> Score:
    """BLEU of the references, taken apart into words and joined again; below 100 a warning names such words."""
    options = dict(rules)
    words = (tokenize(line, language, **options) for line in references)
    joined = [detokenize(line, language, tokenizer=options["tokenizer"]) for line in words]
    return bleu.round_trip(joined, references, options["lowercase"])


def _by_epoch(curve: Sequence[Mapping[str, Any]], pairs: Mapping[str, int]) -> dict[str, Score]:
    """The best BLEUs of a curve, and how soon training text was learnt; ``pairs``: how many were scored, by split."""
    scores = {}
    for split, count in pairs.items():
        what = f"BLEU of words by torchtext 0.6.0, greedy, of the first {count:,} pairs of {split}"
        best = max(point[f"{split}_bleu"] for point in curve)
        scores[f"{split}_bleu"] = score(best, "0 to 100", f"{what}, after the best of {len(curve)} epochs")
    if pairs and len(curve) > 1:  # else there is no area
        area = imi([point["training_bleu"] for point in curve], ideal=100)
        what = f"BLEU of words by torchtext 0.6.0, greedy, of the first {pairs['training']:,} pairs of training"
        signature = f"area under the curve of {what}, over that of 100 from epoch 1 to {len(curve)}"
        scores["training_imi"] = score(area, "0 to 1", signature)
    return scores
