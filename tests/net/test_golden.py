"""Four tiny runs whose losses, curves and weights are pinned: a change of numerics does not go by unnoticed.

Losses are compared on every machine with a tolerance. The weights after the last step and the whole curve are compared
bit for bit on the machines that are recorded in ``golden.json``, since other processors add in another order.

HEADDIV_UPDATE_GOLDEN=1 writes the pins anew where they no longer hold, and adds this machine where they do (see
CONTRIBUTING.md).
"""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from headdiv.companion.experiments.running import train
from headdiv.companion.provenance import processor
from headdiv.companion.tasks.run_config import RECIPE
from headdiv.core.files import canonical_json, read_json, write_json
from headdiv.training.learner import Learner

PINS = Path(__file__).with_name("golden.json")
STEPS = 20
TOLERANCE = 1e-4  # relative, of losses: other machines add in another order
# Of epochs' losses. Batch normalisation hides from the training loss, but not from the validation loss, what rounding
# makes of a bias in front of it, whose gradient is 0.
OF_EPOCHS = {"direct-8": 1e-3}
RUNS = {
    "baseline": {"name": "baseline"},
    "direct-8": {"name": "deacon", "architecture": "direct", "m": 8},
    "moa": {"name": "moa", "experts": 8, "k": 4},
    "rfb": {"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5, "q_att": 3},
}


def machine():
    """Where bits can be expected to be equal."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {processor()}"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def measure(project, patch, method, **train_settings):
    """Losses of the steps and of the epochs, and the SHA-256 of the weights after the last step and of the curve."""
    settings = {"epochs": 4, "clip_norm": 1.0} | train_settings
    config = project.config("golden", train=settings, variants=["golden"], define={"golden": method})
    losses, bits, step = [], {}, Learner.step

    def recorded(self, *args):
        sums = step(self, *args)
        losses.append(sums.loss / sums.count)
        if len(losses) == STEPS:
            values = [value.numpy().tobytes() for _, value in sorted(self.model.state_dict().items())]
            bits["weights"] = sha256(b"".join(values))
        return sums

    patch.setattr(Learner, "step", recorded)
    curve = train(config).record["curve"]
    bits["curve"] = sha256(canonical_json(curve).encode())
    of_epochs = [[point["training_loss"], point["validation_nll"]] for point in curve]
    return {"losses": losses[:STEPS], "curve": of_epochs, "bits": {machine(): bits}}


def differences(pinned, measured, here=None, of_epochs=TOLERANCE):
    """In what a run differs from its pins: sentences, none if it does not. Of the machine ``here`` bits count too."""
    found = []
    for what in ("losses", "curve"):
        tolerance = TOLERANCE if what == "losses" else of_epochs
        for number, (old, new) in enumerate(zip(pinned[what], measured[what], strict=True), start=1):
            if new != pytest.approx(old, rel=tolerance):
                place = f"loss of step {number}" if what == "losses" else f"losses of epoch {number}"
                found.append(f"{place}: {new}, pinned {old}")
    for what, digest in pinned["bits"].get(here, {}).items():
        if (new := measured["bits"][here][what]) != digest:
            found.append(f"{what} after step {STEPS}: {new}, pinned {digest}")
    return found


def renew(pins, name, measured):
    """The pins with what was measured: this machine's bits alone where all else holds."""
    if name not in pins or differences(pins[name], measured, machine(), OF_EPOCHS.get(name, TOLERANCE)):
        return pins | {name: measured}
    return pins | {name: pins[name] | {"bits": pins[name]["bits"] | measured["bits"]}}


@pytest.mark.parametrize("name", RUNS)
def test_the_numbers_are_the_pinned_ones(project, monkeypatch, name):
    measured = measure(project, monkeypatch, RUNS[name])
    if os.environ.get("HEADDIV_UPDATE_GOLDEN"):
        stored = read_json(PINS) if PINS.is_file() else {}
        write_json(PINS, renew(stored, name, measured) | {"recipe": RECIPE})
    pins = read_json(PINS)
    assert pins["recipe"] == RECIPE
    found = differences(pins[name], measured, machine(), OF_EPOCHS.get(name, TOLERANCE))
    assert not found, "; ".join([*found, "see 'Results of real runs' in CONTRIBUTING.md"])


def test_a_schedule_that_is_one_step_longer_is_found(project, monkeypatch):
    measured = measure(project, monkeypatch, RUNS["baseline"], warmup_steps=6)  # 5 in the tiny profile
    found = differences(read_json(PINS)["baseline"], measured)
    assert found[0].startswith("loss of step 2:")  # the first loss is that of the fresh model
