"""What masking heads changes in passes, losses and scores, and that it leaves nothing behind."""

import contextlib

import pytest
import torch
from examples import some_pairs, tiny
from faulty import exactly
from small_runs import SMALL, small_config, untrained

from headdiv.analysis.masking import HeadChange, heads_of, masked_heads, masks_without
from headdiv.companion.experiments import importance
from headdiv.companion.experiments.importance import (
    Kept,
    head_importance,
    masked_loss,
    pruning_curve,
    pruning_order,
)
from headdiv.companion.models.batching import make_batch
from headdiv.companion.tasks.base import held_out_loss
from headdiv.core.errors import DataError
from headdiv.methods.moa import MixtureAttention
from headdiv.nn.records import record_heads

# ---- masking


def test_a_masked_slot_is_one_without_its_gate():
    model, _ = tiny({"name": "moa", "experts": 5, "k": 3})
    batch = make_batch(some_pairs(), range(6))
    module = model.encoder[0].attention["encoder"]
    assert isinstance(module, MixtureAttention)
    with torch.no_grad(), masked_heads(model, {"encoder 1": [1, 1, 0]}), record_heads(model) as records:
        caught = {}
        module.register_forward_hook(lambda _, __, output: caught.update(output=output))
        model(batch)
    record = records[0]
    gates = record.routing.probabilities.gather(1, record.routing.experts)
    chosen = module.output.weight[record.routing.experts[:, :2]]
    expected = torch.einsum("tk,tki,tkid->td", gates[:, :2], record.outputs[:, :2], chosen)
    torch.testing.assert_close(caught["output"], expected + module.output_bias)


def test_masks_nest_and_go_away_after_an_error():
    """Also where the first of them fits, and the next does not."""
    model, _ = tiny({"name": "baseline"})
    batch = make_batch(some_pairs(), range(6))
    with torch.no_grad(), masked_heads(model, {"cross 1": [0, 0, 1]}):
        expected = model(batch)
    with torch.no_grad(), masked_heads(model, {"cross 1": [0, 1, 1]}), masked_heads(model, {"cross 1": [1, 0, 1]}):
        torch.testing.assert_close(model(batch), expected)
    plain = model(batch)
    fits, fits_nothing = {"decoder 1": [1, 1, 0]}, {"cross 2": [1, 1, 1]}
    with pytest.raises(DataError, match="no attention 'cross 2'"), masked_heads(model, fits | fits_nothing):
        pass
    with contextlib.suppress(KeyError), masked_heads(model, {"cross 1": [0, 1, 1]}):
        raise KeyError
    assert torch.equal(model(batch), plain)


# ---- importance


@pytest.mark.parametrize("task", SMALL)
def test_importance_is_the_change_of_the_loss_for_any_task(folder, task):
    run = untrained(small_config(task))
    changes = head_importance(run)
    assert [(change.place, change.head) for change in changes] == [
        (place, head) for place in heads_of(run.model) for head in (1, 2, 3, 4)
    ]
    before = held_out_loss(run, "valid")["nll"]
    assert masked_loss(run) == before
    stack = run.model.decoder[0].attention["decoder"]
    with torch.no_grad():
        stack.output.weight[:, 8:12] = 0
    after = held_out_loss(run, "valid")["nll"]
    (third,) = (change for change in changes if (change.place, change.head) == ("decoder 1", 3))
    assert third.change == pytest.approx(after - before, abs=1e-6)


def test_importance_beside_masked_heads(folder):
    run = untrained(small_config("lm"))
    changes = head_importance(run, masked=[("decoder 1", 2)])
    assert [change.head for change in changes] == [1, 3, 4]
    expected = masked_loss(run, {"decoder 1": [0, 0, 1, 1]}) - masked_loss(run, {"decoder 1": [1, 0, 1, 1]})
    assert changes[0].change == pytest.approx(expected)
    with exactly("the model has no head 5 in 'decoder 1'; heads are 1 to 4 in decoder 1"):
        head_importance(run, masked=[("decoder 1", 5)])


# ---- pruning


def test_the_order_is_measured_anew_at_half(monkeypatch):
    """What matters least at first goes first; then what matters least to the half that is left."""
    calls = []
    first = [HeadChange("encoder 1", head, change) for head, change in enumerate([0.4, -0.1, 0.2, 0.3], start=1)]

    def measured(run, masked=()):
        calls.append(list(masked))
        return [HeadChange("encoder 1", 1, 0.1), HeadChange("encoder 1", 4, 0.9)]

    monkeypatch.setattr(importance, "head_importance", measured)
    assert pruning_order(None, first) == [("encoder 1", head) for head in (2, 3, 1, 4)]
    assert calls == [[("encoder 1", 2), ("encoder 1", 3)]]


def test_a_curve_goes_from_all_heads_to_none(folder):
    run = untrained(small_config("lm"))
    order = pruning_order(run)
    assert sorted(order) == [("decoder 1", head) for head in (1, 2, 3, 4)]
    curve = pruning_curve(run, order=order)
    assert [point.kept for point in curve] == [4, 3, 2, 1, 0]
    assert curve[0] == Kept(kept=4, loss=masked_loss(run))
    assert curve[-1].loss == masked_loss(run, {"decoder 1": [0, 0, 0, 0]})
    assert curve[1].loss == masked_loss(run, masks_without(run.model, order[:1]))
    assert [point.kept for point in pruning_curve(run, steps=2, order=order)] == [4, 2, 0]
    assert [point.kept for point in pruning_curve(run, order=order[:1])] == [4, 3]
    assert [point.kept for point in pruning_curve(run, steps=10**9, order=order[:1])] == [4, 3]  # no more than heads
    with exactly("the model has no head 0 in 'decoder 1'; heads are 1 to 4 in decoder 1"):
        pruning_curve(run, order=[("decoder 1", 0)])
