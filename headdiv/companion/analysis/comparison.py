"""Differences between variants that were trained with several seeds: one additive model for all variants of a table.

    y(variant, seed) = μ(variant) + β(seed) + ε,   ε normal with one variance

The variance is pooled over all variants, since that of three seeds alone is little more than noise. A variant whose
residuals are far larger than the others' (Cochran's test at 0.1 %: a model that collapses with some seeds) would make
all intervals as wide as its own: it is left out of the model and has its own Student's interval. Where several
differences are judged together their intervals are simultaneous: all of them hold with 95 %. Against one baseline these
are Dunnett's (1955, "A multiple comparison procedure for comparing several treatments with a control").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import stdev

import numpy as np

from headdiv.companion.analysis.statistics import LEVEL, Interval, interval

SEED, POWER = 12345, 16  # of the Sobol points for simultaneous quantiles: 2^16 of them
DEPENDENT = 1e-6  # share of a difference's variance: with no more left by the others, it counts as a sum of them
ROUNDING = 1e-12  # of the largest score: residuals up to this count as 0, so that equal runs have an error of 0

COCHRAN, FEWEST = 0.001, 4  # level of the test for uneven variances, and the fewest variants for it

Scores = Mapping[str, Mapping[int, float]]  # by variant, by seed


@dataclass(frozen=True)
class Difference(Interval):
    """An estimate with half the width of its simultaneous interval; NaN where there is none."""

    error: float = math.nan  # standard error
    freedom: int = 0  # degrees of freedom of the residual

    def equivalence(self, margin: float) -> float:
        """The p-value of equivalence within ±``margin``, by two one-sided t-tests (Schuirmann 1987); NaN without error.

        At most 0.05: the difference is shown to be smaller than the margin.
        """
        from scipy.special import stdtr  # here, since importing it takes a noticeable time

        if not self.freedom or math.isnan(self.error):
            return math.nan
        if self.error == 0:
            return 0.0 if abs(self.mean) < margin else 1.0
        return float(stdtr(self.freedom, (abs(self.mean) - margin) / self.error))


def against(scores: Scores, baseline: str) -> dict[str, Difference]:
    """Every variant minus the baseline, with Dunnett's simultaneous intervals.

    Args:
        scores: by variant and seed; rows may have different seeds, and fewer of them give a wider interval.
        baseline: one of the variants; {} where it has no runs.

    Returns:
        By variant, without the baseline; NaN for one that has no seed in common with it.
    """
    others = [variant for variant in scores if variant != baseline] if scores.get(baseline) else []
    pairs = differences(scores, [(variant, baseline) for variant in others])
    return {variant: pairs[variant, baseline] for variant in others}


def differences(scores: Scores, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Difference]:
    """The first minus the second of each pair of variants; intervals are simultaneous over all pairs."""
    estimates = contrasts(scores, [{first: 1.0, second: -1.0} for first, second in pairs])
    return dict(zip(pairs, estimates, strict=True))


def contrasts(scores: Scores, weights: Sequence[Mapping[str, float]]) -> list[Difference]:
    """Weighted sums of the variants' means, with weights that add up to 0; intervals are simultaneous over all of them.

    A difference has the weights 1 and −1; the interaction of two factors is a difference of differences.
    """
    for weight in weights:
        if abs(sum(weight.values())) > 1e-9 * sum(map(abs, weight.values())):
            raise ValueError(f"weights: found {dict(weight)!r:.80}, expected numbers that add up to 0")
    scores = {
        variant: {seed: y for seed, y in by_seed.items() if not math.isnan(y)} for variant, by_seed in scores.items()
    }
    excluded = uneven(scores)
    pooled = _Model({variant: by_seed for variant, by_seed in scores.items() if variant not in excluded})
    estimates = iter(pooled.estimate([weight for weight in weights if not excluded & weight.keys()]))
    return [_student_difference(scores, weight) if excluded & weight.keys() else next(estimates) for weight in weights]


def uneven(scores: Scores) -> set[str]:
    """Variants whose residuals in the additive model are far larger than the others', by Cochran's test at 0.1 %.

    Each variance is compared with the sum of all, the largest first, until none stands out.
    """
    from scipy.special import fdtri

    excluded: set[str] = set()
    while True:
        model = _Model({variant: by_seed for variant, by_seed in scores.items() if variant not in excluded})
        squares = model.squares()
        variances = {variant: total / (n - 1) for variant, (total, n) in squares.items() if n > 1}
        if len(variances) < FEWEST:
            return excluded
        largest = max(variances, key=lambda variant: variances[variant])
        others, freedom = len(variances) - 1, min(squares[variant][1] for variant in variances) - 1
        F = float(fdtri(freedom, others * freedom, 1 - COCHRAN / len(variances)))
        if variances[largest] <= sum(variances.values()) / (1 + others / F):
            return excluded
        excluded.add(largest)


class _Model:
    """Least squares of μ(variant) + β(seed).

    The seeds are eliminated first, each by its own mean: the remaining system has the size of the variants, however
    many runs there are. Its matrix is singular, since a constant may go into μ or β; sums with weights that add up to 0
    are the same with any inverse.
    """

    def __init__(self, scores: Scores) -> None:
        variants = [variant for variant, by_seed in scores.items() if by_seed]
        seeds = list(dict.fromkeys(seed for by_seed in scores.values() for seed in by_seed))
        shape = len(variants), len(seeds)
        self.lines = {variant: line for line, variant in enumerate(variants)}
        self.observed, y = np.zeros(shape, dtype=bool), np.zeros(shape)  # (variants, seeds)
        for variant, line in self.lines.items():
            columns = [seeds.index(seed) for seed in scores[variant]]
            self.observed[line, columns], y[line, columns] = True, list(scores[variant].values())
        share = self.observed / self.observed.sum(axis=0)  # (variants, seeds)
        counts = self.observed.sum(axis=1)  # (variants,)
        values, vectors = np.linalg.eigh(np.diag(counts) - share @ self.observed.T)
        kept = values > 1e-9 * counts.max(initial=0)
        self.inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T  # (variants, variants)
        self.fitted = self.inverse @ (y.sum(axis=1) - share @ y.sum(axis=0))  # (variants,)
        seed_effects = (y - np.where(self.observed, self.fitted[:, None], 0)).sum(axis=0) / self.observed.sum(axis=0)
        residuals = np.where(self.observed, y - self.fitted[:, None] - seed_effects, 0)  # (variants, seeds)
        self.residuals = np.where(np.abs(residuals) <= ROUNDING * np.abs(y).max(initial=0), 0, residuals)
        self.freedom = int(counts.sum()) - len(seeds) - int(kept.sum())

    def squares(self) -> dict[str, tuple[float, int]]:
        """By variant: the sum of its squared residuals, and its number of seeds."""
        sums, counts = (self.residuals**2).sum(axis=1).tolist(), self.observed.sum(axis=1).tolist()
        return dict(zip(self.lines, zip(sums, counts, strict=True), strict=True))

    def estimate(self, weights: Sequence[Mapping[str, float]]) -> list[Difference]:
        """These contrasts with simultaneous intervals; NaN where the variants of one have no seed in common."""
        C, shared = np.zeros((len(weights), len(self.lines))), []  # (contrasts, variants)
        for row, weight in enumerate(weights):
            lines = [self.lines[variant] for variant in weight if variant in self.lines]
            shared.append(int(self.observed[lines].all(axis=0).sum()) if len(lines) == len(weight) else 0)
            C[row, lines] = [value for variant, value in weight.items() if variant in self.lines]
        covariance = C @ self.inverse @ C.T  # (contrasts, contrasts), of a residual of variance 1
        size, usable = np.sqrt(covariance.diagonal().clip(0)), np.array(shared, dtype=bool)
        error, critical = np.full(len(C), math.nan), math.nan
        if self.freedom and usable.any():
            error = size * math.sqrt(float((self.residuals**2).sum()) / self.freedom)
            sizes = size[usable]
            critical = simultaneous_quantile(covariance[np.ix_(usable, usable)] / np.outer(sizes, sizes), self.freedom)
        none = Difference(math.nan, math.nan, 0)
        return [
            Difference(round(mean, 12), critical * deviation, count, deviation, self.freedom) if count else none
            for mean, deviation, count in zip((C @ self.fitted).tolist(), error.tolist(), shared, strict=True)
        ]


def weighted_sums(scores: Scores, weights: Mapping[str, float]) -> dict[int, float]:
    """A contrast of each seed on its own, for the seeds that all of its variants have."""
    seeds = set.intersection(*(set(scores.get(variant, {})) for variant in weights))
    return {seed: sum(weight * scores[variant][seed] for variant, weight in weights.items()) for seed in sorted(seeds)}


def _student_difference(scores: Scores, weights: Mapping[str, float]) -> Difference:
    """A contrast seed by seed, with Student's interval."""
    values = list(weighted_sums(scores, weights).values())
    student = interval(values)
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Difference(student.mean, student.half, student.count, error, max(student.count - 1, 0))


