"""The stored results of a profile's runs: written, collected, compared, and as tables."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headdiv.companion import paths
from headdiv.companion.commands import reproduce_command
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import (
    DataStatistics,
    RunResult,
    StoredOutputs,
    metrics_path,
    stored_files,
    write_outputs,
)
from headdiv.companion.tasks.run_config import difference
from headdiv.core.errors import DataError, HeaddivError, NotStoredError
from headdiv.core.files import in_lines, read_json, write_text

# Sections of the configuration that all runs of an experiment have in common, but for keys that are tuned …
SHARED = ("data", "train")
OF_VARIANT = ("data", "model", "method", "train", "decode")  # … and those that all runs of a variant do
DECIDING = OF_VARIANT[:-1]  # what a run is trained to
COSTS = ("training_seconds", "target_tokens_per_second", "peak_memory_mib")


def record(metrics: Mapping[str, Any], profile: str) -> Path:
    """Write a run's metrics to their path in the profile's results, and its outputs beside them (`StoredOutputs`).

    Earlier files are replaced whole.
    """
    result = RunResult.parse(metrics)
    path = metrics_path(profile, result.experiment, result.variant, result.seed)
    outputs = StoredOutputs()
    if result.outputs:
        searched = read_json(paths.home() / result.outputs)
        more = {name: read_json(paths.home() / other)["test"] for name, other in result.more_outputs.items()}
        outputs = StoredOutputs(
            test=searched["test"], tokens=searched.get("tokens"), counts=searched.get("counts"), more=more
        )
    write_outputs(path, outputs)
    write_text(path, in_lines(dict(metrics)))
    return path


def stored(profile: str, experiment: str) -> list[RunResult]:
    """A profile's runs of an experiment, as far as they are stored, in the profile's order.

    Files of variants and seeds that the profile does not name are left alone.

    Raises:
        ConfigError: no such profile or experiment, or none of its variants is tuned yet.
        DataError: none of its runs is stored, one has metrics of another format, or two were not made alike: with
            other data (by its settings, its files' checksums, or what was counted in it) or training, or, of one
            variant, with another model, method or search.
    """
    profile_runs = Runs(profile)
    files = stored_files(profile, profile_runs.configs(experiment))
    results = {path: RunResult.read(path, profile) for path in files}
    command = f"`{reproduce_command(profile)}`"
    if not results:
        raise NotStoredError(f"{paths.results(profile) / experiment}: no stored results; {command} makes them")
    first, free = next(iter(results)), profile_runs.free_keys(experiment)
    first_of_variant: dict[str, Path] = {}
    for path, run in results.items():
        same_variant = first_of_variant.setdefault(run.variant, path)
        for other, sections, may_differ in ((first, SHARED, free), (same_variant, OF_VARIANT, ())):
            if mismatch := run_difference(run, results[other], sections, may_differ):
                raise DataError(
                    f"{path}: {mismatch} in {other}; remove the older of the two, and {command} makes it anew"
                )
    return list(results.values())


def with_results(profile: str) -> dict[str, list[RunResult]]:
    """The stored runs of each experiment of a profile that has any, in the profile's order.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored at all, or metrics of another format.
    """
    runs = Runs(profile)
    experiments = dict.fromkeys(config.experiment for config in stored_files(profile, runs.configs()).values())
    # With nothing stored the first experiment's own error says how to make it.
    return {experiment: stored(profile, experiment) for experiment in experiments or runs.experiments()[:1]}


def best_profiles(experiment: str) -> list[str]:
    """The profiles with stored runs of an experiment, the best evidence first.

    Real text comes before generated text, a comparison before a single variant, longer training before shorter
    (parameters × tokens), and more seeds before fewer. A profile whose results cannot be read is left out.
    """
    ranks: dict[str, tuple[bool, bool, float, int]] = {}
    for profile in sorted(folder.name for folder in (paths.home() / "results").glob("*/")):
        with contextlib.suppress(HeaddivError):
            if files := stored_files(profile, Runs(profile).configs(experiment)):
                run = RunResult.read(next(iter(files)), profile)  # the others are trained alike
                variants = {config.variant for config in files.values()}
                seeds = {config.seed for config in files.values()}
                work = run.parameters * run.curve[-1].steps * run.config.train["tokens_per_batch"]
                ranks[profile] = (run.data_name != "toy", len(variants) > 1, work, len(seeds))
    return sorted(ranks, key=ranks.__getitem__, reverse=True)


def run_difference(run: RunResult, other: RunResult, sections: Sequence[str], free: Container[str] = ()) -> str | None:
    """The first difference in how two runs were made, in words; None where there is none.

    Compared are these sections of their configurations but for the keys that are ``free`` (`difference`), their
    corpora, and, where "method" is among the sections, the code of a method of one's own.
    """
    mismatch = difference(run.config.sections(), other.config.sections(), sections, free)
    mismatch = mismatch or corpus_difference(run.data, other.data)
    codes = run.provenance.method_code, other.provenance.method_code
    if mismatch or "method" not in sections or None in codes or codes[0] == codes[1]:
        return mismatch
    return f"provenance.method_code is {codes[0]!r}, but {codes[1]!r}"


def corpus_difference(corpus: DataStatistics, other: DataStatistics) -> str | None:
    """The first statistic by which two corpora differ, in words; None where there is none.

    Only keys of both are compared: others were added between the two. The last digits of a mean depend on the machine.
    What was drawn from a stream belongs to the run, not to the corpus.
    """
    first, second = (data.model_dump(exclude={"stream"}, exclude_unset=True) for data in (corpus, other))
    for key in (key for key in first if key in second):
        pairs = {key: (first[key], second[key])}
        if key in ("train", "valid", "test"):
            names = (name for name in first[key] if name in second[key])
            pairs = {f"{key}.{name}": (first[key][name], second[key][name]) for name in names}
        for name, (left, right) in pairs.items():
            if left != right and not (isinstance(left, float) and math.isclose(left, right)):
                return f"data.{name} is {left!r}, but {right!r}"
    return None


def runs(profile: str, by_epoch: bool = False) -> pd.DataFrame:
    """All stored runs of a profile, to be compared: a row a run, or a row a run and epoch.

    Columns: paper, task, kind, variant, seed, hash; of a run data (its name), epochs, parameters, training_seconds,
    target_tokens_per_second, peak_memory_mib, device and every score; of an epoch its numbers. Errors are those of
    `with_results`; units and how a score is made: `score_table`.
    """
    rows = []
    for stored_runs in with_results(profile).values():
        for run in stored_runs:
            identity = {name: getattr(run, name) for name in ("paper", "task", "kind", "variant", "seed", "hash")}
            if by_epoch:
                rows += [identity | point.numbers() for point in run.curve]
                continue
            totals = {"data": run.data_name, "epochs": run.epochs, "parameters": run.parameters}
            costs = {name: getattr(run.cost, name) for name in COSTS} | {"device": run.provenance.device}
            rows.append(identity | totals | costs | {name: score.value for name, score in run.scores.items()})
    return pd.DataFrame(rows)


def score_table(metrics: Mapping[str, Any]) -> pd.DataFrame:
    """Value, unit and signature of each score of one run."""
    scores = RunResult.parse(metrics).scores
    return pd.DataFrame({name: score.model_dump() for name, score in scores.items()}).T[["value", "unit", "signature"]]
