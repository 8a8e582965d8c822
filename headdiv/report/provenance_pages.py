"""A page for every run: what it was made with, its configuration, curve and scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headdiv.core import paths
from headdiv.experiments.papers import task_of
from headdiv.experiments.results import Metrics, metrics_path
from headdiv.report.formats import NONE, plural, significant

FOLDER = "runs"
SECTIONS = ("data", "model", "method", "train", "decode")  # of a configuration
WIDTH, HEIGHT = 640, 280  # of the drawing of a curve, in its own units
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 16, 34  # its margins
LINES = {"training_loss": "training loss", "validation_nll": "validation loss"}


@dataclass(frozen=True)
class RunPage:
    """A run of a profile, and where its page lies.

    Attributes:
        profile: name, or path of a YAML file, as it was given.
    """

    profile: str
    metrics: Metrics

    @property
    def experiment(self) -> str:
        """``<paper>/<task>``."""
        return f"{self.metrics['paper']}/{self.metrics['task']}"

    @property
    def profile_name(self) -> str:
        """The profile's name, which is that of its folder of results."""
        return paths.profile_file(self.profile).stem

    @property
    def name(self) -> str:
        """The page's file, from the report's folder."""
        run = self.metrics
        return f"{FOLDER}/{self.profile_name}_{run['paper']}_{run['task']}_{run['variant']}_seed{run['seed']}.html"

    @property
    def href(self) -> str:
        """`name`, as a link."""
        return quote(self.name)

    @property
    def label(self) -> str:
        """The variant, as the paper's table calls it."""
        known = task_of(self.experiment).variants.get(self.metrics["variant"])
        return known.label if known else self.metrics["variant"]

    @property
    def machine(self) -> str:
        """Device, threads, processes."""
        told = self.metrics["provenance"]
        ranks = told.get("ranks", 1)
        return f"{told['device']}, {plural(told['threads'], 'thread')}" + (f", {ranks} ranks" if ranks > 1 else "")

    def facts(self) -> dict[str, str]:
        """What the run is and was made with."""
        run, made = self.metrics, self.metrics["provenance"]
        path = metrics_path(self.profile, self.experiment, run["variant"], run["seed"])
        return {
            "Run": run["hash"],
            "Profile": self.profile_name,
            "Seed": str(run["seed"]),
            "Commit": made["commit"] or "not known: made outside git",
            "Scored at commit": made.get("evaluated_at_commit") or made["commit"] or NONE,
            "Machine": self.machine,
            "System": made.get("system", NONE),
            "Python": made.get("python", NONE),
            "Packages": ", ".join(f"{name} {version}" for name, version in made["packages"].items()),
            "Parameters": f"{run['parameters']:,}",
            "Training": f"{run['cost']['training_seconds']:,.0f} s, "
            f"{run['cost']['target_tokens_per_second']:,.0f} tokens/s, "
            f"{run['cost']['peak_memory_mib']:,.0f} MiB at most",
            "Stored in": path.relative_to(paths.home()).as_posix(),
            "Made anew by": f"headdiv train {self.experiment} {run['variant']} --seed {run['seed']} "
            f"--profile {self.profile}",
        }

    def scores(self) -> list[list[str]]:
        """Name, value, unit and signature of each."""
        return [
            [name, significant(score["value"]), score["unit"] or NONE, score["signature"]]
            for name, score in self.metrics["scores"].items()
        ]

    def settings(self) -> list[list[str]]:
        """Every key of the configuration with its value as JSON."""
        config = self.metrics["config"]
        return [row for section in SECTIONS if section in config for row in _flat(config[section], section)]

    def statistics(self) -> list[list[str]]:
        """What the data turned out to be."""
        return list(_flat(self.metrics["data"], ""))

    def curve(self) -> tuple[list[str], list[list[str]]]:
        """The numbers of each epoch: their names, and a line for each epoch."""
        points = self.metrics["curve"]
        names = dict.fromkeys(key for point in points for key, value in point.items() if isinstance(value, int | float))
        return list(names), [[_number(point[name]) if name in point else NONE for name in names] for point in points]

    def drawing(self) -> dict[str, Any]:
        """Losses by epoch as the points of lines, with the axes' marks; {} where there is one epoch."""
        points = self.metrics["curve"]
        if len(points) < 2:
            return {}
        values = {key: [point[key] for point in points] for key in LINES if key in points[0]}
        every = [value for told in values.values() for value in told]
        low, high = min(every), max(every)
        across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

        def x(index: int) -> float:
            return round(LEFT + across * index / (len(points) - 1), 1)

        def y(value: float) -> float:
            return round(TOP + down * (1 - (value - low) / ((high - low) or 1.0)), 1)

        return {
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "bottom": HEIGHT - BOTTOM,
            "unit": self.metrics["scores"]["training_loss"]["unit"],
            "lines": {
                LINES[key]: " ".join(f"{x(index)},{y(value)}" for index, value in enumerate(told))
                for key, told in values.items()
            },
            "levels": [(y(value), f"{value:.2f}") for value in (low, (low + high) / 2, high)],
            "epochs": [(x(index), points[index]["epoch"]) for index in sorted({0, len(points) // 2, len(points) - 1})],
        }


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else significant(value)


def _flat(told: Any, at: str) -> Iterator[list[str]]:
    """Keys joined by dots, with values as JSON; a list is a value."""
    if isinstance(told, dict) and told:
        for key, value in told.items():
            yield from _flat(value, f"{at}.{key}" if at else str(key))
    else:
        yield [at, json.dumps(told, ensure_ascii=False)]
