"""What any run must show before its numbers are worth a look."""

from __future__ import annotations

from headdiv.experiments.profiles import Runs
from headdiv.experiments.results import RunResult, stored


def failures(profile: str) -> list[str]:
    """One sentence for each stored run of a profile that has learnt nothing: [] when all have.

    The training loss must have fallen from the first epoch to the last (where there are two), and the
    validation loss must be below that of the simplest model, which knows frequencies only.

    Raises:
        ConfigError: no such profile.
        DataError: an experiment has no stored run.
    """
    runs = (metrics for experiment in Runs(profile).experiments() for metrics in stored(profile, experiment))
    return [sentence for metrics in runs for sentence in _of(metrics)]


def _of(metrics: RunResult) -> list[str]:
    name = f"{metrics['paper']}/{metrics['task']}, {metrics['variant']}, seed {metrics['seed']}"
    first, last = (metrics["curve"][at]["training_loss"] for at in (0, -1))
    nll, unigram = (metrics["scores"][key]["value"] for key in ("validation_nll", "unigram_nll"))
    found = []
    if len(metrics["curve"]) > 1 and last >= first:
        found.append(f"{name}: the training loss went from {first:.4f} to {last:.4f}")
    if nll >= unigram:
        found.append(f"{name}: the validation loss {nll:.4f} is not below {unigram:.4f}, that of frequencies alone")
    return found
