"""How report and plan grow with the runs stored: `headdiv report` and `snakemake -n` for 250, 500, 1,000 and 2,000.

    .venv/bin/python tests/torture/load.py [COUNT …]

The runs are copies of those stored in results/dissection, with other seeds and losses, in a project of their own.
Seconds are of a core (user and system, children included), since those of the clock are other processes' too; MiB are
the largest process's.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from itertools import islice, product
from pathlib import Path
from typing import Any

import yaml

from headdiv.core import manifest
from headdiv.core.files import read_json, write_json

ROOT = Path(__file__).parents[2]
PROFILE, EXPERIMENT = "dissection", "deacon/dissection"
LOSSES = ("training_loss", "validation_nll")
COUNTS = (250, 500, 1000, 2000)
WORKFLOW = ("Snakefile", "environment.yml", "notebooks", "config/report")
REPORT = ("headdiv", "report", "--profile", "load")
PLAN = ("snakemake", "reproduce-all", "-n", "-q", "--config", "profile=load")
VARIANTS = 20  # at most, of each of which there are as many seeds as it takes


def store(home: Path, count: int) -> None:
    """A project with so many runs."""
    stored = {
        folder.name: folder
        for folder in sorted((ROOT / "results" / PROFILE / EXPERIMENT).iterdir())
        if (folder / "seed1" / "metrics.json").is_file()
    }
    variants = list(stored)[:VARIANTS]
    seeds = range(1, 1 + -(-count // len(variants)))
    profile = yaml.safe_load((ROOT / "config" / f"{PROFILE}.yaml").read_text(encoding="utf-8"))
    profile["seeds"], profile["experiments"][EXPERIMENT]["variants"] = list(seeds), variants
    for name in WORKFLOW:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, home / name)
    (home / "config" / "load.yaml").write_text(yaml.safe_dump(profile, sort_keys=False), encoding="utf-8")
    rng = random.Random(1)
    for seed, variant in islice(product(seeds, variants), count):
        target = home / "results" / "load" / EXPERIMENT / variant / f"seed{seed}"
        shutil.copytree(stored[variant] / "seed1", target, ignore=shutil.ignore_patterns(manifest.MANIFEST))
        write_json(target / "metrics.json", varied(read_json(target / "metrics.json"), seed, rng))
        manifest.note(target)


def varied(run: dict[str, Any], seed: int, rng: random.Random) -> dict[str, Any]:
    """A run's result with another seed, and losses moved by about a hundredth; BLEU is that of its outputs."""
    scores = run["scores"]
    moved = {name: scores[name] | {"value": scores[name]["value"] * rng.gauss(1, 0.01)} for name in LOSSES}
    return run | {"seed": seed, "hash": f"{run['hash']}-{seed}", "scores": scores | moved}


def measured(home: Path, *command: str) -> tuple[float, float]:
    """Seconds of a core, and MiB, of a module's command in that project."""
    child = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=home, stdout=subprocess.DEVNULL,
        env=os.environ | {"HEADDIV_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} failed with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(counts: list[int]) -> None:
    """Print a line for each count."""
    print("| stored runs | report (s) | (MiB) | `snakemake -n` (s) | (MiB) |\n|---|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "project"
            store(home, count)
            numbers = [number for command in (REPORT, PLAN) for number in measured(home, *command)]
            print(f"| {count:,} | {' | '.join(f'{number:,.0f}' for number in numbers)} |", flush=True)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or list(COUNTS))
