"""Commands that messages and pages name, as a shell takes them: a profile's path may hold spaces."""

from __future__ import annotations

import shlex


def headdiv_command(*words: object) -> str:
    """``headdiv`` with these words."""
    return shlex.join(["headdiv", *map(str, words)])


def reproduce_command(profile: str) -> str:
    """What makes all of a profile's results with Snakemake."""
    return shlex.join(["snakemake", "reproduce-all", "--config", f"profile={profile}"])
