"""The stored results of a profile's runs: written, collected, compared, and as tables."""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headdiv.core import paths
from headdiv.core.errors import DataError
from headdiv.core.files import checksum, read_json, write_json, write_text
from headdiv.experiments.profiles import Runs
from headdiv.experiments.run_result import DataStatistics, RunResult, metrics_path
from headdiv.tasks.config import first_difference
from headdiv.tasks.counts import counts_path

# Sections of the configuration that all runs of an experiment have in common, but for keys that are tuned …
SHARED = ("data", "train")
OF_VARIANT = ("data", "model", "method", "train", "decode")  # … and those that all runs of a variant do
COSTS = ("training_seconds", "target_tokens_per_second", "peak_memory_mib")


def record(metrics: Mapping[str, Any], profile: str) -> Path:
    """Write a run's metrics to their path in the profile's results; an earlier file is replaced whole.

    Beside them come ``outputs.json``, a copy of the test set's outputs (translations, summaries, answers; an empty list
    for a task that has none), ``counts.csv``, what BLEU needs of each sentence of a translation, ``examples.json``,
    what the report shows of the run (`headdiv.experiments.showcase`), and ``model.json``, which says where the trained
    model lies: path, bytes, SHA-256.
    """
    result = RunResult.parse(metrics)
    path = metrics_path(profile, result.experiment, result.variant, result.seed)
    outputs = read_json(paths.home() / result.outputs) if result.outputs else []
    note_owner(profile)
    write_json(path.with_name("outputs.json"), outputs)
    if result.outputs and (counts := counts_path(paths.home() / result.outputs)).is_file():
        write_text(counts_path(path.with_name("outputs.json")), counts.read_text())
    if (examples := paths.work() / result.hash / "examples.json").is_file():
        write_text(path.with_name("examples.json"), examples.read_text(encoding="utf-8"))
    model = paths.work() / result.hash / "model.safetensors"
    if model.is_file():  # not where metrics of another machine are recorded
        relative = model.relative_to(paths.home()).as_posix()
        manifest = {"model": relative, "bytes": model.stat().st_size, "sha256": checksum(model)}
        write_json(path.with_name("model.json"), manifest)
    write_json(path, metrics)
    return path


def note_owner(profile: str) -> None:
    """Write the profile's file into the folder of its results where its name does not say which it is."""
    file = paths.profile_file(profile).resolve()
    if file != paths.home() / "config" / f"{file.stem}.yaml":
        write_text(paths.results(profile) / paths.OWNER, f"{os.path.relpath(file, paths.home())}\n")


def stored(profile: str, experiment: str) -> list[RunResult]:
    """A profile's runs of an experiment, as far as they are stored, in the profile's order.

    Files of variants and seeds that the profile does not name are left alone.

    Raises:
        ConfigError: no such profile or experiment, or none of its variants is tuned yet.
        DataError: none of its runs is stored, one has metrics of another format, or two were not made alike: with
            other data (by its settings, or by what was counted in it) or training, or, of one variant, with another
            model, method or search.
    """
    known = Runs(profile)
    configs, tuned = known.of(experiment), known.tuned_keys(experiment)
    files = [metrics_path(profile, experiment, config.variant, config.seed) for config in configs]
    found = {path: RunResult.read(path, profile) for path in files if path.is_file()}
    command = f"`snakemake reproduce-all --config profile={profile}`"
    if not found:
        raise DataError(f"{paths.results(profile) / experiment}: no stored results; {command} makes them")
    first = next(iter(found))
    of_variant: dict[str, Path] = {}
    for path, run in found.items():
        of_its_own = of_variant.setdefault(run.variant, path)
        for one, sections, free in ((first, SHARED, tuned), (of_its_own, OF_VARIANT, ())):
            differs = difference(run.config.sections(), found[one].config.sections(), sections, free)
            if differs := differs or _corpus_difference(run.data, found[one].data):
                raise DataError(f"{path}: {differs} in {one}; remove the older of the two, and {command} makes it anew")
    return list(found.values())


def with_results(profile: str) -> dict[str, list[RunResult]]:
    """The stored runs of each experiment of a profile that has any, in the profile's order.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored at all, or metrics of another format.
    """
    runs = Runs(profile)
    there = [
        experiment
        for experiment in runs.experiments()
        if any(
            metrics_path(profile, experiment, config.variant, config.seed).is_file()
            for config in runs.all()
            if config.experiment == experiment
        )
    ]
    # With nothing stored the first experiment's own error says how to make it.
    return {experiment: stored(profile, experiment) for experiment in there or runs.experiments()[:1]}


def failures(profile: str) -> list[str]:
    """One sentence for each stored run of a profile that diverged or learnt nothing (`RunResult.failures`)."""
    runs = (run for runs in with_results(profile).values() for run in runs)
    return [f"{run.name}: {sentence}" for run in runs for sentence in run.failures()]


def difference(
    one: dict[str, Any], other: dict[str, Any], sections: Iterable[str], free: Container[str] = ()
) -> str | None:
    """The first difference of two configurations in words: "train.epochs is 10, but 30"; None where there is none.

    ``sections`` and ``free`` are as for `headdiv.tasks.config.first_difference`.
    """
    if (key := first_difference(other, one, sections, free)) is None:
        return None
    section, _, name = key.partition(".")
    return f"{key} is {', but '.join(repr(of[section].get(name, 'left at its default')) for of in (one, other))}"


def _corpus_difference(one: DataStatistics, other: DataStatistics) -> str | None:
    """The first statistic by which two corpora differ, in words; None where there is none.

    A key that only one has came later than the other. The last digits of a mean are the machine's.
    """
    mine, its = one.by_name(), other.by_name()
    for key in (key for key in mine if key in its):
        values = mine[key], its[key]
        if values[0] != values[1] and not (isinstance(values[0], float) and math.isclose(*values)):
            return f"data.{key} is {values[0]!r}, but {values[1]!r}"
    return None


def runs_frame(profile: str) -> pd.DataFrame:
    """All stored runs of a profile as a tidy table: one line a run and score; errors as those of `with_results`.

    Columns: paper, task, kind, variant, seed, hash, data (its name), epochs, parameters, training_seconds,
    target_tokens_per_second, peak_memory_mib, device; score, value, unit, signature.
    """
    identity = ("paper", "task", "kind", "variant", "seed", "hash")
    return pd.DataFrame(
        {name: getattr(run, name) for name in identity}
        | {"data": run.data_name, "epochs": run.epochs, "parameters": run.parameters}
        | {name: getattr(run.cost, name) for name in COSTS}
        | {"device": run.provenance.device, "score": name}
        | {"value": score.value, "unit": score.unit, "signature": score.signature}
        for runs in with_results(profile).values()
        for run in runs
        for name, score in run.scores.items()
    )


def score_table(metrics: Mapping[str, Any] | RunResult) -> pd.DataFrame:
    """Value, unit and signature of each score of one run."""
    scores = RunResult.parse(metrics).scores
    return pd.DataFrame({name: score.model_dump() for name, score in scores.items()}).T[["value", "unit", "signature"]]
