"""Which stored runs may decide a claim, and what they say.

A run decides where it read the paper's data, with the paper's sizes and the method's options as the paper has them,
and was trained for at least `LEAST` of the paper's length. Toys and samples never do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

from headdiv.core import paths
from headdiv.experiments.claims.files import load_claims, sizes_of, walk
from headdiv.experiments.papers import PaperTask, Variant, load_paper
from headdiv.experiments.results import RunResult, read_result
from headdiv.methods import METHODS, check_method
from headdiv.tasks import TASKS
from headdiv.tasks.config import first_difference
from headdiv.training.config import TrainConfig

Row = tuple[str, str]  # task, variant

PCA = ("mean_absolute_cosine", "column_lengths")  # measures of DEACON's PCA layers
LEAST = 1 / 3  # of the paper's epochs or steps: ten of thirty
COMPLETE = 0.98  # of the paper's training examples: a few records of every set cannot be used


@dataclass(frozen=True)
class Deciding:
    """The runs that decide a claim: of one profile, trained and searched alike, with the same seeds for every row."""

    profile: str
    runs: dict[Row, list[RunResult]]
    share: float  # of the paper's length, at most 1
    scale: str  # how far from the paper's, in words

    def quantity(self, row: Row, name: str) -> float | None:
        """Mean over the seeds of a score, a cost or a number of the configuration; None where a run has none."""
        values = [_quantity(run, name) for run in self.runs[row]]
        return None if None in values else mean(values)  # type: ignore[type-var]


class Results:
    """The stored runs of a paper, of all profiles.

    Args:
        paper: its name.

    Raises:
        DataError: metrics of another format.
    """

    def __init__(self, paper: str) -> None:
        self.paper, self.tasks, self.scales = paper, load_paper(paper).tasks, load_claims(paper).scale

    @cached_property
    def _stored(self) -> dict[str, list[RunResult]]:
        """By profile."""
        found: dict[str, list[RunResult]] = {}
        for path in sorted((paths.home() / "results").glob(f"*/{self.paper}/*/*/seed*/metrics.json")):
            found.setdefault(path.parents[4].name, []).append(read_result(path))
        return found

    def deciding(self, rows: Iterable[Row], cost: bool = False, absolute: bool = False) -> Deciding | None:
        """The runs of the profile that comes nearest to the paper, and has all of these rows; None where none does.

        Args:
            rows: what is needed.
            cost: the rows are compared by time, so that one machine must have run them all …
            absolute: … and it must be the paper's.
        """
        wanted = sorted(set(rows))
        found = [self._of_profile(profile, wanted, cost, absolute) for profile in self._stored]
        return max((one for one in found if one), key=lambda one: (one.share, len(one.runs[wanted[0]])), default=None)

    def there_is(self, tasks: Iterable[str]) -> str:
        """What is stored of these tasks, whether or not it decides: "quick (toy, 12 epochs), …"; "" for nothing."""
        names = set(tasks)
        told = {
            profile: sorted(
                {f"{m['config']['data']['name']}, {len(m['curve'])} epochs" for m in runs if m["task"] in names}
            )
            for profile, runs in self._stored.items()
        }
        return ", ".join(f"{profile} ({'; '.join(what)})" for profile, what in told.items() if what)

    def _of_profile(self, profile: str, wanted: list[Row], cost: bool, absolute: bool) -> Deciding | None:
        by_row: dict[Row, dict[int, RunResult]] = {row: {} for row in wanted}
        for run in self._stored[profile]:
            row = run["task"], run["variant"]
            if row in by_row and self._is_the_papers(run, absolute):
                by_row[row][run["seed"]] = run
        seeds = sorted(set.intersection(*(set(runs) for runs in by_row.values())))
        runs = {row: [found[seed] for seed in seeds] for row, found in by_row.items()}
        every = [run for group in runs.values() for run in group]
        if not every:
            return None
        first = every[0]
        alike = all(first_difference(first["config"], run["config"], ("train", "decode")) is None for run in every)
        machines = {tuple(run["provenance"].get(key, 1) for key in ("device", "ranks", "threads")) for run in every}
        if not alike or len({len(run["curve"]) for run in every}) > 1 or (cost and len(machines) > 1):
            return None
        return Deciding(profile, runs, self._length(first)[0], self._words(profile, first, seeds, cost))

    def _is_the_papers(self, run: RunResult, absolute: bool) -> bool:
        scale, task = self.scales.get(run["task"]), self.tasks.get(run["task"])
        if scale is None or task is None or run["variant"] not in task.variants:
            return False
        row, config = task.variants[run["variant"]], run["config"]
        model = sizes_of(task, row, scale)
        there = (run["provenance"]["device"], run["provenance"].get("ranks", 1))
        its_machine = scale.device is not None and scale.device in there[0] and scale.ranks == there[1]
        return (
            _within(scale.data, config["data"])
            and bool(model)
            and _within(model, config["model"])
            and _same_method(_method(row, model, run["kind"]), config["method"])
            and (scale.examples is None or run["data"]["train"].get("examples", 0) >= COMPLETE * scale.examples)
            and self._length(run)[0] >= LEAST
            and (its_machine or not absolute)
        )

    def _length(self, run: RunResult) -> tuple[float, str]:
        """How long a run was trained, as a share of the paper's length (at most 1), and in words."""
        scale = self.scales[run["task"]]
        if scale.epochs:
            done, all_, what = len(run["curve"]), scale.epochs, "epochs"
        else:
            done, all_, what = run["curve"][-1].get("steps", 0), scale.steps or 1, "steps"
        return min(1.0, done / all_), f"{done:,} of {all_:,} {what}"

    def _words(self, profile: str, run: RunResult, seeds: list[int], cost: bool) -> str:
        scale, config = self.scales[run["task"]], run["config"]
        data = config["data"]["name"]
        if scale.examples:
            data += f", {run['data']['train']['examples']:,} of {scale.examples:,} training examples"
        said = [
            f"profile {profile}: {data}",
            self._length(run)[1],
            f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        ]
        return ", ".join([*said, run["provenance"]["device"]] if cost else said)


