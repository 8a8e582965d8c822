"""The loss of a split, of every task."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from headdiv.companion.tasks.base import held_out_loss
from headdiv.nn.losses import Losses


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
