"""Trainings, and preparations of corpora, that are killed at any moment end in the same bits."""

import json
import multiprocessing
import os
import random
import shutil
import sys
import time

import pytest
import yaml
from small_runs import EVERY_TASK

PATIENCE = 120.0  # seconds: what takes longer hangs
LONG = {"epochs": 5, "checkpoint_seconds": 0.05}
VARIANTS = {"translation": "rotation", "summarisation": "direct-2", "qa": "baseline", "lm": "baseline"}
DEFINE = {
    "rotation": {"name": "dynamic-rotation", "choice": "hard", "swaps": 1},
    "direct-2": {"name": "deacon", "architecture": "direct", "m": 2},
}
KILLS = 4
TIMES = ("training_days", "inference_ms")  # scores that are no two times the same

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["headdiv.companion.command_line", "headdiv.companion.experiments.evaluation"])


def command(home, arguments):
    from headdiv.companion.command_line import main

    os.environ.update(HEADDIV_HOME=str(home), HEADDIV_DEVICE="cpu")
    with open(home / "said.txt", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    sys.argv = ["headdiv", *arguments]
    main()


def run(home, *arguments, kill=PATIENCE):
    """The exit status of a command that gets SIGKILL after so many seconds."""
    process = processes.Process(target=command, args=(home, arguments))
    process.start()
    process.join(kill)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def result(home, experiment, variant):
    """What must be equal: the prepared corpora's files, outputs, the model, and all measured numbers but times."""
    folder = home / "results" / "killed" / experiment / variant / "seed1"
    metrics = json.loads((folder / "metrics.json").read_text())
    measured = {key: metrics[key] for key in ("hash", "curve", "heads", "parameters", "data")}
    measured["scores"] = {name: score for name, score in metrics["scores"].items() if name not in TIMES}
    files = [
        *(home / "data").rglob("*"),
        folder / "outputs.json.xz",
        home / "work" / metrics["hash"] / "model.safetensors",
    ]
    contents = {
        path.relative_to(home): path.read_bytes() for path in files if path.is_file() and path.suffix != ".lock"
    }
    return measured, contents


@pytest.mark.slow
@pytest.mark.parametrize("task", VARIANTS)
def test_what_is_killed_again_and_again_ends_as_if_nothing_had_happened(tmp_path, task):
    experiment, variant, chance = f"deacon/{task}", VARIANTS[task], random.Random(task)
    settings = EVERY_TASK[task] | {"train": EVERY_TASK[task]["train"] | LONG, "variants": [variant]}
    settings["define"] = {variant: DEFINE[variant]} if variant in DEFINE else {}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for home in (whole, killed):
        (home / "config").mkdir(parents=True)
        (home / "Snakefile").touch()
        profile = {"title": "killed", "seeds": [1], "experiments": {experiment: settings}}
        (home / "config" / "killed.yaml").write_text(yaml.safe_dump(profile))
    train, began = ("train", experiment, variant, "--profile", "killed"), time.monotonic()
    assert run(whole, *train) == 0, (whole / "said.txt").read_text()
    seconds, kills = time.monotonic() - began, 0
    while kills < KILLS:
        status = run(killed, *train, kill=chance.uniform(0.1, 0.7) * seconds)
        assert status in (0, -9), (killed / "said.txt").read_text()
        kills += status == -9
        if status == 0:  # it was done before the blow: from the beginning
            for name in ("data", "work", "results"):
                shutil.rmtree(killed / name)
    assert run(killed, *train) == 0, (killed / "said.txt").read_text()
    assert result(killed, experiment, variant) == result(whole, experiment, variant)
