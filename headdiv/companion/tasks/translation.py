"""Machine translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from headdiv.companion.data.corpora.seq2seq import Corpus, load_further_test, load_translation, word_rules
from headdiv.companion.data.data_config import TranslationData
from headdiv.companion.data.tokenization.words import detokenize, tokenize
from headdiv.companion.models.decoding import translate
from headdiv.companion.tasks import bleu
from headdiv.companion.tasks.base import Run, Score, score
from headdiv.companion.tasks.counts import counts_path, write_counts
from headdiv.companion.tasks.imi import imi
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.companion.tasks.seq2seq import Seq2Seq
from headdiv.companion.tasks.specs import TRANSLATION
from headdiv.companion.tasks.unknown import scored_references, scored_text
from headdiv.core import manifest
from headdiv.core.files import short_hash
from headdiv.nn.sizes import DecodeConfig

# After an epoch; not the run's own search, which may be another for the same training.
EPOCH_SEARCH = DecodeConfig(beam=1, batch_sentences=128)
TOKENIZERS = {"moses": "Moses", "spacy": "spaCy", "lossless": "lossless"}


class Translation(Seq2Seq):
    """Machine translation, scored by BLEU and chrF."""

    spec = TRANSLATION

    def load(self, config: TranslationData) -> Corpus:
        """See `Task`."""
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
        for name, count in self._scored_pairs(corpus, config).items() if config.train.epoch_scores else ():
            pairs = (corpus.train if name == "training" else corpus.valid).pairs
            sources, targets = (side[:count] for side in (pairs.source, pairs.target))
            outputs = translate(model, sources, EPOCH_SEARCH, device)
            scores[f"{name}_bleu"] = bleu.token_bleu(
                *([corpus.decode(line) for line in side] for side in (outputs, targets))
            )
        return scores

    def _scored_pairs(self, corpus: Corpus, config: RunConfig) -> dict[str, int]:
        """How many of the first pairs of training and of validation are scored after an epoch."""
        there = {"training": len(self._learnt(corpus.train, config)), "validation": len(corpus.valid.pairs)}
        return {name: min(config.train.epoch_scores, count) for name, count in there.items()}

    def scores(self, run: Run) -> dict[str, Score]:
        """BLEU and chrF by sacrebleu against the raw references; torchtext's BLEU over the model's own tokens."""
        lines, path = self.outputs(run), counts_path(self.outputs_file(run))
        if not manifest.whole(path, "they are counted again"):
            write_counts(path, self.sentence_counts(run, lines))
            manifest.note(path.parent, path.name)
        by_epoch = _by_epoch(run.record["curve"], self._scored_pairs(run.corpus, run.config))
        return self.score_lines(run, lines, self.tokens(run)) | by_epoch

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

    def reference_scores(self, data: TranslationData, corpus: Corpus) -> dict[str, Score]:
        """BLEU of the references, taken apart into words and joined again; below 100 a warning names such words."""
        rules = tuple(word_rules(data).items())
        return {"bleu_references": _references_joined(tuple(text for _, text in corpus.test.text), data.target, rules)}

    def score_lines(self, run: Run, lines: list[str], tokens: list[list[str]] | None = None) -> dict[str, Score]:
        """The same for translations from anywhere, with ``<unk>`` for unknown words.

        The BLEU of tokens is of ``tokens``; where they are left out, of those of the text.
        """
        data, references, words = run.config.data, self.references(run), TOKENIZERS[run.config.data.tokenizer]
        found = bleu.text_scores(lines, references, data.lowercase)
        joined = [f"words of {words}"] if data.tokenizer == "spacy" else []
        joined += ["references that were tokenised"] if data.tokenized else []
        for one in (found["bleu"], found["chrf"]):
            one["signature"] += "".join(f"; {what}, joined by Moses rules" for what in joined)
        found |= self.reference_scores(data, run.corpus)
        found["bleu"]["signature"] += f"; references joined again: {found['bleu_references']['value']:.2f}"
        rules = word_rules(data)
        if not tokens:  # case is folded before words are found, since translations have none that the rules could go by
            rules |= {"fold_late": False}
        expected = [tokenize(line, data.target, **rules) for line in scored_references(references)]
        own = "the model's own" if tokens else "of the joined text"
        tokens = tokens or [tokenize(line, data.target, **rules) for line in scored_text(lines)]
        case = "lower case" if data.lowercase else "case kept"
        signature = f"torchtext 0.6.0 bleu_score, {words} tokens, {own}, {case}, one reference"
        found["bleu_tokens"] = score(bleu.token_bleu(tokens, expected), "0 to 100", signature)
        return found


@lru_cache  # all runs of an experiment have one test set
def _references_joined(references: tuple[str, ...], language: str, rules: tuple[tuple[str, Any], ...]) -> Score:
    options = dict(rules)
    words = (tokenize(line, language, **options) for line in references)
    joined = [detokenize(line, language, tokenizer=options["tokenizer"]) for line in words]
    return bleu.round_trip(joined, references, options["lowercase"])


def _by_epoch(curve: Sequence[Mapping[str, Any]], pairs: Mapping[str, int]) -> dict[str, Score]:
    """Scores of a curve, where it has BLEUs: the best of the run, and how soon training text was learnt.

    ``pairs``: how many were scored, by split.
    """
    found = {}
    if "training_bleu" not in curve[0]:
        return found
    words = {
        split: f"of words by torchtext 0.6.0, greedy, of the first {count:,} pairs of {split}"
        for split, count in pairs.items()
    }
    for split, what in words.items():
        best = max(point[f"{split}_bleu"] for point in curve)
        found[f"{split}_bleu"] = score(best, "0 to 100", f"BLEU {what}, after the best of {len(curve)} epochs")
    if len(curve) > 1:  # else there is no area
        area = imi([point["training_bleu"] for point in curve], ideal=100)
        signature = f"area under the curve of BLEU {words['training']}, over that of 100 from epoch 1 to {len(curve)}"
        found["training_imi"] = score(area, "0 to 1", signature)
    return found
