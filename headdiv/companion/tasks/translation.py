"""Machine translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from headdiv.companion.data import cache, public_sets
from headdiv.companion.data.corpora.seq2seq import Corpus, load_further_test, load_translation, word_rules
from headdiv.companion.data.data_config import TranslationData
from headdiv.companion.data.readers.parallel import languages_of
from headdiv.companion.data.tokenization.words import detokenize, tokenize
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.sizes import DecodeConfig, ModelConfig
from headdiv.companion.tasks import bleu
from headdiv.companion.tasks.base import MainScore, Run, Score, score
from headdiv.companion.tasks.imi import imi
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.core.files import short_hash
from headdiv.core.settings import Place, Source, config_error, refuse_unread

# After an epoch; not the run's own search, which may be another for the same training.
EPOCH_SEARCH = DecodeConfig(beam=1, batch_sentences=128)
TOKENIZERS = {"moses": "Moses", "spacy": "spaCy", "lossless": "lossless"}


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
        for key, language in (("source", "en"), ("target", "de")):
            known = {language} if config.is_toy else _languages(config, at, source)
            value = getattr(config, key)
            if known is not None and value not in known:
                raise config_error((*at, key), f"{value!r} is not known; there are: {', '.join(sorted(known))}", source)
        _check_more_tests(config, at, source)

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

    def reference_scores(self, data: TranslationData, corpus: Corpus) -> dict[str, Score]:
        """BLEU of the references, taken apart into words and joined again; below 100 a warning names such words."""
        rules = tuple(word_rules(data).items())
        return {"bleu_references": _references_joined(tuple(text for _, text in corpus.test.text), data.target, rules)}

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
        scores |= self.reference_scores(data, run.corpus)
        scores["bleu"]["signature"] += f"; references joined again: {scores['bleu_references']['value']:.2f}"
        rules = word_rules(data)
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


def _check_more_tests(config: TranslationData, at: Place, source: Source | None) -> None:
    """Further test sets must be there, in both languages or as an archive, and must not be the test set."""
    if config.is_toy:
        refuse_unread(config, ("more_tests",), "generated text has no other splits", at, source)
        refuse_unread(config, ("tokenized",), "generated text is as it is written", at, source)
        return
    roles = cache.roles_of_splits(config)
    for position, name in enumerate(config.more_tests):
        place = (*at, "more_tests", position)
        if name not in roles:
            raise config_error(place, f"{name!r} is not known; there are: {', '.join(sorted(roles))}", source)
        if name == config.test:
            raise config_error(place, f"{name!r} is data.test, which is scored anyway; expected another split", source)
        for language in (config.source, config.target):
            if not {"archive", language} & set(roles[name]):
                raise config_error(
                    place, f"{name!r} has no file for {language!r}; found {', '.join(roles[name])}", source
                )


def _languages(config: TranslationData, at: Place, source: Source | None) -> set[str] | None:
    """The languages of which every split that is read has files; None where an archive's name does not say."""
    known: set[str] | None = None
    roles = cache.roles_of_splits(config)
    for key, name in config.read_splits.items():
        archived = "archive" in roles[name]
        found = _archived(config, key, name, at, source) if archived else set(roles[name])
        if found is not None:
            known = found if known is None else known & found
    return known


def _archived(config: TranslationData, key: str, name: str, at: Place, source: Source | None) -> set[str] | None:
    if key == "valid":
        what = "is missing: the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
        raise config_error((*at, "valid_every"), what, source)
    if config.files is None:
        return languages_of(public_sets.load_registry()[config.name].splits[name].files["archive"])
    files = config.files[name]
    if len(files) > 1 or not isinstance(files["archive"], str):
        what = f"found {', '.join(files)}, expected one archive and nothing else, or files of both languages"
        raise config_error((*at, "files", name), what, source)
    return languages_of(files["archive"])
