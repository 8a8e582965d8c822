"""Which stored runs may decide a claim, and the numbers that they measured.

A run decides where it read the paper's data, with the paper's sizes and the method's options as the paper has them,
and was trained for the paper's length. Toys, samples and short runs never do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from headdiv.companion import paths
from headdiv.companion.analysis.comparison import Difference, against, contrasts
from headdiv.companion.experiments.claims.records import load_claims, sizes_of
from headdiv.companion.experiments.papers import BASELINE, load_paper
from headdiv.companion.experiments.run_result import RunResult, is_stored
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import first_difference
from headdiv.core.errors import HeaddivError
from headdiv.methods import check_method, stored_method

log = logging.getLogger(__name__)

Row = tuple[str, str]  # task, variant

COSINE = "mean_absolute_cosine"  # of a PCA layer's columns
COMPLETE = 0.98  # of the paper's training examples: a few records of every set cannot be used


@dataclass(frozen=True)
class Evidence:
    """The runs that decide a claim: of one profile, trained and searched alike, with the same seeds for every row.

    Attributes:
        scale: whose they are, and of what.
        table: these and all other rows of the same data, settings and seeds.
    """

    by_row: dict[Row, list[RunResult]]
    scale: str
    table: dict[Row, list[RunResult]]

    @property
    def seeds(self) -> int:
        """How many there are of every row."""
        return len(next(iter(self.by_row.values())))

    def values(self, row: Row, score: str) -> list[float]:
        """A score of a row's runs, seed by seed; those that have it."""
        return [value for run in self.by_row[row] if (value := score_of(run, score)) is not None]

    def difference(self, variant: Row, other: Row, score: str) -> Difference:
        """A row's score minus another's, with its interval.

        The residual is pooled over all rows of the table, and the interval of a difference from the baseline is the
        table's, simultaneous over them. For the cosines of PCA layers these rows alone count: a mean over pairs of m
        columns spreads far more where m is small.
        """
        rows = self.by_row if score == COSINE else self.table
        scores = {
            "/".join(row): {run.seed: value for run in runs if (value := score_of(run, score)) is not None}
            for row, runs in rows.items()
        }
        one, base = "/".join(variant), "/".join(other)
        if other[1] == BASELINE:
            return against(scores, base)[one]
        return contrasts(scores, [{one: 1.0, base: -1.0}])[0]


class Results:
    """The stored runs of a paper, of all profiles; one that cannot be read is left out, and a warning names it."""

    def __init__(self, paper: str) -> None:
        self.paper, self.tasks, self.scales = paper, load_paper(paper).tasks, load_claims(paper).scale

    @cached_property
    def _stored(self) -> dict[str, list[RunResult]]:
        """By profile."""
        stored: dict[str, list[RunResult]] = {}
        folders = sorted((paths.home() / "results").glob(f"*/{self.paper}/*/*/seed*"))
        for path in filter(is_stored, (folder / "metrics.json" for folder in folders)):
            try:
                stored.setdefault(path.parents[4].name, []).append(RunResult.read(path))
            except HeaddivError as error:
                log.warning("%s; the ledger of claims leaves this run out", error)
        return stored

    @cached_property
    def _deciding(self) -> dict[str, list[RunResult]]:
        """Those that have the paper's data, sizes, method and length, by profile."""
        return {profile: list(filter(self._is_the_papers, runs)) for profile, runs in self._stored.items()}

    def evidence(self, *rows: Row) -> Evidence | None:
        """The runs of the profile that has all of these rows with the most seeds; None where none has them."""
        profiles = [self._of_profile(profile, rows) for profile in self._deciding]
        return max(filter(None, profiles), key=lambda found: found.seeds, default=None)

    def _of_profile(self, profile: str, rows: Iterable[Row]) -> Evidence | None:
        by_seed: dict[Row, dict[int, RunResult]] = {row: {} for row in rows}
        for run in self._deciding[profile]:
            if (row := (run.task, run.variant)) in by_seed:
                by_seed[row][run.seed] = run
        seeds = sorted(set.intersection(*(set(runs) for runs in by_seed.values())))
        if not seeds:
            return None
        by_row = {row: [runs[seed] for seed in seeds] for row, runs in by_seed.items()}
        deciding = [run for runs in by_row.values() for run in runs]
        first = deciding[0]
        if not all(_alike(first, run, ("train", "decode")) for run in deciding):
            return None
        table, hashes = {row: list(runs) for row, runs in by_row.items()}, {run.hash for run in deciding}
        for run in self._stored[profile]:
            same = run.seed in seeds and _alike(first, run, ("data", "train", "decode"))
            if same and run.hash not in hashes:  # a run may stand in two tables
                table.setdefault((run.task, run.variant), []).append(run)
                hashes.add(run.hash)
        listed = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        return Evidence(by_row, f"profile {profile}: {first.data_name}, {first.epochs} epochs, {listed}", table)

    def _is_the_papers(self, run: RunResult) -> bool:
        scale, task = self.scales.get(run.task), self.tasks.get(run.task)
        if scale is None or task is None or run.variant not in task.variants:
            return False
        row = task.variants[run.variant]
        model = sizes_of(task, row, scale)
        if not model or not _within(scale.data, run.config.data) or not _within(model, run.config.model):
            return False
        # Options that came later than a run had the value that is their default now.
        method = stored_method(check_method(row.method, TASKS[run.kind].Model(**model)))
        same_method = first_difference({"method": method}, {"method": run.config.method}, ["method"]) is None
        complete = scale.examples is None or (run.training_examples or 0) >= COMPLETE * scale.examples
        long_enough = run.epochs >= (scale.epochs or 0) and run.curve[-1].steps >= (scale.steps or 0)
        return same_method and complete and long_enough


def score_of(run: RunResult, name: str) -> float | None:
    """A score of a run, or the mean cosine of its PCA layers' columns; None where it has none."""
    if name != COSINE:
        return run.value(name)
    cosines = [layer[COSINE] for layer in run.heads.artifact("pca_weights").values() if COSINE in layer]
    return mean(cosines) if cosines else None


def _alike(one: RunResult, other: RunResult, sections: Iterable[str]) -> bool:
    """Whether two runs have these settings in common, and their length."""
    same = first_difference(one.config.sections(), other.config.sections(), sections) is None
    return same and one.epochs == other.epochs


def _within(part: Any, whole: Any) -> bool:
    """Whether every key of ``part`` stands in ``whole`` with the same value."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _within(value, whole[key]) for key, value in part.items()
        )
    return part == whole
