"""Four tiny runs whose losses and weights are pinned: a change of numerics does not go by unnoticed.

HEADDIV_UPDATE_GOLDEN=1 writes the pins anew (see CONTRIBUTING.md).
"""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from headdiv.core.files import read_json, write_json
from headdiv.core.provenance import processor
from headdiv.experiments.running import train
from headdiv.tasks.config import RECIPE
from headdiv.training.learner import Learner

PINS = Path(__file__).with_name("golden.json")
STEPS = 20
TOLERANCE = 1e-4  # relative, of losses: other machines add in another order
RUNS = {
    "baseline": {"name": "baseline"},
    "direct-8": {"name": "deacon", "architecture": "direct", "m": 8},
    "moa": {"name": "moa", "experts": 8, "k": 4},
    "rfb": {"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5, "q_att": 3},
}


def machine():
    """Where bits can be expected to be equal."""
    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "cpu": processor()}


def measure(project, patch, method, **train_settings):
    """Losses of the first steps, and the SHA-256 of the weights after them."""
    settings = {"epochs": 4, "clip_norm": 1.0} | train_settings
    config = project.config("golden", train=settings, variants=["golden"], define={"golden": method})
    found, step = {"losses": []}, Learner.step

    def recorded(self, *args):
        sums = step(self, *args)
        found["losses"].append(sums.loss / sums.count)
        if len(found["losses"]) == STEPS:
            weights = [value.numpy().tobytes() for _, value in sorted(self.model.state_dict().items())]
            found["sha256"] = hashlib.sha256(b"".join(weights)).hexdigest()
        return sums

    patch.setattr(Learner, "step", recorded)
    train(config)
    return found | {"losses": found["losses"][:STEPS]}


def differences(pinned, measured, same_machine):
    """In what a run differs from its pins: sentences, none if it does not."""
    pairs = enumerate(zip(pinned["losses"], measured["losses"], strict=True), start=1)
    found = [
        f"loss of step {number}: {new}, pinned {old}"
        for number, (old, new) in pairs
        if new != pytest.approx(old, rel=TOLERANCE)
    ]
    if same_machine and pinned["sha256"] != measured["sha256"]:
        found.append(f"weights after step {STEPS}: {measured['sha256']}, pinned {pinned['sha256']}")
    return found


@pytest.mark.parametrize("name", RUNS)
def test_the_numbers_are_the_pinned_ones(project, monkeypatch, name):
    measured = measure(project, monkeypatch, RUNS[name])
    if os.environ.get("HEADDIV_UPDATE_GOLDEN"):
        stored = read_json(PINS) if PINS.is_file() else {}
        write_json(PINS, stored | {"recipe": RECIPE, "machine": machine(), name: measured})
    pins = read_json(PINS)
    assert pins["recipe"] == RECIPE
    found = differences(pins[name], measured, pins["machine"] == machine())
    assert not found, "; ".join([*found, "see 'Results of real runs' in CONTRIBUTING.md"])


def test_a_schedule_that_is_one_step_longer_is_found(project, monkeypatch):
    measured = measure(project, monkeypatch, RUNS["baseline"], warmup_steps=6)  # 5 in the tiny profile
    found = differences(read_json(PINS)["baseline"], measured, same_machine=False)
    assert found[0].startswith("loss of step 2:")  # the first loss is that of the fresh model
