"""BLEU and chrF by sacrebleu, what BLEU needs of each sentence, and the paired bootstrap over a test set."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import sacrebleu

from headdiv.companion.models.batching import UNKNOWN_WORD
from headdiv.companion.tasks.base import Score, score
from headdiv.core.errors import DataError

SAMPLES, SEED = 1000, 12345  # of the bootstrap, as in sacrebleu
# Replaces "<unk>" in translations when they are scored; SentencePiece writes it too. sacrebleu's tokenisers leave it
# whole, but split "<unk>" into three tokens, which lengthens translations and hides the brevity penalty.
UNKNOWN_MARK = "⁇"

log = logging.getLogger(__name__)


def scored_text(lines: Sequence[str]) -> list[str]:
    """Translations as they are scored: each unknown word is one symbol, which `scored_references` never holds."""
    return [line.replace(UNKNOWN_WORD, UNKNOWN_MARK) for line in lines]


def scored_references(lines: Sequence[str]) -> list[str]:
    """References as they are scored: ``⁇``, which would match an unknown word, becomes ``??``."""
    return [line.replace(UNKNOWN_MARK, "??") for line in lines]


def unknown_scores(lines: Sequence[str], total: int, what: str) -> dict[str, Score]:
    """How many unknown words these outputs have, and their share.

    Args:
        lines: outputs as text, with ``<unk>`` for unknown words.
        total: the number of all their words.
        what: the words that are counted, for the signature.
    """
    count = sum(line.count(UNKNOWN_WORD) for line in lines)
    return {
        "unknown_words": score(count, "words", f"{UNKNOWN_WORD} in the outputs"),
        "unknown_share": score(100 * count / total if total else 0.0, "%", f"{UNKNOWN_WORD} among {what}"),
    }


def text_scores(lines: Sequence[str], references: Sequence[str], lowercase: bool = False) -> dict[str, Score]:
    """BLEU and chrF by sacrebleu, with scores that tell whether BLEU can be trusted.

    Args:
        lines: translations as text, unknown words as ``<unk>``.
        references: one for each, as they are.
        lowercase: ignore case.

    Returns:
        bleu, chrf; length_ratio (length of the translations over that of the references, in sacrebleu's tokens),
        brevity_penalty (1: not too short), unknown_words (how many ``<unk>`` there are), unknown_share (of the
        translations' tokens, %).

    Raises:
        DataError: the numbers of translations and references differ.
    """
    if len(lines) != len(references):
        raise DataError(f"BLEU: found {len(lines)} translations and {len(references)} references, expected as many")
    texts = [scored_text(lines), [scored_references(references)]]
    bleu, chrf = sacrebleu.BLEU(lowercase=lowercase), sacrebleu.CHRF(lowercase=lowercase)
    bleu_score, chrf_score = bleu.corpus_score(*texts), chrf.corpus_score(*texts)
    bleu_signature = f"{bleu.get_signature()}; {UNKNOWN_WORD} as {UNKNOWN_MARK}"
    chrf_signature = f"{chrf.get_signature()}; {UNKNOWN_WORD} as {UNKNOWN_MARK}"
    return {
        "bleu": score(bleu_score.score, "0 to 100", bleu_signature),
        "chrf": score(chrf_score.score, "0 to 100", chrf_signature),
        "length_ratio": score(bleu_score.ratio, "ratio", f"of BLEU, {bleu_signature}: outputs over references"),
        "brevity_penalty": score(bleu_score.bp, "0 to 1", f"of BLEU, {bleu_signature}"),
    } | unknown_scores(lines, bleu_score.sys_len, "the outputs' tokens, as BLEU counts them")


def round_trip(joined: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """BLEU of references that were tokenised and joined again; a warning says so where it is below 100.

    Args:
        joined: the references, tokenised and joined again as outputs are.
        references: as they are.
        lowercase: ignore case.
    """
    metric = sacrebleu.BLEU(lowercase=lowercase)
    value = min(metric.corpus_score(joined, [references]).score, 100.0)
    if value < 100:
        log.warning(
            "references, tokenised and joined again as outputs are, have a BLEU of %.2f; "
            "data.tokenizer: lossless keeps text as it is",
            value,
        )
    return score(value, "0 to 100", f"{metric.get_signature()}; of the references, tokenised and joined again")


def sentence_counts(lines: Sequence[str], references: Sequence[str], lowercase: bool = False) -> np.ndarray:
    """What BLEU needs of each sentence; the sum over sentences gives the BLEU of all of them.

    Args:
        lines: translations, in the order of the references; unknown words as ``<unk>``.
        references: one for each sentence, as text.
        lowercase: ignore case.

    Returns:
        (S, 10): matching n-grams and all n-grams (n = 1 to 4), length of translation and of reference, in tokens.
    """
    metric = sacrebleu.BLEU(lowercase=lowercase)
    pairs = zip(scored_text(lines), scored_references(references), strict=True)
    scores = (metric.corpus_score([line], [[reference]]) for line, reference in pairs)
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores], dtype=int)


@dataclass(frozen=True)
class Bootstrap:
    """BLEU (0 to 100) of translations by several systems, each compared with the baseline."""

    baseline: float
    scores: dict[str, float]  # by system
    p_values: dict[str, float]  # by system: two-sided, that resampling alone makes so large a difference
    signature: str  # sacrebleu's, with number of samples and seed


def paired_bootstrap(baseline: np.ndarray, systems: Mapping[str, np.ndarray], lowercase: bool = False) -> Bootstrap:
    """Paired bootstrap (Koehn 2004) of sacrebleu's BLEU: how significant a difference is on this test set.

    Sentences are drawn with replacement `SAMPLES` times, the same for baseline and system and the same as sacrebleu
    draws. The p-value is the share of samples whose difference, minus the mean over all samples, is at least as large
    as the whole test set's, of either sign (one such sample is added). sacrebleu's own p-value drops the signs before
    it subtracts the mean: of clear differences it counts one side only, and of two equally good systems it finds one in
    nine different at 0.05. Variation between trainings is not included. Equal translations have the p-value 1.

    Args:
        baseline: `sentence_counts` of the baseline's translations, (S, 10).
        systems: those of the other systems, of as many sentences, by name.
        lowercase: whether case was ignored, for the signature.
    """
    sentences = len(baseline)
    counts = np.stack([baseline, *systems.values()], axis=1)  # (S, 1 + systems, 10)
    sums = _draw_counts(sentences, SAMPLES) @ counts.reshape(sentences, -1).astype(float)  # whole numbers: exact
    sampled = bleu_of(sums.reshape(SAMPLES, *counts.shape[1:])).T  # (1 + systems, samples)
    baseline_score, *system_scores = bleu_of(counts.sum(axis=0)).tolist()
    scores = dict(zip(systems, system_scores, strict=True))
    metric = sacrebleu.BLEU(lowercase=lowercase)
    metric.corpus_score(["one"], [["one"]])  # which gives it a signature
    signature = metric.get_signature()
    signature.update("bs", SAMPLES)
    signature.update("seed", SEED)
    p_values = {
        name: _p_value(value - baseline_score, samples - sampled[0])
        for (name, value), samples in zip(scores.items(), sampled[1:], strict=True)
    }
    return Bootstrap(baseline_score, scores, p_values, str(signature))


def token_bleu(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """BLEU-4 over given tokens, one reference each, 0 to 100: a check beside sacrebleu, which tokenises itself.

    It is torchtext's, whose development has ended: release 0.6.0 is the last in pure Python; later ones are compiled
    for one torch each. Nothing else in the project imports it. It joins tokens by spaces and splits them again, so a
    space in a token (spaCy takes the second of two spaces for a word) is replaced by another character.
    """
    from torchtext.data.metrics import bleu_score

    sides = hypotheses, references
    outputs, expected = ([[word.replace(" ", "\0") for word in words] for words in side] for side in sides)
    return 100 * float(bleu_score(outputs, [[words] for words in expected]))


@lru_cache(maxsize=1)  # all seeds of an experiment have one test set
def _draw_counts(sentences: int, samples: int) -> np.ndarray:
    """How often each sentence is drawn in each sample, (samples, S): its product with counts sums over the draws."""
    draws = np.random.default_rng(SEED).choice(sentences, size=(samples, sentences), replace=True)
    return np.stack([np.bincount(draw, minlength=sentences) for draw in draws]).astype(float)


def bleu_of(counts: np.ndarray) -> np.ndarray:
    """BLEU (0 to 100) of summed `sentence_counts`, (…, 10) -> (…): sacrebleu's ``compute_bleu``, vectorised.

    Smoothing is exponential: the k-th order without matches has 2⁻ᵏ matches.
    """
    matches, totals, length, reference = counts[..., :4], counts[..., 4:8], counts[..., 8], counts[..., 9]
    unmatched = matches == 0
    smoothed = np.where(unmatched, 0.5 ** np.cumsum(unmatched, axis=-1), matches)
    precisions = 100 * smoothed / np.maximum(totals, 1)
    brevity = np.exp(np.minimum(1 - reference / np.maximum(length, 1), 0))
    scores = brevity * np.exp(np.log(precisions).mean(axis=-1))
    return np.where(unmatched.all(axis=-1) | (totals == 0).any(axis=-1), 0.0, scores)


def _p_value(difference: float, sampled: np.ndarray) -> float:
    rounding = 1e-9  # BLEU: equal translations have no difference in any sample
    as_large = np.abs(sampled - sampled.mean()) >= abs(difference) - rounding
    return (int(as_large.sum()) + 1) / (len(sampled) + 1)
