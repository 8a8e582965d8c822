"""What all tasks share: the registry, batches by plans, losses over a split."""

import json
from dataclasses import dataclass
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_runs import as_rank, enter, small_config, untrained
from torch import nn

from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import held_out_loss
from headdiv.companion.tasks.specs import SPECS
from headdiv.nn.losses import Losses
from headdiv.training.batch_streams import PlannedBatchStream


def plan(epoch):
    """Another order each epoch."""
    numbers = [(7 * i + epoch) % 11 for i in range(11)]
    return [numbers[:4], numbers[4:6], numbers[6:10], numbers[10:]]


def feed_of(batches=plan):
    return PlannedBatchStream(batches, tuple)


@pytest.mark.parametrize("task", SPECS)
def test_every_key_of_a_task_s_data_is_explained(task):
    assert [name for name, field in SPECS[task].Data.model_fields.items() if not field.description] == []


# ---- batches by plans


@given(st.integers(0, 4), st.integers(0, 3))
def test_a_feed_goes_on_where_it_stood(before, epoch):
    whole = feed_of()
    expected = [*whole.epoch(epoch), *whole.epoch(epoch + 1)]
    first = feed_of()
    found = list(islice(first.epoch(epoch), before))
    state = json.loads(json.dumps(first.state()))
    assert state == {"done": before}
    second = feed_of()
    second.restore(state)
    found += [*second.epoch(epoch), *second.epoch(epoch + 1)]
    assert found == expected
    assert second.state() == {"done": 0}
    assert second.batches(epoch) == 4
    assert second.report() == {}


@given(st.integers(1, 4), st.integers(0, 2))
def test_ranks_share_every_batch(world, epoch):
    with pytest.MonkeyPatch.context() as patch:
        shares = []
        for rank in range(world):
            as_rank(patch, rank, world)
            stream = feed_of()
            shares.append(list(stream.epoch(epoch)))
            assert stream.batches(epoch) == len(shares[-1]) == 4  # all ranks take as many steps
    for numbers, *parts in zip(plan(epoch), *shares, strict=True):
        assert sorted(number for part in parts for number in part) == sorted(numbers)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1  # none may be left for the last ones


@pytest.mark.parametrize("task", ["summarisation", "qa", "lm"])
def test_the_seed_decides_what_is_read_when(tmp_path, monkeypatch, task):
    enter(monkeypatch, tmp_path)
    corpus = TASKS[task].load(small_config(task).data)
    first, again, other = (
        next(TASKS[task].batch_stream(corpus, small_config(task, seed=seed)).epoch(0)) for seed in (1, 1, 2)
    )
    read = "inputs" if task == "lm" else "target_in"
    assert torch.equal(getattr(first, read), getattr(again, read))
    assert not torch.equal(getattr(first, read), getattr(other, read))


@pytest.mark.parametrize("variant", ["baseline", "direct-2"])
@pytest.mark.parametrize("task", ["summarisation", "qa"])
def test_a_rank_may_have_an_empty_share(tmp_path, monkeypatch, task, variant):
    enter(monkeypatch, tmp_path)
    run = untrained(small_config(task, variant))
    stream = TASKS[task].batch_stream(run.corpus, run.config)
    batch = stream.make([])
    assert len(batch.numbers) == 0
    for smoothing in (0.0, 0.1):
        run.model.zero_grad()
        losses = TASKS[task].loss(run.model, run.model.output_weight, batch, smoothing)
        assert (losses.loss.item(), losses.nll.item(), int(losses.correct)) == (0, 0, 0)
        assert (losses.count, losses.tokens) == (0, 0)
        losses.loss.backward()
        assert all(not p.grad.any() for p in run.model.parameters() if p.grad is not None)


# ---- a loss over a split


@dataclass
class Numbers:
    """A batch: what each prediction costs."""

    values: torch.Tensor

    def to(self, device):
        return Numbers(self.values.to(device))


class Costs:
    """A task whose model says nothing: the batch is the loss; a cost below 1 is right."""

    def __init__(self, *batches):
        self.batches, self.splits = batches, []

    def held_out(self, corpus, split, config):
        self.splits.append((corpus, split, config))
        return (Numbers(torch.tensor(batch)) for batch in self.batches)

    def loss(self, model, weight, batch, smoothing=0.0):
        assert smoothing == 0.0
        assert not model.training
        assert not torch.is_grad_enabled()
        costs = batch.values
        return Losses(costs.sum(), costs.sum(), (costs < 1).sum(), len(costs), 3 * len(costs))


class Weighted(nn.Linear):
    """A model of one parameter."""

    @property
    def output_weight(self):
        return self.weight


def test_the_loss_of_a_split_is_a_mean_over_predictions():
    task, model = Costs([0.5, 1.5, 1.0], [4.0]), Weighted(1, 1).train()
    result = held_out_loss(task, model, "corpus", "valid", "config", "cpu")
    assert result == {"nll": pytest.approx(7 / 4), "accuracy": pytest.approx(25.0)}
    assert task.splits == [("corpus", "valid", "config")]
    assert all(isinstance(value, float) for value in result.values())


def test_the_loss_of_a_split_is_a_mean_over_all_ranks(monkeypatch):
    monkeypatch.setattr("headdiv.core.distributed.total_numbers", lambda *values: [value + 6 for value in values])
    result = held_out_loss(Costs([2.0, 2.0]), Weighted(1, 1), None, "test", None, "cpu")
    assert result == {"nll": pytest.approx(10 / 8), "accuracy": pytest.approx(100 * 6 / 8)}
