"""One contract: a training that was interrupted ends with the bits of one that was not.

Wherever it stopped, whatever is kept, whether the same Trainer goes on or a new one, and whatever torch's generator
does in between.
"""

import functools

import pytest
import torch
from surroundings import Power
from test_trainer import texts, trainer_of, values
from torch.utils.data import DataLoader, RandomSampler

from headdiv.core.errors import TrainingError
from headdiv.training import checkpoints
from headdiv.training.batch_streams import BatchStream
from headdiv.training.learner import Learner
from headdiv.training.trainer import Trainer

SAMPLE = torch.arange(10).view(2, 5)


def validate(model):
    return {"validation_nll": model(SAMPLE).square().mean()}


def worsening(model):
    """The second epoch is the best of four."""
    worsening.calls += 1
    return {"validation_nll": abs(worsening.calls - 2)}


class Rows(BatchStream):
    """A stream of one's own, which knows nothing of generators."""

    def batches(self, epoch):
        return 4

    def epoch(self, number):
        for batch in texts().split(6)[self.done :]:
            self.done += 1
            yield batch
        self.done = 0


def shuffled(generator=None):
    return DataLoader(texts(), batch_size=6, shuffle=True, generator=generator)


def sampled():
    sampler = RandomSampler(texts(), generator=torch.Generator().manual_seed(5))
    return DataLoader(texts(), batch_size=6, sampler=sampler)


