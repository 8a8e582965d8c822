"""A training that ran out of memory is named, and a retry gives the numbers of one that did not."""

import pytest
import torch
from test_resume import fail
from test_trainer import trainer_of

from headdiv.core import distributed
from headdiv.core.errors import ConfigError, TrainingError
from headdiv.training.learner import Learner

ALLOCATOR = "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 99"


@pytest.mark.parametrize("error", [RuntimeError(ALLOCATOR), MemoryError()], ids=["torch's", "Python's"])
def test_a_retry_changes_no_number(tmp_path, monkeypatch, error):
    """As after any other interruption, see `test_resume`."""
    expected = trainer_of().run().curve
    tried = trainer_of(folder=tmp_path, checkpoint_seconds=1e-9)
    with monkeypatch.context() as patch:
        fail(patch, Learner, "backward", 4, "before", error)
        with pytest.raises(TrainingError, match=r"not enough memory at step 4") as raised:
            tried.run()
    assert ("tried to allocate 99" in str(raised.value)) == isinstance(error, RuntimeError)
    assert tried.run().curve == expected


def test_without_checkpoints_a_step_that_was_begun_cannot_be_taken_back(monkeypatch):
    trainer = trainer_of()
    with monkeypatch.context() as patch:
        fail(patch, torch.optim.AdamW, "step", 3, "before", RuntimeError(ALLOCATOR))
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
