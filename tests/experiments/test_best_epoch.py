"""The best epoch's parameters beside the last's: what is kept and what is measured of them, and stopping behind it."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from small_runs import interrupt

from headdiv.companion.experiments import running
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.results import record
from headdiv.companion.experiments.run_result import read_outputs
from headdiv.companion.experiments.running import averaged_run, best_run, load_run, run_folder, train
from headdiv.companion.tasks import TASKS, seq2seq
from headdiv.core.errors import DamageError
from headdiv.core.files import read_json
from headdiv.training.learner import Learner
from headdiv.training.method_steps import MethodSteps

EPOCHS = {"epochs": 4, "checkpoint_seconds": 1e-9}
BEST = "best/model.safetensors"


def losses(patch, *values):
    """The trainings' validation losses are these, epoch by epoch, whatever the models are."""
    real, finish, epoch = running.held_out_loss, running.Trainer._finish_epoch, [0]

    def remembered(self, number, name):
        epoch[0] = number
        return finish(self, number, name)

    patch.setattr(running, "held_out_loss", lambda *args: real(*args) | {"nll": values[epoch[0]]})
    patch.setattr(running.Trainer, "_finish_epoch", remembered)


@pytest.fixture
def second(finished, monkeypatch):
    """A run of four epochs whose second is the best: the third is no better."""
    losses(monkeypatch, 6.0, 5.0, 5.0, 5.5)
    return train(finished.config("direct-8", train=EPOCHS))


def searches(patch):
    """The sizes of the searches from now on."""
    sizes, translate = [], seq2seq.translate

    def counted(model, sources, *rest):
        sizes.append(len(sources))
        return translate(model, sources, *rest)

    patch.setattr(seq2seq, "translate", counted)
    return sizes


def tensors(path):
    return {name: value.numpy().tobytes() for name, value in load_file(path).items()}


def test_the_best_epochs_parameters_are_kept_beside_the_last_and_made_anew_where_they_are_damaged(second, run, caplog):
    """Those of a training that ends there, since nothing in this schedule depends on the number of epochs."""
    path, expected = second.folder / BEST, tensors(run.folder / "model.safetensors")
    assert tensors(path) == expected != tensors(second.folder / "model.safetensors")
    stored = read_json(second.folder / "training.json")
    assert (stored["best_epoch"], stored["evaluated_epoch"]) == (2, 4)
    assert stored["curve"] == second.record["curve"]
    assert not (run.folder / "best").exists()
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DamageError, match=r"best/model\.safetensors: damaged, .*; `headdiv train .* trains it again"):
        load_run(second.config)
    assert tensors(train(second.config).folder / BEST) == expected
    assert "trained again" in caplog.records[-1].getMessage()


def test_a_checkpoint_with_a_damaged_best_epoch_gives_way_to_the_one_before(finished, run, monkeypatch, caplog):
    losses(monkeypatch, 6.0, 5.0, 5.0, 5.5)
    config = finished.config("direct-8", train=EPOCHS)
    interrupt(config, 13)
    newest = run_folder(config) / "checkpoints" / "step13" / "best.safetensors"
    newest.write_bytes(newest.read_bytes()[:-8])
    resumed = train(config)
    assert "goes on from step 12" in caplog.records[0].getMessage()
    assert tensors(resumed.folder / BEST) == tensors(run.folder / "model.safetensors")


def test_the_best_epoch_is_scored_and_its_outputs_are_stored(second, run, monkeypatch):
    expected, metrics = evaluate(run), evaluate(second)
    scores = metrics["scores"]
    for name in ("bleu", "chrf"):
        assert scores[f"{name}_best"]["value"] == expected["scores"][name]["value"]
        assert "epoch 2 of 4" in scores[f"{name}_best"]["signature"]
    assert (scores["validation_nll_best"]["value"], scores["best_epoch"]["value"]) == (5.0, 2)
    assert (scores["validation_nll"]["value"], metrics["evaluated_epoch"]) == (5.5, 4)
    path = record(metrics, "tiny")
    task = TASKS["translation"]
    stored = read_outputs(path)
    assert stored.more == {"best": task.outputs(run)} == {"best": task.outputs(best_run(second))}
    assert (stored.test, stored.tokens) == (task.outputs(second), task.searched(second)["tokens"])
    searched = searches(monkeypatch)
    assert evaluate(load_run(second.config)) == metrics
    assert not searched
    record(metrics | {"more_outputs": {}}, "tiny")
    assert not read_outputs(path).more


