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


BATCHES = {  # a data loader's generator moves on, so each try has a loader of its own
    "a stream": Rows,
    "drawn by its sampler's own": sampled,
    "shuffled by its own": lambda: shuffled(torch.Generator().manual_seed(5)),
    "a function of the epoch": lambda: lambda epoch: texts()[torch.randperm(24)].split(6),
}
METHODS = [
    {"name": "deacon", "architecture": "direct", "m": 2, "gha_steps": 5},
    {"name": "homeostasis", "attention": "rfb-kwta", "s_att": 0.5, "q_att": 3},
    {"name": "mixing", "start": 0.4},
    {"name": "moa", "experts": 4, "k": 2},
    {"name": "dynamic-rotation", "choice": "random", "swaps": 1, "kinds": ["encoder"]},
    {"name": "combined", "methods": [{"name": "mixing"}, {"name": "disagreement", "term": "output"}]},
]
OPTIMISERS = {"SGD": {"momentum": 0.9}, "Adafactor": {}, "ASGD": {}}  # moments, rows and columns, numbers
CASES = {
    "plain": {},
    **{options["name"]: {"options": options} for options in METHODS},
    "best and averaged epochs": {
        "validate": validate,
        "measure": lambda model: {"by_layer": {1: (0.1, 2)}},
        "average": 2,
    },
    "accumulated": {"batches": shuffled, "accumulate": 3},
    **{kind: {"batches": batches} for kind, batches in BATCHES.items()},
    **{name: {"optimiser": {"name": name, **options}} for name, options in OPTIMISERS.items()},
}
PLACES = {  # which call fails, and whether before or after what it does
    "before a step": (Learner, "step", 3, "before"),
    "within a step": (Learner, "backward", 5, "after"),
    "before a checkpoint": (checkpoints, "save", 3, "before"),
    "while it is written": (checkpoints, "save_model", 3, "after"),
    "after a checkpoint": (checkpoints, "save", 3, "after"),
    "before the end of an epoch": (Trainer, "_finish_epoch", 1, "before"),
    "after the end of an epoch": (Trainer, "_finish_epoch", 1, "after"),
}


def fail(patch, owner, name, call, when, error=Power):
    """The ``call``-th call of a function raises."""
    real, calls = getattr(owner, name), []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == call and when == "before":
            raise error
        result = real(*arguments, **options)
        if len(calls) == call:
            raise error
        return result

    patch.setattr(owner, name, failing)


def made(folder, batches=None, options=None, **arguments):
    arguments = {"folder": folder, "checkpoint_seconds": 1e-9, **arguments}
    return trainer_of(options, None if batches is None else batches(), **arguments)


def must_be_the_same(trainer, whole):
    assert trainer.state.curve == whole.state.curve
    assert trainer.state.step == whole.state.step
    pairs = [(values(each.model), each.best, each.average()) for each in (trainer, whole)]
    for found, expected in zip(*pairs, strict=True):
        assert (found is None) == (expected is None)
        assert all(torch.equal(value, found[name]) for name, value in (expected or {}).items())


@functools.cache
def uninterrupted(name):
    trainer = made(None, **CASES[name])
    trainer.run()
    return trainer


def must_go_on(folder, name, place):
    case, whole = CASES[name], uninterrupted(name)
    for same in (True, False):
        tried = made(folder / str(same), **case)
        with pytest.MonkeyPatch.context() as patch:
            fail(patch, *PLACES[place])
            with pytest.raises(Power):
                tried.run()
        torch.manual_seed(12345)
        again = tried if same else made(folder / str(same), **case)
        again.run()
        must_be_the_same(again, whole)
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, Learner, "step", 1, "before")  # what is finished is not repeated
        again = made(folder / str(same), **case)
        again.run()
    must_be_the_same(again, whole)


# Every place with a plain training, and every other training at one or two places of its own.
ELSEWHERE_TOO = {
    "deacon": ["within a step", "before the end of an epoch"],
    "homeostasis": ["before a checkpoint"],
    "mixing": ["within a step"],
    "moa": ["while it is written"],
    "dynamic-rotation": ["before the end of an epoch", "after the end of an epoch"],
    "combined": ["after a checkpoint"],
    "best and averaged epochs": ["before the end of an epoch", "after the end of an epoch"],
    "accumulated": ["within a step", "after a checkpoint"],
}
PAIRS = [("plain", place) for place in PLACES] + [(case, at) for case, places in ELSEWHERE_TOO.items() for at in places]


@pytest.mark.parametrize(("case", "place"), PAIRS)
def test_an_interrupted_training_ends_with_the_same_bits(tmp_path, place, case):
    must_go_on(tmp_path, case, place)


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_of_every_kind_come_back(tmp_path, kind):
    must_go_on(tmp_path, kind, "within a step")


@pytest.mark.parametrize("name", OPTIMISERS)
def test_checkpoints_hold_the_state_of_any_optimiser(tmp_path, name):
    must_go_on(tmp_path, name, "before a step")


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
    stopped = trainer_of(epochs=4, folder=tmp_path).run(until=1)
    assert stopped.curve == expected.curve[:1]
    assert trainer_of(epochs=4, folder=tmp_path).run(until=3).curve == expected.curve[:3]
    assert trainer_of(epochs=4, folder=tmp_path).run(until=2).curve == expected.curve[:3]  # nothing is taken back
    again = trainer_of(epochs=4, folder=tmp_path)
    again.run(until=9)
    must_be_the_same(again, whole)


def test_what_stops_after_an_epoch_goes_on_in_the_same_process_without_a_folder():
    whole, parts = made(None, Rows), made(None, Rows)
    whole.run()
    parts.run(until=1)
    torch.rand(3)
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
