"""Differences between variants that were trained with several seeds: one additive model for all variants of a table.

    y(variant, seed) = μ(variant) + β(seed) + ε,   ε normal with one variance

The variance is pooled over all variants, since that of three seeds alone is little more than noise. Where several
differences are judged together their intervals are simultaneous: all of them hold with 95 %. Against one baseline these
are Dunnett's (1955, "A multiple comparison procedure for comparing several treatments with a control").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headdiv.analysis.statistics import LEVEL, Interval

SEED, POWER = 12345, 16  # of the Sobol points that simultaneous quantiles are worked out by: 2^16 of them

Scores = Mapping[str, Mapping[int, float]]  # by variant, by seed


@dataclass(frozen=True)
class Difference(Interval):
    """An estimate with half the width of its simultaneous interval; NaN where it has none."""

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
        scores: by variant and seed; rows may have different seeds, fewer of them give a wider interval.
        baseline: one of the variants; {} where it has no runs.

    Returns:
        By variant, all but the baseline; NaN where it has no seed in common with the baseline.
    """
    others = [variant for variant in scores if variant != baseline] if scores.get(baseline) else []
    pairs = differences(scores, [(variant, baseline) for variant in others])
    return {variant: pairs[variant, baseline] for variant in others}


def differences(scores: Scores, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Difference]:
    """The first minus the second of each pair of variants; intervals are simultaneous over all pairs."""
    found = contrasts(scores, [{one: 1.0, other: -1.0} for one, other in pairs])
    return dict(zip(pairs, found, strict=True))


def contrasts(scores: Scores, weights: Sequence[Mapping[str, float]]) -> list[Difference]:
    """Sums of the variants' means with these weights, which add up to 0; intervals are simultaneous over all of them.

    A difference has the weights 1 and −1; the interaction of two factors is a difference of differences.
    """
    rows = [(v, s, y) for v, by_seed in scores.items() for s, y in by_seed.items() if not math.isnan(y)]
    variants, seeds = (list(dict.fromkeys(row[i] for row in rows)) for i in (0, 1))
    X = np.zeros((len(rows), len(variants) + len(seeds)))
    for line, (variant, seed, _) in enumerate(rows):
        X[line, variants.index(variant)] = X[line, len(variants) + seeds.index(seed)] = 1
    y = np.array([row[2] for row in rows])
    inverse = np.linalg.pinv(X)  # (variants + seeds, runs)
    rank = int(np.linalg.matrix_rank(X)) if rows else 0
    freedom = len(rows) - rank
    fitted = inverse @ y
    variance = float(((y - X @ fitted) ** 2).sum()) / freedom if freedom else math.nan
    C = np.zeros((len(weights), X.shape[1]))
    shared = []  # seeds
    for line, weight in enumerate(weights):
        sets = [{s for v, s, _ in rows if v == variant} for variant in weight]
        shared.append(len(set.intersection(*sets)) if sets else 0)
        for variant, value in weight.items():
            if variant in variants:
                C[line, variants.index(variant)] = value
    usable = np.array([count > 0 for count in shared], dtype=bool)
    spread = C @ inverse  # (contrasts, runs)
    size = np.sqrt((spread**2).sum(axis=1))
    critical = math.nan
    if freedom and usable.any():
        unit = spread[usable] / size[usable, None]
        critical = simultaneous_quantile(unit @ unit.T, freedom)
    means, errors = C @ fitted, size * math.sqrt(variance) if freedom else np.full(len(C), math.nan)
    return [
        Difference(round(float(mean), 12), float(critical * error), count, float(error), freedom)
        if count
        else Difference(math.nan, math.nan, 0)
        for mean, error, count in zip(means, errors, shared, strict=True)
    ]


def simultaneous_quantile(correlation: np.ndarray, freedom: int) -> float:
    """c with P(|T₁| ≤ c, …, |T_m| ≤ c) = 95 % for T of a multivariate t distribution.

    Worked out by 2^16 scrambled Sobol points of fixed seed, to about three digits; Student's quantile for m = 1.

    Args:
        correlation: (m, m), singular where the differences depend on each other.
        freedom: degrees of freedom.
    """
    return _quantile(np.round(np.atleast_2d(correlation), 9).tobytes(), len(correlation), freedom)


@lru_cache(maxsize=256)
def _quantile(correlation: bytes, size: int, freedom: int) -> float:
    from scipy import special
    from scipy.stats import qmc

    R = np.frombuffer(correlation).reshape(size, size)
    if size == 1 or np.allclose(np.abs(R), 1):
        return float(special.stdtrit(freedom, (1 + LEVEL) / 2))
    values, vectors = np.linalg.eigh(R)
    factor = (vectors * np.sqrt(np.clip(values, 0, None)))[:, values > 1e-9]  # (m, rank)
    points = qmc.Sobol(factor.shape[1] + 1, seed=SEED).random_base2(POWER)  # (points, rank + 1)
    points = np.clip(points, 1e-12, 1 - 1e-12)
    scale = np.sqrt(special.chdtri(freedom, 1 - points[:, 0]) / freedom)
    largest = np.abs(special.ndtri(points[:, 1:]) @ factor.T).max(axis=1) / scale
    return float(np.quantile(largest, LEVEL))