def test_the_mean_of_the_last_epochs_is_evaluated_beside_the_best(project, monkeypatch):
    """Of the parameters after epochs 2, 3 and 4, and of running statistics."""
    states, finish = [], running.Trainer._finish_epoch

    def remembered(self, number, name):
        states.append(copy.deepcopy(self.model.state_dict()))
        return finish(self, number, name)

    config = project.config("direct-8", train=EPOCHS | {"average": 3, "patience": 4})
    with monkeypatch.context() as patch:
        patch.setattr(running.Trainer, "_finish_epoch", remembered)
        run = train(config)
    kept = load_file(run.folder / "average" / "model.safetensors")
    for name, value in kept.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, sum(state[name] for state in states[1:]) / 3)
        else:
            assert torch.equal(value, states[-1][name])
    metrics, average = evaluate(run), averaged_run(run)
    scores = metrics["scores"]
    assert scores["validation_nll_average"]["value"] == running.held_out_loss(average, "valid")["nll"]
    assert scores["validation_nll_average"]["value"] != scores["validation_nll_best"]["value"]
    assert "mean of the parameters of epochs 2 to 4" in scores["bleu_average"]["signature"]
    path = record(metrics, "tiny")
    assert read_outputs(path).more["average"] == TASKS["translation"].outputs(average)


# ---- stopping where the validation loss no longer falls

PATIENT = {"epochs": 9, "patience": 2, "checkpoint_seconds": 1e-9}
CURVE = (6.0, 5.0, 5.0, 5.5, 1.0)  # the last is not reached


def test_it_stops_and_the_best_epoch_is_evaluated(finished, run, monkeypatch):
    losses(monkeypatch, *CURVE)
    stopped = train(finished.config("direct-8", train=PATIENT))
    assert [point["validation_nll"] for point in stopped.record["curve"]] == list(CURVE[:4])
    assert (stopped.record["best_epoch"], stopped.record["evaluated_epoch"]) == (2, 2)
    assert tensors(stopped.folder / "model.safetensors") == tensors(run.folder / "model.safetensors")
    for loaded in (stopped, load_run(stopped.config)):
        for mine, its in zip(loaded.model.parameters(), run.model.parameters(), strict=True):
            assert torch.equal(mine, its)
    assert best_run(stopped) is stopped  # so nothing is searched again below
    assert not (stopped.folder / "best").exists()
    searched = searches(monkeypatch)
    metrics, expected = evaluate(stopped), evaluate(run)
    assert len(searched) == 1  # the other run's is stored
    assert metrics["evaluated_epoch"] == metrics["scores"]["best_epoch"]["value"] == 2
    assert metrics["scores"]["validation_nll"]["value"] == 5.0
    assert "epoch 2" in metrics["scores"]["training_loss"]["signature"]
    assert metrics["heads"] == expected["heads"]
    for name in ("bleu", "chrf", "bleu_best"):
        assert metrics["scores"][name]["value"] == expected["scores"][name]["value"]
    assert metrics["more_outputs"] == {}


def test_a_method_does_not_act_after_the_last_epoch_and_schedules_are_those_of_all(project, monkeypatch):
    losses(monkeypatch, *CURVE)
    ends, steps = [], set()
    acts, step = MethodSteps.between_epochs, Learner.step
    monkeypatch.setattr(MethodSteps, "between_epochs", lambda *rest: ends.append(rest[2:4]) or acts(*rest))
    monkeypatch.setattr(Learner, "step", lambda *rest: steps.add(rest[3]) or step(*rest))
    train(project.config(train=PATIENT))
    assert ends == [(1, 9), (2, 9), (3, 9)]
    assert steps == {45}  # 5 an epoch
