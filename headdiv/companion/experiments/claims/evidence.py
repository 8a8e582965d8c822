"""Which stored runs may decide a claim, and what they measured.

A run decides where it read the paper's data, with the paper's sizes and the method's options as the paper has them,
and was trained for the paper's length. Toys, samples and short runs never do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property
from statistics import mean
from typing import Any, NamedTuple

from headdiv.companion import paths
from headdiv.companion.analysis.comparison import Difference, against, contrasts
from headdiv.companion.experiments.claims.records import load_claims
from headdiv.companion.experiments.papers import BASELINE, load_paper
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import difference
from headdiv.core.errors import HeaddivError
from headdiv.methods import check_method, stored_method

log = logging.getLogger(__name__)

Row = tuple[str, str]  # task, variant

COSINE = "mean_absolute_cosine"  # of a PCA layer's columns
COMPLETE = 0.98  # of the paper's training examples: a few records of every set cannot be used


class Measured(NamedTuple):
    """A score's means over seeds of two rows, the first minus the second with its interval, and whose runs they are."""

    means: tuple[float, float]
    difference: Difference
    scale: str


class Results:
    """The stored runs of a paper, of all profiles; one that cannot be read is left out, and a warning names it."""

    def __init__(self, paper: str) -> None:
        self.paper, self.tasks, self.scales = paper, load_paper(paper).tasks, load_claims(paper).scale

    @cached_property
    def _stored(self) -> dict[str, list[RunResult]]:
        """By profile."""
        stored: dict[str, list[RunResult]] = {}
        for path in sorted((paths.home() / "results").glob(f"*/{self.paper}/*/*/seed*/metrics.json")):
            try:
                stored.setdefault(path.parents[4].name, []).append(RunResult.read(path))
            except HeaddivError as error:
                log.warning("%s; the ledger of claims leaves this run out", error)
        return stored

    @cached_property
    def _deciding(self) -> dict[str, list[RunResult]]:
        """Those that have the paper's data, sizes, method and length, by profile."""
        return {profile: list(filter(self._is_the_papers, runs)) for profile, runs in self._stored.items()}

    def compare(self, variant: Row, other: Row, score: str) -> Measured | None:
        """Two rows' scores, by the profile that has both with the most seeds; None where none has them.

        The residual is pooled over all rows of the same data, settings and seeds, and the interval of a difference from
        the baseline is simultaneous over them. For the cosines of PCA layers these two rows alone count: a mean over
        pairs of m columns spreads far more where m is small.
        """
        pairs = {profile: self._pairs(profile, variant, other) for profile in self._deciding}
        profile = max(pairs, key=lambda profile: len(pairs[profile]), default="")
        if not pairs.get(profile):
            return None
        first, seeds = pairs[profile][0][0], [run.seed for run, _ in pairs[profile]]
        rows = {variant: [run for run, _ in pairs[profile]], other: [run for _, run in pairs[profile]]}
        if score != COSINE:
            hashes = {run.hash for runs in rows.values() for run in runs}  # a run may stand in two tables
            for run in self._stored[profile]:
                same = run.seed in seeds and _alike(first, run, ("data", "train", "decode"))
                if same and run.hash not in hashes:
                    rows.setdefault((run.task, run.variant), []).append(run)
                    hashes.add(run.hash)
        scores = {
            "/".join(row): {run.seed: value for run in runs if (value := score_of(run, score)) is not None}
            for row, runs in rows.items()
        }
        ours, base = "/".join(variant), "/".join(other)
        if any(len(scores[row]) < len(seeds) for row in (ours, base)):
            return None
        if other[1] == BASELINE:
            difference = against(scores, base)[ours]
        else:
            (difference,) = contrasts(scores, [{ours: 1.0, base: -1.0}])
        listed = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        scale = f"profile {profile}: {first.data_name}, {first.epochs} epochs, {listed}"
        return Measured((mean(scores[ours].values()), mean(scores[base].values())), difference, scale)

    def _pairs(self, profile: str, variant: Row, other: Row) -> list[tuple[RunResult, RunResult]]:
        """A profile's deciding runs of two rows, seed by seed, where all were trained and searched alike."""
        by_seed: dict[Row, dict[int, RunResult]] = {variant: {}, other: {}}
        for run in self._deciding[profile]:
            if (row := (run.task, run.variant)) in by_seed:
                by_seed[row][run.seed] = run
        seeds = sorted(by_seed[variant].keys() & by_seed[other].keys())
        pairs = [(by_seed[variant][seed], by_seed[other][seed]) for seed in seeds]
        alike = all(_alike(pairs[0][0], run, ("train", "decode")) for pair in pairs for run in pair)
        return pairs if alike else []

    def _is_the_papers(self, run: RunResult) -> bool:
        scale, task = self.scales.get(run.task), self.tasks.get(run.task)
        if scale is None or task is None or run.variant not in task.variants:
            return False
        row = task.variants[run.variant]
        sizes = task.sizes.model if task.sizes else scale.model
        model = {**sizes, **row.model}
        if not sizes or not _has(run.config.data, scale.data) or not _has(run.config.model, model):
            return False
        # Options that came later than a run had the value that is their default now.
        method = stored_method(check_method(row.method, TASKS[run.kind].Model(**model)))
        same_method = difference({"method": run.config.method}, {"method": method}, ["method"]) is None
        complete = scale.examples is None or (run.training_examples or 0) >= COMPLETE * scale.examples
        long_enough = run.epochs >= (scale.epochs or 0) and run.curve[-1].steps >= (scale.steps or 0)
        return same_method and complete and long_enough


def score_of(run: RunResult, name: str) -> float | None:
    """A score of a run, or the mean cosine of its PCA layers' columns; None where it has none."""
    if name != COSINE:
        return run.value(name)
    cosines = [layer[COSINE] for layer in run.heads.artifact("pca_weights").values() if COSINE in layer]
    return mean(cosines) if cosines else None


def _alike(run: RunResult, other: RunResult, sections: Iterable[str]) -> bool:
    """Whether two runs have these settings in common, and their length."""
    same = difference(run.config.sections(), other.config.sections(), sections) is None
    return same and run.epochs == other.epochs


def _has(section: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether a section of a run's configuration has these values."""
    return all(key in section and section[key] == value for key, value in values.items())