PLACES_OF = {  # where each kind of training is interrupted: its arguments, and places
    "plain": ({}, [
        "before a step", "within a step", "before a checkpoint", "while it is written", "after a checkpoint",
        "before the end of an epoch", "after the end of an epoch",
    ]),
    "deacon": ({"options": {"name": "deacon", "architecture": "direct", "m": 2, "gha_steps": 5}}, ["within a step"]),
    "homeostasis": (
        {"options": {"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5, "q_att": 3}}, ["before a checkpoint"]
    ),
    "mixing": ({"options": {"name": "mixing", "start": 0.4}}, ["within a step"]),
    "mixing, back to where Alphas rest": (
        {
            "options": {"name": "mixing", "start": 0.6},
            "batches": lambda: texts().split(8),
            "checkpoint_seconds": 1e9,  # after epochs alone
        },
        ["within a step"],
    ),
    "dynamic-rotation": (
        {"options": {"name": "dynamic-rotation", "choice": "random", "swaps": 1, "kinds": ["encoder"]}},
        ["before the end of an epoch", "after the end of an epoch"],
    ),
    "best and averaged epochs": (
        {"validate": validate, "measure": lambda model: {"by_layer": {1: (0.1, 2)}}, "average": 2},
        ["before the end of an epoch", "after the end of an epoch"],
    ),
    "accumulated": ({"batches": shuffled, "accumulate": 3}, ["within a step", "after a checkpoint"]),
    # Kinds of batches; a data loader's generator moves on, so each try has a loader of its own.
    "a stream": ({"batches": Rows}, ["within a step"]),
    "drawn by its sampler's own": ({"batches": sampled}, ["within a step"]),
    "shuffled by its own": ({"batches": lambda: shuffled(torch.Generator().manual_seed(5))}, ["within a step"]),
    "a function of the epoch": (
        {"batches": lambda: lambda epoch: texts()[torch.randperm(24)].split(6)}, ["within a step"]
    ),
    # What an optimiser remembers of rows and columns.
    "Adafactor": ({"optimiser": {"name": "Adafactor"}}, ["before a step"]),
}  # fmt: skip
CASES = {name: arguments for name, (arguments, _) in PLACES_OF.items()}
PLACES = {  # which call fails, and whether before or after what it does
    "before a step": (Learner, "step", 3, "before"),
    "within a step": (Learner, "backward", 6, "after"),
    "before a checkpoint": (checkpoints, "save", 3, "before"),
    "while it is written": (checkpoints, "save_model", 3, "after"),
    "after a checkpoint": (checkpoints, "save", 3, "after"),
    "before the end of an epoch": (Trainer, "_finish_epoch", 1, "before"),
    "after the end of an epoch": (Trainer, "_finish_epoch", 1, "after"),
}


def fail(patch, owner, name, call, when):
    """The ``call``-th call of a function raises."""
    real, calls = getattr(owner, name), []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == call and when == "before":
            raise Power
        result = real(*arguments, **options)
        if len(calls) == call:
            raise Power
        return result

    patch.setattr(owner, name, failing)


def made(folder, batches=None, options=None, **arguments):
    arguments = {"folder": folder, "checkpoint_seconds": 1e-9, **arguments}
    return trainer_of(options, None if batches is None else batches(), **arguments)


def must_be_the_same(trainer, whole):
    assert trainer.state.curve == whole.state.curve
    assert trainer.state.step == whole.state.step
    states = [(values(run.model), run.best, run.average()) for run in (trainer, whole)]
    for state, expected in zip(*states, strict=True):
        assert (state is None) == (expected is None)
        assert all(torch.equal(value, state[name]) for name, value in (expected or {}).items())


@functools.cache
def uninterrupted(name):
    trainer = made(None, **CASES[name])
    trainer.run()
    return trainer


@pytest.mark.parametrize(
    ("case", "place"), [(case, place) for case, (_, places) in PLACES_OF.items() for place in places]
)
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, case, place):
    whole, arguments = uninterrupted(case), CASES[case]
    for same_object in (True, False):
        interrupted = made(tmp_path / str(same_object), **arguments)
        with pytest.MonkeyPatch.context() as patch:
            fail(patch, *PLACES[place])
            with pytest.raises(Power):
                interrupted.run()
        torch.manual_seed(12345)
        resumed = interrupted if same_object else made(tmp_path / str(same_object), **arguments)
        resumed.run()
        must_be_the_same(resumed, whole)


def test_a_training_out_of_patience_goes_on_to_the_same_epoch(tmp_path):
    ends = []
    for parts in (False, True):
        worsening.calls = 0
        trainer = made(tmp_path / str(parts), validate=worsening, epochs=9, patience=2)
        for until in (1, 2, 3) if parts else ():
            trainer.run(until=until)
            trainer = made(tmp_path / str(parts), validate=worsening, epochs=9, patience=2)
        trainer.run()
        ends.append(trainer)
    must_be_the_same(*ends)
    assert (len(ends[0].state.curve), ends[0].kept_epoch) == (4, 2)
    assert all(torch.equal(value, ends[0].best[name]) for name, value in values(ends[0].model).items())


def test_a_training_that_stops_early_goes_on_as_if_it_had_not(tmp_path):
    whole = trainer_of(epochs=4)
    expected = whole.run()
    assert trainer_of(epochs=4, folder=tmp_path).run(until=1).curve == expected.curve[:1]
    assert trainer_of(epochs=4, folder=tmp_path).run(until=3).curve == expected.curve[:3]
    assert trainer_of(epochs=4, folder=tmp_path).run(until=2).curve == expected.curve[:3]  # nothing is taken back
    again = trainer_of(epochs=4, folder=tmp_path)
    again.run(until=9)
    must_be_the_same(again, whole)


def test_what_stops_after_an_epoch_goes_on_in_the_same_process_without_a_folder():
    whole, parts = made(None, Rows), made(None, Rows)
    whole.run()
    parts.run(until=1)
    parts.run()
    must_be_the_same(parts, whole)


def test_without_checkpoints_a_step_that_was_begun_cannot_be_taken_back(monkeypatch):
    trainer = trainer_of()
    with monkeypatch.context() as patch:
        fail(patch, torch.optim.AdamW, "step", 3, "before")
        with pytest.raises(Power):
            trainer.run()
    with pytest.raises(TrainingError, match=r"was interrupted within epoch 1, .*folder"):
        trainer.run()
