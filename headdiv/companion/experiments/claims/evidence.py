"""Which stored runs may decide a claim, and the numbers that they measured.

A run decides where it read the paper's data, with the paper's sizes and the method's options as the paper has them,
and was trained for at least `LEAST` of the paper's length. Toys and samples never do.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import mean
from typing import Any

from headdiv.companion import paths
from headdiv.companion.analysis.comparison import Difference, against, contrasts
from headdiv.companion.experiments.claims.files import load_claims, sizes_of, walk
from headdiv.companion.experiments.papers import BASELINE, PaperTask, load_paper
from headdiv.companion.experiments.run_result import RunResult, is_stored
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import first_difference
from headdiv.core.errors import HeaddivError
from headdiv.methods import METHODS, check_method, stored_method
from headdiv.training.config import TrainConfig

log = logging.getLogger(__name__)

Row = tuple[str, str]  # task, variant

PCA = ("mean_absolute_cosine", "column_lengths")  # measures of DEACON's PCA layers
LEAST = 1 / 3  # of the paper's epochs or steps: ten of thirty
COMPLETE = 0.98  # of the paper's training examples: a few records of every set cannot be used


@dataclass(frozen=True)
class Evidence:
    """The runs that decide a claim: of one profile, trained and searched alike, with the same seeds for every row."""

    profile: str
    by_row: dict[Row, list[RunResult]]
    share: float  # of the paper's length, at most 1
    scale: str  # how far from the paper's, in words
    table: dict[Row, list[RunResult]]  # these and all other rows of the same data, settings and seeds

    @property
    def runs(self) -> tuple[RunResult, ...]:
        """All of them, row by row."""
        return tuple(run for runs in self.by_row.values() for run in runs)

    @property
    def seeds(self) -> int:
        """How many there are of every row."""
        return len(next(iter(self.by_row.values())))

    @property
    def whole(self) -> bool:
        """Whether the runs are as long as the paper's."""
        return self.share >= 1

    def quantity(self, row: Row, name: str, position: int | None = None) -> float | None:
        """A score, a cost or a number of a row's configuration; None where a run has none.

        ``position`` is that of the seed among the seeds; their mean where left out.
        """
        found = [_quantity(run, name) for run in self.by_row[row]]
        values = [value for value in found if value is not None]
        if len(values) < len(found):
            return None
        return mean(values) if position is None else values[position]

    def difference(self, weights: Mapping[Row, float], name: str) -> Difference:
        """A quantity's sum over these rows with these weights, which add up to 0, by `analysis.comparison`.

        The residual is pooled over all rows of the table, and the interval of a row's difference from the baseline is
        the table's, simultaneous over them. For a measure of PCA layers these rows alone count: it is a mean over pairs
        of m columns, so that it spreads far more where m is small.
        """
        scores = {
            "/".join(row): {run.seed: found for run in runs if (found := _quantity(run, name)) is not None}
            for row, runs in (self.by_row if name in PCA else self.table).items()
        }
        base = [row for row in weights if row[1] == BASELINE]
        if base and len(weights) == 2:
            (other,) = weights.keys() - base
            found = against(scores, "/".join(base[0]))["/".join(other)]
            return replace(found, mean=weights[other] * found.mean, half=abs(weights[other]) * found.half)
        return contrasts(scores, [{"/".join(row): weight for row, weight in weights.items()}])[0]