def _method(row: Variant, model: dict[str, Any], kind: str) -> dict[str, Any]:
    """The row's method with all its options, as the paper has it."""
    return check_method(row.method, TASKS[kind].Model(**model))


def _same_method(papers: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Options that came later than a run had the value that is their default now."""
    return all(ours.get(key, value) == value for key, value in papers.items())


def _within(part: Any, whole: Any) -> bool:
    """Whether every key of ``part`` stands in ``whole`` with the same value."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and _within(value, whole[key]) for key, value in part.items()
        )
    return part == whole


def is_quantity(task: PaperTask, name: str, variant: str, quantity: str) -> bool:
    """Whether the runs of a row tell this: a column of its task, of PCA layers, or a key of the configuration.

    Args:
        task: the paper's task.
        name: its name there, which is its kind too unless it says otherwise.
        variant: of the row.
        quantity: ``bleu``, ``config.train.epochs``.
    """
    section, _, path = quantity.partition(".")
    if section != "config":
        return quantity in task.columns or quantity in PCA
    kinds, options = TASKS[task.kind or name], METHODS[task.variants[variant].method["name"]].Options
    settings = {"data": kinds.Data, "model": kinds.Model, "decode": kinds.Decode, "train": TrainConfig}
    part, _, key = path.partition(".")
    model = {**settings, "method": options}.get(part)
    return model is not None and key.partition(".")[0] in model.model_fields


def _quantity(run: RunResult, name: str) -> float | None:
    section, _, path = name.partition(".")
    if section == "config":
        found = walk(run["config"], path.split("."))
    elif name == "parameters":
        found = run["parameters"]
    elif name == "training_hours":
        found = run["cost"]["training_seconds"] / 3600
    elif name in PCA:  # means over modules and columns
        told = [module.get(name, []) for module in run["heads"].get("pca_weights", {}).values()]
        every = [one for module in told for one in (module if isinstance(module, list) else [module])]
        found = mean(every) if every else None
    else:
        found = walk(run["scores"], [name, "value"])
    return float(found) if isinstance(found, int | float) else None
