"""Significance of a difference: Student's interval over seeds, and the paired bootstrap of BLEU over a test set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import sacrebleu

LEVEL = 0.95  # probability that an interval holds the true mean of normally distributed numbers
SAMPLES, SEED = 1000, 12345  # of the bootstrap, as in sacrebleu


@dataclass(frozen=True)
class Interval:
    """Mean over seeds and half the width of its interval."""

    mean: float  # NaN where there is no number
    half: float  # NaN for one number: it has no interval
    count: int

    @property
    def low(self) -> float:
        """Lower end; NaN for one number."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end; NaN for one number."""
        return self.mean + self.half


def interval(values: Sequence[float]) -> Interval:
    """Mean and Student's interval, mean ± t·s/√n with n − 1 degrees of freedom, of numbers from different seeds.

    Args:
        values: one for each seed. A single one has no interval; if one is NaN, so is the mean.
    """
    n = len(values)
    mean = fmean(values) if n else math.nan
    if n < 2 or math.isnan(mean):
        return Interval(mean, math.nan, n)
    return Interval(mean, half_width(stdev(values), n), n)


def half_width(deviation: float, count: int) -> float:
    """Half the width of that interval, of the standard deviation of ``count`` numbers, two or more."""
    from scipy.special import stdtrit  # here, since importing it takes a noticeable time

    return float(stdtrit(count - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(count)


def coefficient_of_variation(values: Sequence[float]) -> float:
    """CV* of repeated measurements of one thing, in percent: how well a result is reproduced (Belz 2022).

    Their standard deviation, unbiased for a normal distribution (divided by c4), as a share of their mean, with the
    correction for few values, 1 + 1/(4n).

    Args:
        values: two or more, on a scale that begins at 0.
    """
    n, mean = len(values), fmean(values)
    c4 = math.sqrt(2 / (n - 1)) * math.gamma(n / 2) / math.gamma((n - 1) / 2)
    return 100 * (1 + 1 / (4 * n)) * stdev(values) / c4 / abs(mean)


@dataclass(frozen=True)
class Bootstrap:
    """BLEU (0 to 100) of translations by several systems, each compared with the baseline."""

    baseline: float
    scores: dict[str, float]  # by system
    p_values: dict[str, float]  # by system: two-sided, that resampling alone makes so large a difference
    signature: str  # sacrebleu's, with number of samples and seed


def sentence_counts(lines: Sequence[str], references: Sequence[str], lowercase: bool = False) -> np.ndarray:
    """What BLEU needs of each sentence; the sum over sentences gives the BLEU of all of them.

    Args:
        lines: translations, in the order of the references.
        references: one for each sentence, as text.
        lowercase: ignore case.

    Returns:
        (S, 10): matching n-grams and all n-grams (n = 1 to 4), length of translation and of reference, in tokens.

    Raises:
        ValueError: the numbers of translations and references differ.
    """
    if len(lines) != len(references):
        raise ValueError(f"{len(lines)} translations for {len(references)} references")
    metric = sacrebleu.BLEU(lowercase=lowercase)
    scores = (metric.corpus_score([line], [[reference]]) for line, reference in zip(lines, references, strict=True))
    return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores], dtype=int)


def paired_bootstrap(baseline: np.ndarray, systems: Mapping[str, np.ndarray], lowercase: bool = False) -> Bootstrap:
    """Paired bootstrap (Koehn 2004) of sacrebleu's BLEU: how significant a difference is on this test set.

    Sentences are drawn with replacement `SAMPLES` times, the same for baseline and system and the same as sacrebleu
    draws. The p-value is the share of samples whose difference, minus the mean over all samples, is at least as large
    as the whole test set's, of either sign (one such sample is added). sacrebleu's own p-value drops the signs before
    it subtracts the mean: of clear differences it counts one side only, and of two equally good systems it finds one in
    nine different at 0.05. Variation between trainings is not included. Equal translations have the p-value 1.

    Args:
        baseline: `sentence_counts` of its translations, (S, 10).
        systems: those of others, by name.
        lowercase: whether case was ignored, for the signature.

    Raises:
        ValueError: the numbers of sentences differ.
    """
    sentences = len(baseline)
    for name, counts in systems.items():
        if len(counts) != sentences:
            raise ValueError(f"{len(counts)} sentences of {name}, {sentences} of the baseline")
    # (samples, S): how often each sentence was drawn; its product with the sentences' counts sums over the draws.
    draws = np.random.default_rng(SEED).choice(sentences, size=(SAMPLES, sentences), replace=True)
    times = np.stack([np.bincount(draw, minlength=sentences) for draw in draws])
    whole, sampled = {}, {}
    for name, counts in {"": baseline, **systems}.items():
        whole[name] = bleu_of(counts.sum(axis=0))
        sampled[name] = np.array([bleu_of(sums) for sums in times @ counts])  # (samples,)
    metric = sacrebleu.BLEU(lowercase=lowercase)
    metric.corpus_score(["one"], [["one"]])  # it has no signature before
    signature = metric.get_signature()
    signature.update("bs", SAMPLES)
    signature.update("seed", SEED)
    return Bootstrap(
        whole[""],
        {name: whole[name] for name in systems},
        {name: _p_value(whole[name] - whole[""], sampled[name] - sampled[""]) for name in systems},
        str(signature),
    )


def bleu_of(counts: np.ndarray) -> float:
    """BLEU of such counts, summed over sentences."""
    found, total, (length, reference) = (part.tolist() for part in np.split(counts, (4, 8)))
    return sacrebleu.BLEU.compute_bleu(found, total, length, reference, smooth_method="exp").score


def _p_value(difference: float, sampled: np.ndarray) -> float:
    rounding = 1e-9  # BLEU: equal translations have no difference in any sample
    as_large = np.abs(sampled - sampled.mean()) >= abs(difference) - rounding
    return (int(as_large.sum()) + 1) / (len(sampled) + 1)
