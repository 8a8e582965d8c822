"""What a few seeds and one test set say of a difference: Student's interval, and sacrebleu's paired bootstrap."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import sacrebleu
from sacrebleu.significance import PairedTest

LEVEL = 0.95
SAMPLES = 1000  # of the bootstrap
SEED = 12345  # of the bootstrap; sacrebleu's own default


# ---- over seeds


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


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean and Student's interval, mean ± t·s/√n with n − 1 degrees of freedom, of numbers from different seeds.

    Args:
        values: one for each seed. One alone has no interval; with a NaN among them the mean is NaN.
        level: probability with which the interval holds the true mean, if the numbers are drawn from one normal
            distribution.
    """
    from scipy.special import stdtrit  # here, since importing it takes a noticeable time

    n = len(values)
    mean = fmean(values) if n else math.nan
    if n < 2 or math.isnan(mean):
        return Interval(mean, math.nan, n)
    return Interval(mean, float(stdtrit(n - 1, (1 + level) / 2)) * stdev(values) / math.sqrt(n), n)


# ---- over the sentences of a test set


@dataclass(frozen=True)
class Bootstrap:
    """BLEU (0 to 100) of translations by several systems, each held against the baseline."""

    baseline: float
    scores: dict[str, float]  # by system
    p_values: dict[str, float]  # by system: two-sided, that resampling alone makes so large a difference
    signature: str  # sacrebleu's, with number of samples and seed


def paired_bootstrap(
    baseline: Sequence[str], systems: Mapping[str, Sequence[str]], references: Sequence[str], lowercase: bool = False
) -> Bootstrap:
    """sacrebleu's paired bootstrap (Koehn 2004) of BLEU: how sure a difference is, as far as the test set goes.

    Sentences are drawn with replacement `SAMPLES` times, the same for baseline and system, from `SEED`. How much
    another training would differ is not asked. Equal translations have the p-value 1.

    Args:
        baseline: translations, in the order of the references.
        systems: those of others, by name.
        references: one for each sentence, as text.
        lowercase: case does not count.

    Raises:
        ValueError: translations and references are not of one number.
    """
    for name, lines in {"the baseline": baseline, **systems}.items():
        if len(lines) != len(references):
            raise ValueError(f"{len(lines)} translations of {name} for {len(references)} references")
    told = [("baseline", list(baseline)), *((name, list(lines)) for name, lines in systems.items())]
    with _environment(SACREBLEU_SEED=str(SEED)):
        metrics = {"BLEU": sacrebleu.BLEU(lowercase=lowercase)}
        signatures, results = PairedTest(told, metrics, [list(references)], test_type="bs", n_samples=SAMPLES)()
    first, *others = results["BLEU"]
    found = dict(zip(systems, others, strict=True))
    # sacrebleu counts samples that differ more than the whole does: of equal translations none, so p would be least.
    equal = {name for name, lines in systems.items() if list(lines) == list(baseline)}
    return Bootstrap(
        first.score,
        {name: result.score for name, result in found.items()},
        {name: 1.0 if name in equal else result.p_value for name, result in found.items()},
        str(signatures["BLEU"]),
    )


@contextlib.contextmanager
def _environment(**told: str) -> Iterator[None]:
    """Variables of the environment, put back afterwards: sacrebleu has no other way to be told its seed."""
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
