"""A whole run of every method: what its curve records, and that an interruption changes nothing, to the last bit."""

import pytest
import torch
from examples import EXAMPLES
from small_runs import interrupt, result

from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.running import run_folder, train
from headdiv.training.learner import Learner

EVERY = {f"{name}-{i}": options for name, examples in EXAMPLES.items() for i, options in enumerate(examples, start=1)}
ONE_EACH = [f"{name}-{len(examples)}" for name, examples in EXAMPLES.items()]
EVERY["mixing-late"] = {"name": "mixing", "start": 0.65}  # interrupted while the optimiser knows nothing of A
ADDS = {"mixing", "disagreement", "dpp", "orthogonality", "hsic"}
SWAPS = {"rotation", "dynamic-rotation"}


def config_of(project, name, seconds=1e6):
    """Three epochs of five steps and a few, checkpoints behind each epoch or behind each step."""
    return project.config(
        name,
        define={name: EVERY[name]},
        variants=[name],
        train={"epochs": 3, "checkpoint_seconds": seconds},
        decode={"beam": 1, "max_length_offset": 2},
    )


# Methods that act between epochs or train by themselves; a step of every method is resumed in `test_methods_contract`.
WITH_STATE = {"baseline", "deacon", "dynamic-rotation", "mixing", "homeostasis", "combined"}
INTERRUPTED = [
    name if EVERY[name]["name"] in WITH_STATE and name != "combined-1" else pytest.param(name, marks=pytest.mark.slow)
    for name in [*ONE_EACH, "combined-1", "mixing-late"]
]


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interruption_changes_nothing(project, name):
    """Once just behind the end of an epoch, then in the middle of the next."""
    config = config_of(project, name)
    run = train(config)
    assert evaluate(run)["heads"].keys() >= {"measures"}
    tensors, curve = result(run.folder)
    run_folder(config).rename(project.home / "straight")
    again = config_of(project, name, seconds=1e-9)
    assert run_folder(again) == run_folder(config)
    interrupt(again, 5, 2)
    assert sorted(path.name for path in (run_folder(again) / "checkpoints").iterdir()) == ["step6", "step7"]
    assert result(train(again).folder) == (tensors, curve)
    check_curve(name, curve)


def check_curve(name, curve):
    """What every run of this method records."""
    method = EVERY[name]["name"]
    assert [point["epoch"] for point in curve] == [1, 2, 3]
    if method in SWAPS | ADDS | {"baseline", "deacon"}:
        expected = [False, False, True] if name == "mixing-late" else [method in ADDS] * 3
        assert ["auxiliary_loss" in point for point in curve] == expected
        assert ["method" in point for point in curve] == {
            "rotation": [True, False, False],
            "dynamic-rotation": [True, True, False],
        }.get(method, [False] * 3)
    if method == "rotation":
        swap = {"kind": "cross", "one": [1, 1], "other": [1, 2]}
        assert curve[0]["method"] == {"swaps": [swap], "back": False}
    if method == "dynamic-rotation":
        there, back = (point["method"] for point in curve[:2])
        assert [swap["kind"] for swap in there["swaps"]] == ["encoder", "decoder", "cross"]
        assert (there["back"], back) == (False, {"swaps": there["swaps"][::-1], "back": True})


def test_the_auxiliary_loss_is_the_mean_over_the_steps_of_an_epoch(project, monkeypatch):
    records, step = [], Learner.step

    def kept(self, *args):
        records.append(step(self, *args))
        return records[-1]

    monkeypatch.setattr(Learner, "step", kept)
    curve = train(config_of(project, "dpp-1")).record["curve"]
    first = 0
    for point in curve:
        sums = records[first : point["steps"]]
        assert point["auxiliary_loss"] == pytest.approx(sum(s.auxiliary for s in sums) / len(sums))
        assert point["training_loss"] == pytest.approx(sum(s.loss for s in sums) / sum(s.count for s in sums))
        assert point["auxiliary_loss"] < 0  # λ·det L is taken off
        first = point["steps"]
    assert first == len(records)


def test_a_penalty_on_equal_heads_parts_them(project):
    """What the method is for: by the end of a short training the heads' outputs agree less than the baseline's."""
    records = {}
    for name, options in (("plain", {"name": "baseline"}), ("apart", EVERY["disagreement-3"] | {"weight": 10.0})):
        config = project.config(name, define={name: options}, variants=[name], train={"epochs": 3})
        measures = evaluate(train(config))["heads"]["measures"]
        cosines = [torch.tensor(module["cosine"]) for module in measures.values()]
        records[name] = torch.stack(cosines).mean().item()
    assert records["apart"] < records["plain"] - 0.02