def simultaneous_quantile(correlation: np.ndarray, freedom: int) -> float:
    """c with P(|T₁| ≤ c, …, |T_m| ≤ c) = 95 % for T with a multivariate t distribution.

    Computed with 2^16 scrambled Sobol points of fixed seed, to within 0.1 %; Student's quantile for m = 1.

    Args:
        correlation: (m, m), singular where the differences depend on each other.
        freedom: degrees of freedom.
    """
    return _quantile(np.round(correlation, 9).astype(float).tobytes(), len(correlation), freedom)


@lru_cache(maxsize=256)
def _quantile(correlation: bytes, size: int, freedom: int) -> float:
    from scipy import special
    from scipy.optimize import brentq
    from scipy.stats import qmc

    R = np.frombuffer(correlation).reshape(size, size)
    student = float(special.stdtrit(freedom, (1 + LEVEL) / 2))
    if size == 1 or np.allclose(np.abs(R), 1):
        return student
    factor = _factor(R)  # (m, rank)
    points = qmc.Sobol(factor.shape[1], seed=SEED).random_base2(POWER)  # (points, rank)
    normal = special.ndtri(np.clip(points, 1e-12, 1 - 1e-12)) @ factor.T  # (points, m)
    squares = np.square(normal).max(axis=1)  # (points,)

    def outside(c: float) -> float:
        """P(max |T| > c) minus 5 %: the mean of each point's share of the residual's χ², which is known exactly."""
        return float(special.chdtr(freedom, freedom / c**2 * squares).mean()) - (1 - LEVEL)

    bonferroni = float(special.stdtrit(freedom, 1 - (1 - LEVEL) / 2 / size))
    return float(brentq(outside, 0.98 * student, 1.02 * bonferroni, xtol=1e-9))


def _factor(R: np.ndarray) -> np.ndarray:
    """Cholesky factor L of a correlation matrix R = L Lᵀ, without the columns that a singular R makes 0: (m, rank).

    Any other factor would do. Those from eigenvectors differ between processors, and so would the points' sums.
    """
    L = np.zeros_like(R)
    for j in range(len(R)):
        column = R[j:, j] - L[j:] @ L[j]
        if column[0] > DEPENDENT:
            L[j:, j] = column / math.sqrt(column[0])
    return L[:, L.any(axis=0)]
