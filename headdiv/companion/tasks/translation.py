"""Machine translation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from headdiv.companion.data import cache
from headdiv.companion.data.corpora.seq2seq import Corpus, load_further_test, load_translation, word_rules
from headdiv.companion.data.data_config import TranslationData
from headdiv.companion.data.readers.ted import languages_of
from headdiv.companion.data.tokenization.torchtext06 import token_bleu
from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.tasks import bleu
from headdiv.companion.tasks.base import MainScore, Run, Score, score
from headdiv.companion.tasks.counts import counts_path, write_counts
from headdiv.companion.tasks.imi import imi
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.companion.tasks.unknown import scored_references, scored_text
from headdiv.core import manifest
from headdiv.core.files import short_hash
from headdiv.core.settings import Source, config_error, refuse_unread
from headdiv.nn.decoding import translate
from headdiv.nn.sizes import DecodeConfig, ModelConfig

# After an epoch; not the run's own search, which may be another for the same training.
EPOCH_SEARCH = DecodeConfig(beam=1, batch_sentences=128)
TOKENIZERS = {"moses": "Moses", "spacy": "spaCy"}


class Translation(Seq2Seq):
    """Machine translation, scored by BLEU and chrF."""

    name = "translation"
    Data = TranslationData
    ignores = ()
    main_score, also_compared = MainScore("bleu", "BLEU"), ("chrf",)
    score_labels = {  # noqa: RUF012 (a constant)
        "chrf": "chrF",
        "bleu_tokens": "BLEU of tokens",
        "training_bleu": "Training BLEU",
        "validation_bleu": "Validation BLEU",
        "training_imi": "Training IMI",
    }
    curves_caption = (
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of target "
        "words that are the likeliest) after each epoch; dashed: what the words' frequencies alone give."
    )
    example_noun, batch_unit = "pairs", "target tokens"
    sides = texts = ("source", "target")
    output = "translation"

    def check_data(
        self, config: TranslationData, at: tuple[str, ...] = ("data",), source: Source | None = None
    ) -> None:
        """Both languages must be there in every split, as files or in an archive."""
        cache.check_data(config, [], at, source)
        for key, language in (("source", "en"), ("target", "de")):
            known = {language} if config.files is None and config.name == "toy" else _languages(config, at, source)
            value = getattr(config, key)
            if known is not None and value not in known:
                raise config_error((*at, key), f"{value!r} is not known; there are: {', '.join(sorted(known))}", source)

        _check_more_tests(config, at, source)

    def check_model(
        self, model: ModelConfig, data: TranslationData, at: tuple[str, ...] = ("model",), source: Source | None = None
    ) -> None:
        """One embedding of both sides needs one vocabulary."""
        if model.tied and not data.joint_vocabulary:
            what = "source and target have a vocabulary each; expected data.joint_vocabulary: true"
            raise config_error((*at, "tied"), f"found {model.tied!r}, but {what}", source)

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
        scores, count = {}, config.train.epoch_scores
        for name, split in (("training", corpus.train), ("validation", corpus.valid)) if count else ():
            sources, targets = (side[:count] for side in (split.pairs.source, split.pairs.target))
            outputs = translate(model, sources, EPOCH_SEARCH, device)
            scores[f"{name}_bleu"] = token_bleu(
                *([corpus.decode(line) for line in side] for side in (outputs, targets))
            )
        return scores

    def scores(self, run: Run) -> dict[str, Score]:
        """BLEU and chrF by sacrebleu against the raw references; torchtext's BLEU over the model's own tokens."""
        lines, path = self.outputs(run), counts_path(self.outputs_file(run))
        if not manifest.whole(path, "they are counted again"):
            write_counts(path, self.sentence_counts(run, lines))
            manifest.note(path.parent, path.name)
        return self.score_lines(run, lines, self.tokens(run)) | _by_epoch(run)

    def sentence_counts(self, run: Run, lines: list[str]) -> np.ndarray:
        """Matching n-grams, all n-grams and lengths, (S, 10)."""
        return bleu.sentence_counts(lines, self.references(run), run.config.data.lowercase)

    def further_tests(self, run: Run) -> dict[str, Run]:
        """Those of ``data.more_tests``; a folder belongs to a set's content, which the run's name does not say."""
        found = {}
        for name in run.config.data.more_tests:
            test = load_further_test(run.config.data, name, run.corpus)
            folder = run.folder / f"{name}-{short_hash(test.text)}"
            found[name] = replace(run, folder=folder, corpus=replace(run.corpus, test=test))
        return found

    def references(self, run: Run) -> list[str]:
        """The test set's targets as they stand: sacrebleu folds case itself, and its signature says so."""
        return [target for _, target in run.corpus.test.text]

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """The same for translations from anywhere, with ``<unk>`` for unknown words.

        The BLEU of tokens is of ``tokens``; where they are left out, of those of the text.
        """
        data, references, words = run.config.data, self.references(run), TOKENIZERS[run.config.data.tokenizer]
        found = bleu.text_scores(lines, references, data.lowercase)
        if data.tokenizer != "moses":
            for one in (found["bleu"], found["chrf"]):
                one["signature"] += f"; words of {words}, joined by Moses rules"
        # Case is folded before words are found, since translations have none that the rules could go by.
        rules = word_rules(data) | {"fold_late": False}
        expected = [tokenize(line, data.target, **rules) for line in scored_references(references)]
        own = "the model's own" if tokens else "of the joined text"
        tokens = tokens or [tokenize(line, data.target, **rules) for line in scored_text(lines)]
        case = "lower case" if data.lowercase else "case kept"
        signature = f"torchtext 0.6.0 bleu_score, {words} tokens, {own}, {case}, one reference"
        found["bleu_tokens"] = score(token_bleu(tokens, expected), "0 to 100", signature)
        return found


