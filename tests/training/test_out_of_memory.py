"""A training that ran out of memory is named, and a retry gives the numbers of one that did not."""

import itertools

import pytest
import torch
from test_trainer import trainer_of, values

from headdiv.core import distributed
from headdiv.core.errors import ConfigError, TrainingError
from headdiv.training import checkpoints
from headdiv.training.learner import Learner

ALLOCATOR = "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 99"
DEACON = {"name": "deacon", "architecture": "direct", "m": 2}


def failing(real, call):
    """The function, but its ``call``-th call has no memory: before it begins, or after what it does."""
    calls = itertools.count(1)

    def run(*arguments, **options):
        number = next(calls)
        if number == call[0] and call[1] == "before":
            raise RuntimeError(ALLOCATOR)
        result = real(*arguments, **options)
        if number == call[0]:
            raise MemoryError
        return result

    return run


def make(folder):
    return trainer_of(
        DEACON, folder=folder, checkpoint_seconds=1e-9, validate=lambda model: {"validation_nll": model(SAMPLE).mean()}
    )


SAMPLE = torch.arange(10).view(2, 5)
PLACES = {
    "forward and backward": (Learner, "backward"),
    "step": (Learner, "step"),
    "optimiser": (torch.optim.AdamW, "step"),
    "checkpoint": (checkpoints, "save"),
    "best parameters": (checkpoints, "copied"),
}


@pytest.mark.parametrize("same", [False, True], ids=["new trainer", "same trainer"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", PLACES)
def test_a_retry_changes_no_number(tmp_path, monkeypatch, place, when, same):
    whole = make(tmp_path / "whole")
    expected = whole.run().curve
    owner, name = PLACES[place]
    tried = make(tmp_path / "tried")
    call = {"checkpoint": 3, "best parameters": 1}.get(place, 4)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing(getattr(owner, name), (call, when)))
        with pytest.raises(TrainingError, match=r"not enough memory at step \d") as error:
            tried.run()
    assert when == "after" or "tried to allocate 99" in str(error.value)
    again = tried if same else make(tmp_path / "tried")
    assert again.run().curve == expected
    found = values(again.model)
    assert all(torch.equal(found[name], value) for name, value in values(whole.model).items())


def test_without_checkpoints_a_step_that_was_begun_cannot_be_taken_back(monkeypatch):
    trainer = trainer_of()
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", failing(torch.optim.AdamW.step, (3, "before")))
        with pytest.raises(TrainingError, match="not enough memory at step 3"):
            trainer.run()
    with pytest.raises(TrainingError, match=r"within epoch 1.*folder"):
        trainer.run()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2 .* RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: .* 'two'"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE: .* '-2'"),
    ],
)
def test_variables_of_torchrun_are_all_there_or_named(monkeypatch, variables, message):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message), distributed.process_group(torch.device("cpu")):
        pass
