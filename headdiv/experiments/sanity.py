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
    runs = (run for experiment in Runs(profile).experiments() for run in stored(profile, experiment))
    return [sentence for run in runs for sentence in _failures(run)]


def _failures(run: RunResult) -> list[str]:
    name = f"{run.experiment}, {run.variant}, seed {run.seed}"
    first, last = run.curve[0].training_loss, run.curve[-1].training_loss
    nll, unigram = run.scores["validation_nll"].value, run.scores["unigram_nll"].value
    sentences = []
    if run.epochs > 1 and last >= first:
        sentences.append(f"{name}: the training loss went from {first:.4f} to {last:.4f}")
    if nll >= unigram:
        sentences.append(f"{name}: the validation loss {nll:.4f} is not below {unigram:.4f}, that of frequencies alone")
    return sentences