def _by_epoch(run: Run) -> dict[str, Score]:
    """Scores of the curve, where it has BLEUs: the best of the run, and how soon training text was learnt."""
    curve, found = run.record["curve"], {}
    if "training_bleu" not in curve[0]:
        return found
    words = f"of words by torchtext 0.6.0, greedy, of the first {run.config.train.epoch_scores:,} pairs"
    for name, split in (("training_bleu", "training"), ("validation_bleu", "validation")):
        best = max(point[name] for point in curve)
        found[name] = score(best, "0 to 100", f"BLEU {words} of {split}, after the best of {len(curve)} epochs")
    if len(curve) > 1:  # else there is no area
        area = imi([point["training_bleu"] for point in curve], ideal=100)
        signature = f"area under the curve of BLEU {words} of training, over that of 100 from epoch 1 to {len(curve)}"
        found["training_imi"] = score(area, "0 to 1", signature)
    return found


def _check_more_tests(config: TranslationData, at: tuple[str, ...], source: Source | None) -> None:
    """Further test sets must be there, in both languages or as an archive, and must not be the test set."""
    if config.is_toy:
        refuse_unread(config, ("more_tests",), "generated text has no other splits", at, source)
        return
    roles = cache.roles_of_splits(config)
    for position, name in enumerate(config.more_tests):
        place = (*at, "more_tests", position)
        if name not in roles:
            raise config_error(place, f"{name!r} is not known; there are: {', '.join(sorted(roles))}", source)
        if name in (config.test, "best"):
            taken = "is data.test, which is scored anyway" if name == config.test else "is the best epoch's name"
            raise config_error(place, f"{name!r} {taken}; expected another split", source)
        for language in (config.source, config.target):
            if not {"archive", language} & set(roles[name]):
                raise config_error(
                    place, f"{name!r} has no file for {language!r}; found {', '.join(roles[name])}", source
                )


def _languages(config: TranslationData, at: tuple[str, ...], source: Source | None) -> set[str] | None:
    """The languages of which every split that is read has files; None where an archive's name does not say."""
    known: set[str] | None = None
    roles = cache.roles_of_splits(config)
    for key, name in config.read_splits.items():
        archived = "archive" in roles[name]
        found = _archived(config, key, name, at, source) if archived else set(roles[name])
        if found is not None:
            known = found if known is None else known & found
    return known


def _archived(
    config: TranslationData, key: str, name: str, at: tuple[str, ...], source: Source | None
) -> set[str] | None:
    if key == "valid":
        what = "is missing: the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
        raise config_error((*at, "valid_every"), what, source)
    if config.files is None:
        return languages_of(cache.public_sets.load_registry()[config.name].splits[name].files["archive"])
    files = config.files[name]
    if len(files) > 1 or not isinstance(files["archive"], str):
        what = f"found {', '.join(files)}, expected one archive and nothing else, or files of both languages"
        raise config_error((*at, "files", name), what, source)
    return languages_of(files["archive"])
