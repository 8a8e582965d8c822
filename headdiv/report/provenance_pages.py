"""A page for every run: what it was made with, its configuration, curve and scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pandas as pd

from headdiv.core import paths
from headdiv.experiments.claims.files import RELATION
from headdiv.experiments.claims.ledger import Judgement, readable
from headdiv.experiments.papers import task_of
from headdiv.experiments.results import RunResult, metrics_path
from headdiv.report.formats import NONE, significant
from headdiv.report.scale import machine


@dataclass(frozen=True)
class Grid:
    """A table of text: the first cell of a row is its name.

    Attributes:
        links: by row, what is linked under its name: (text, address).
        numeric: all columns but the first are aligned right.
    """

    caption: str
    columns: list[str]
    rows: list[list[str]]
    links: list[list[tuple[str, str]]] = field(default_factory=list)
    numeric: bool = True


def grid_of(caption: str, table: pd.DataFrame, links: list[list[tuple[str, str]]]) -> Grid:
    """A table with links under the names of its rows."""
    return Grid(caption, list(table.columns), table.astype(str).to_numpy().tolist(), links)


@dataclass(frozen=True)
class RunPage:
    """A run of a profile, and the path of its page.

    Attributes:
        profile: name, or path of a YAML file, as it was given.
    """

    profile: str
    run: RunResult

    @property
    def profile_name(self) -> str:
        """The profile's name, which is that of its folder of results."""
        return paths.profile_file(self.profile).stem

    @property
    def name(self) -> str:
        """The page's file, from the report's folder."""
        experiment = self.run.experiment.replace("/", "_")
        return f"runs/{self.profile_name}_{experiment}_{self.run.variant}_seed{self.run.seed}.html"

    @property
    def href(self) -> str:
        """`name`, as a link."""
        return quote(self.name)

    @property
    def label(self) -> str:
        """The variant, as the paper's table names it."""
        known = task_of(self.run.experiment).variants.get(self.run.variant)
        return known.label if known else self.run.variant

    @property
    def machine(self) -> str:
        """Device, threads, processes."""
        return machine(self.run)

    @property
    def commit(self) -> str:
        """The commit that the run was made at."""
        return self.run.provenance.commit or "outside git"

    def grids(self) -> list[Grid]:
        """Facts, scores, curve, configuration and data of the run."""
        run, made = self.run, self.run.provenance
        path = metrics_path(self.profile, run.experiment, run.variant, run.seed)
        facts = {
            "Run": run.hash,
            "Profile": self.profile_name,
            "Seed": str(run.seed),
            "Commit": self.commit,
            "Scored at commit": made.evaluated_at_commit or self.commit,
            "Machine": self.machine,
            "System": made.system or NONE,
            "Python": made.python or NONE,
            "Packages": ", ".join(f"{name} {version}" for name, version in made.packages.items()),
            "Parameters": f"{run.parameters:,}",
            "Training": f"{run.cost.training_seconds:,.0f} s, {run.cost.target_tokens_per_second:,.0f} tokens/s, "
            f"{run.cost.peak_memory_mib:,.0f} MiB at most",
            "Stored in": path.relative_to(paths.home()).as_posix(),
            "Command": f"headdiv train {run.experiment} {run.variant} --seed {run.seed} --profile {self.profile}",
        }
        scores = [
            [name, significant(score.value), score.unit or NONE, score.signature] for name, score in run.scores.items()
        ]
        points = [point.numbers() for point in run.curve]
        names = list(dict.fromkeys(name for point in points for name in point))
        epochs = [[_number(point.get(name)) for name in names] for point in points]
        settings = list(_flat({name: section for name, section in run.config.sections().items() if section}))
        data = list(_flat(run.data.model_dump(exclude_unset=True)))
        pairs = ["Key", "Value"]
        return [
            Grid("Origin", pairs, [[name, value] for name, value in facts.items()], numeric=False),
            Grid("Scores with their signatures", ["Score", "Value", "Unit", "Definition"], scores, numeric=False),
            Grid("By epoch", names, epochs),
            Grid("Configuration: every setting, defaults included", pairs, settings, numeric=False),
            Grid("Data: statistics of the corpus", pairs, data, numeric=False),
        ]


def _number(value: float | None) -> str:
    return f"{value:,}" if isinstance(value, int) else significant(value)


def _flat(value: Any, at: str = "") -> Iterator[list[str]]:
    """Keys joined by dots, with values as JSON; a list is a value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{at}.{key}" if at else str(key))
    else:
        yield [at, json.dumps(value, ensure_ascii=False)]


# ---- the ledger of claims


def run_pages(judgement: Judgement) -> list[RunPage]:
    """The pages of the runs that a claim was measured by; [] where it was not."""
    return [RunPage(judgement.profile, run) for run in judgement.runs] if judgement.profile else []


def shown(value: float | bool | None, unit: str) -> str:
    """A claim's number with its unit, or whether a relation holds."""
    if value is None:
        return NONE
    if unit == RELATION or isinstance(value, bool):
        return "holds" if value else "does not hold"
    return f"{readable(value)} {unit}".rstrip()
