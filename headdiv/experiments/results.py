"""Where the metrics of runs lie, and how they are written and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headdiv.core import paths
from headdiv.core.errors import DataError
from headdiv.core.files import read_json, write_json
from headdiv.experiments.evaluation import FORMAT
from headdiv.experiments.profiles import Runs
from headdiv.tasks.config import first_difference

Metrics = dict[str, Any]
SHARED = ("data", "train")  # by all runs of an experiment …
EVERY = ("data", "model", "method", "train", "decode")  # … and by those of a variant


def metrics_path(profile: str, experiment: str, variant: str, seed: int) -> Path:
    """``results/<profile>/<paper>/<task>/<variant>/seed<k>/metrics.json``."""
    return paths.results(profile) / experiment / variant / f"seed{seed}" / "metrics.json"


def record(metrics: Metrics, profile: str) -> Path:
    """Write a run's metrics to their place in the profile's results; an earlier file is replaced whole.

    The test set's outputs (translations, summaries, answers) come to lie beside them as ``outputs.json``.
    """
    experiment = f"{metrics['paper']}/{metrics['task']}"
    path = metrics_path(profile, experiment, metrics["variant"], metrics["seed"])
    if metrics["outputs"]:
        write_json(path.with_name("outputs.json"), read_json(paths.home() / metrics["outputs"]))
    write_json(path, metrics)
    return path


def stored(profile: str, experiment: str) -> list[Metrics]:
    """The metrics of a profile's runs of an experiment, as far as they are stored, in the profile's order.

    Files of variants and seeds that the profile does not name are left alone.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: none of its runs is stored, one has metrics of another format, or two were not made alike: with
            other data or training, or, of one variant, with another model, method or search.
    """
    configs = Runs(profile).of(experiment)
    files = [metrics_path(profile, experiment, config.variant, config.seed) for config in configs]
    found = {path: _read(path, profile) for path in files if path.is_file()}
    if not found:
        folder = paths.results(profile) / experiment
        raise DataError(f"{folder}: no stored results; {_how_to_make(profile)} makes them")
    first = next(iter(found))
    of_variant: dict[str, Path] = {}
    for path, run in found.items():
        _must_be_alike(found, first, path, SHARED, profile)
        _must_be_alike(found, of_variant.setdefault(run["variant"], path), path, EVERY, profile)
    return list(found.values())


def _must_be_alike(found: dict[Path, Metrics], one: Path, other: Path, sections: Sequence[str], profile: str) -> None:
    configs = [found[path]["config"] for path in (one, other)]
    key = first_difference(*configs, sections)
    if key is not None:
        section, _, name = key.partition(".")
        raise DataError(
            f"{other}: {key} is {configs[1][section][name]!r}, but {configs[0][section][name]!r} in {one}; remove the "
            f"older of the two, and {_how_to_make(profile)} makes it anew"
        )


def _read(path: Path, profile: str) -> Metrics:
    metrics = read_json(path)
    told = metrics.get("format") if isinstance(metrics, dict) else None
    if told != FORMAT:
        raise DataError(
            f"{path}: metrics of format {told}, expected {FORMAT}; remove the file, and {_how_to_make(profile)} "
            "makes it anew"
        )
    return metrics


def _how_to_make(profile: str) -> str:
    return f"`snakemake reproduce-all --config profile={profile}`"


def score_table(metrics: Metrics) -> pd.DataFrame:
    """Scores of one run with unit and signature, one a line."""
    return pd.DataFrame(metrics["scores"]).T[["value", "unit", "signature"]]
