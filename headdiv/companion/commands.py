"""Commands that messages and pages name, as a shell takes them: a profile's path may hold spaces."""

from __future__ import annotations

import shlex
from pathlib import Path


def headdiv_command(*words: object) -> str:
    """``headdiv`` with these words."""
    return shlex.join(["headdiv", *map(str, words)])


def run_command(command: str, experiment: str, variant: str, seed: object, profile: str) -> str:
    """``headdiv`` with a command for one run: ``train``."""
    return headdiv_command(command, experiment, variant, "--seed", seed, "--profile", profile)


def reproduce_command(profile: str) -> str:
    """What makes all of a profile's results with Snakemake."""
    return shlex.join(["snakemake", "reproduce-all", "--config", f"profile={profile}"])


def remedy(path: Path, profile: str | None = None, command: str = "train") -> str:
    """The end of a sentence about a file among a run's results that cannot be used: what makes it anew."""
    *_, name, paper, task, variant, seed, _ = path.parts
    full_command = run_command(command, f"{paper}/{task}", variant, seed.removeprefix("seed"), profile or name)
    return f"`{full_command}` makes it anew"