class Results:
    """The stored runs of a paper, of all profiles; one that cannot be read is left out, and a warning names it."""

    def __init__(self, paper: str) -> None:
        self.paper, self.tasks, self.scales = paper, load_paper(paper).tasks, load_claims(paper).scale

    @cached_property
    def _stored(self) -> dict[str, list[RunResult]]:
        """By profile."""
        found: dict[str, list[RunResult]] = {}
        folders = sorted((paths.home() / "results").glob(f"*/{self.paper}/*/*/seed*"))
        for path in filter(is_stored, (folder / "metrics.json" for folder in folders)):
            try:
                profile = paths.results(path.parents[4].name).name
                found.setdefault(profile, []).append(RunResult.read(path))
            except HeaddivError as error:
                log.warning("%s; the ledger of claims leaves this run out", error)
        return found

    def evidence(self, rows: Iterable[Row], one_machine: bool = False, papers_machine: bool = False) -> Evidence | None:
        """The runs of the profile that comes nearest to the paper, and has all of these rows; None where none does.

        Rows that are compared by time must be of one machine; of the paper's, where they are compared with its times.
        """
        wanted = sorted(set(rows))
        found = [self._of_profile(profile, wanted, one_machine, papers_machine) for profile in self._stored]
        return max((one for one in found if one), key=lambda one: (one.share, len(one.runs)), default=None)

    def describe(self, tasks: Iterable[str]) -> str:
        """What is stored of these tasks, whether or not it decides: "quick (toy, 12 epochs), …"; "" for nothing."""
        names = set(tasks)
        by_profile = {
            profile: sorted({f"{run.data_name}, {run.epochs} epochs" for run in runs if run.task in names})
            for profile, runs in self._stored.items()
        }
        return ", ".join(f"{profile} ({'; '.join(what)})" for profile, what in by_profile.items() if what)

    def _of_profile(self, profile: str, wanted: list[Row], one_machine: bool, papers_machine: bool) -> Evidence | None:
        by_row: dict[Row, dict[int, RunResult]] = {row: {} for row in wanted}
        for run in self._stored[profile]:
            row = run.task, run.variant
            if row in by_row and self._is_the_papers(run, papers_machine):
                by_row[row][run.seed] = run
        seeds = sorted(set.intersection(*(set(runs) for runs in by_row.values())))
        if not seeds:
            return None
        runs = {row: [found[seed] for seed in seeds] for row, found in by_row.items()}
        every = [run for group in runs.values() for run in group]
        first, sections = every[0], [run.config.sections() for run in every]
        alike = all(first_difference(sections[0], other, ("train", "decode")) is None for other in sections)
        machines = {_machine(run) for run in every}
        if not alike or len({run.epochs for run in every}) > 1 or (one_machine and len(machines) > 1):
            return None
        table, hashes = {row: list(found) for row, found in runs.items()}, {run.hash for run in every}
        for run in self._stored[profile]:
            row, settings = (run.task, run.variant), run.config.sections()
            same = first_difference(sections[0], settings, ("data", "train", "decode")) is None
            same = same and run.epochs == first.epochs and (_machine(run) in machines or not one_machine)
            if same and run.seed in seeds and run.hash not in hashes:  # a run may stand in two tables
                table.setdefault(row, []).append(run)
                hashes.add(run.hash)
        share, length = self._length(first)
        data, scale = first.data_name, self.scales[first.task]
        if scale.examples:
            data += f", {first.training_examples:,} of {scale.examples:,} training examples"
        short = "" if share >= 1 else ", a short run"
        words = [f"profile {profile}{short}: {data}", length, f"seed{'s' if len(seeds) > 1 else ''} {_listed(seeds)}"]
        scale_said = ", ".join([*words, first.provenance.device] if one_machine else words)
        return Evidence(profile, runs, share, scale_said, table)

    def _is_the_papers(self, run: RunResult, papers_machine: bool) -> bool:
        scale, task = self.scales.get(run.task), self.tasks.get(run.task)
        if scale is None or task is None or run.variant not in task.variants:
            return False
        row, machine = task.variants[run.variant], run.provenance
        model = sizes_of(task, row, scale)
        if not model or not _within(scale.data, run.config.data) or not _within(model, run.config.model):
            return False
        # Options that came later than a run had the value that is their default now.
        method = stored_method(check_method(row.method, TASKS[run.kind].Model(**model)))
        same_method = first_difference({"method": method}, {"method": run.config.method}, ["method"]) is None
        complete = scale.examples is None or (run.training_examples or 0) >= COMPLETE * scale.examples
        its_machine = scale.device is not None and scale.device in machine.device and scale.ranks == machine.ranks
        long_enough = self._length(run)[0] >= LEAST
        return same_method and complete and long_enough and (its_machine or not papers_machine)

    def _length(self, run: RunResult) -> tuple[float, str]:
        """How long a run was trained, as a share of the paper's length (at most 1), and in words."""
        scale = self.scales[run.task]
        if scale.epochs:
            done, all_, what = run.epochs, scale.epochs, "epochs"
        else:
            done, all_, what = run.curve[-1].steps, scale.steps or 1, "steps"
        return min(1.0, done / all_), f"{done:,} of {all_:,} {what}"


def _machine(run: RunResult) -> tuple[object, ...]:
    return run.provenance.device, run.provenance.ranks, run.provenance.threads


def _listed(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))


def _within(part: Any, whole: Any) -> bool:
    """Whether every key of ``part`` stands in ``whole`` with the same value."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _within(value, whole[key]) for key, value in part.items()
        )
    return part == whole


def is_quantity(task: PaperTask, name: str, variant: str, quantity: str) -> bool:
    """Whether the runs of a row of a task (its name is its kind unless it says otherwise) measure this.

    A quantity is a column of the task, a measure of PCA layers, or a key of the configuration (``config.data.name``).
    """
    section, _, path = quantity.partition(".")
    if section != "config":
        return quantity in task.columns or quantity in PCA
    kinds, options = TASKS[task.kind or name], METHODS[task.variants[variant].method["name"]].Options
    part, _, key = path.partition(".")
    settings = {"data": kinds.Data, "model": kinds.Model, "decode": kinds.Decode, "train": TrainConfig}
    model = {**settings, "method": options}.get(part)
    return model is not None and key.partition(".")[0] in model.model_fields


def _quantity(run: RunResult, name: str) -> float | None:
    section, _, path = name.partition(".")
    if section == "config":
        found = walk(run.config.sections(), path.split("."))
    elif name in PCA:  # means over modules and columns
        values = [module.get(name, []) for module in run.heads.artifact("pca_weights").values()]
        every = [one for value in values for one in (value if isinstance(value, list) else [value])]
        found = mean(every) if every else None
    else:
        found = run.value(name)
    return float(found) if isinstance(found, int | float) else None
