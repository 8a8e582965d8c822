"""Stopping where the validation loss no longer falls: when, with which parameters, and after kills."""

import pytest
import torch
from small_runs import fail_after, result
from test_best_epoch import losses, searches, tensors
from test_trainer import trainer_of

from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.running import best_run, load_run, run_folder, train
from headdiv.training.learner import Learner
from headdiv.training.method_steps import MethodSteps

PATIENT = {"epochs": 9, "patience": 2, "checkpoint_seconds": 1e-9}
CURVE = (6.0, 5.0, 5.0, 5.5, 1.0)  # the last is not reached


@pytest.fixture
def stopped(project, monkeypatch):
    losses(monkeypatch, *CURVE)
    return train(project.config("direct-8", train=PATIENT))


def test_it_stops_and_the_best_epoch_is_evaluated(project, stopped, monkeypatch):
    assert [point["validation_nll"] for point in stopped.record["curve"]] == list(CURVE[:4])
    assert (stopped.record["best_epoch"], stopped.record["evaluated_epoch"]) == (2, 2)
    ended = train(project.config("direct-8"))
    assert tensors(stopped.folder / "model.safetensors") == tensors(ended.folder / "model.safetensors")
    for loaded in (stopped, load_run(stopped.config)):
        for mine, its in zip(loaded.model.parameters(), ended.model.parameters(), strict=True):
            assert torch.equal(mine, its)
    assert best_run(stopped) is stopped
    assert not (stopped.folder / "best").exists()
    searched = searches(monkeypatch)
    metrics, expected = evaluate(stopped), evaluate(ended)
    assert len(searched) == 2  # one of each run
    assert metrics["evaluated_epoch"] == metrics["scores"]["best_epoch"]["value"] == 2
    assert metrics["scores"]["validation_nll"]["value"] == 5.0
    assert "epoch 2" in metrics["scores"]["training_loss"]["signature"]
    assert metrics["heads"] == expected["heads"]
    for name in ("bleu", "chrf", "bleu_best", "training_nll_evaluated", "temperature"):
        assert metrics["scores"][name]["value"] == expected["scores"][name]["value"]
    assert metrics["more_outputs"] == {}


def test_a_kill_after_the_last_epoch_changes_nothing(project, stopped, monkeypatch):
    expected = result(stopped.folder)
    stopped.folder.rename(stopped.folder.with_name("before"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headdiv.companion.experiments.running.count_parameters", None)
        with pytest.raises(TypeError):
            train(stopped.config)
    assert (run_folder(stopped.config) / "checkpoints").is_dir()
    done = fail_after(monkeypatch, 0)  # a step would be one too many
    assert result(train(stopped.config).folder) == expected
    assert done == [0]


def test_all_epochs_are_trained_where_the_loss_falls(project, monkeypatch):
    losses(monkeypatch, *(9.0 - epoch for epoch in range(9)))
    run = train(project.config(train=PATIENT))
    assert (len(run.record["curve"]), run.record["evaluated_epoch"]) == (9, 9)


def test_ranks_stop_together(monkeypatch):
    """What the first of them says counts, even if another has measured something else."""
    said = iter((1.0, 2.0, 3.0, 0.5))
    trainer = trainer_of(epochs=4, patience=2, validate=lambda model: {"validation_nll": next(said)})
    monkeypatch.setattr("headdiv.training.trainer.distributed.agreed", lambda yes: False)
    assert len(trainer.run().curve) == 4


def test_a_method_does_not_act_after_the_last_epoch_and_schedules_are_those_of_all(project, monkeypatch):
    losses(monkeypatch, *CURVE)
    ends, steps = [], set()
    acts, step = MethodSteps.between_epochs, Learner.step
    monkeypatch.setattr(MethodSteps, "between_epochs", lambda *rest: ends.append(rest[2:4]) or acts(*rest))
    monkeypatch.setattr(Learner, "step", lambda *rest: steps.add(rest[3]) or step(*rest))
    train(project.config(train=PATIENT))
    assert ends == [(1, 9), (2, 9), (3, 9)]
    assert steps == {45}  # 5 an epoch


def test_patience_is_stored_where_it_was_asked_for(project):
    assert "patience" not in project.config().model_dump(mode="json")["train"]
    assert project.config(train={"patience": 3}).hash != project.config().hash
