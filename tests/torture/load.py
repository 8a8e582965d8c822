"""How a report grows with the runs stored: seconds and memory of `headdiv report` for 250, 500, 1,000 and 2,000.

    .venv/bin/python tests/torture/load.py [COUNT …]

The runs are copies of those stored in results/dissection, with other seeds and losses, in a project of their own.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path
from typing import Any

import yaml

from headdiv.core.files import read_json, write_json

ROOT = Path(__file__).parents[2]
PROFILE, EXPERIMENT = "dissection", "deacon/dissection"
LOSSES = ("training_loss", "validation_nll")
COUNTS = (250, 500, 1000, 2000)
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
    (home / "config").mkdir(parents=True)
    (home / "config" / "load.yaml").write_text(yaml.safe_dump(profile, sort_keys=False), encoding="utf-8")
    rng = random.Random(1)
    for seed, variant in islice(product(seeds, variants), count):
        target = home / "results" / "load" / EXPERIMENT / variant / f"seed{seed}"
        shutil.copytree(stored[variant] / "seed1", target)
        write_json(target / "metrics.json", varied(read_json(target / "metrics.json"), seed, rng))


def varied(run: dict[str, Any], seed: int, rng: random.Random) -> dict[str, Any]:
    """A run's result with another seed, and losses moved by about a hundredth; BLEU is that of its outputs."""
    scores = run["scores"]
    moved = {name: scores[name] | {"value": scores[name]["value"] * rng.gauss(1, 0.01)} for name in LOSSES}
    return run | {"seed": seed, "hash": f"{run['hash']}-{seed}", "scores": scores | moved}


def measured(home: Path) -> tuple[float, float, float]:
    """Seconds, seconds of a core and MiB (the largest process's) of a report."""
    begin = time.perf_counter()
    child = os.spawnve(
        os.P_NOWAIT, sys.executable, [sys.executable, "-m", "headdiv", "report", "--profile", "load"],
        os.environ | {"HEADDIV_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"headdiv report failed with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(counts: list[int]) -> None:
    """Print a line for each count."""
    print("| stored runs | seconds | of a core | MiB |\n|---|---|---|---|")
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "project"
            store(home, count)
            seconds, of_a_core, mebibytes = measured(home)
            print(f"| {count:,} | {seconds:.0f} | {of_a_core:.0f} | {mebibytes:,.0f} |", flush=True)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or list(COUNTS))
