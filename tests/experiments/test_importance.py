"""What masking heads changes in passes and losses, and that it leaves nothing behind."""

import contextlib

import pytest
import torch
from examples import some_pairs, tiny
from small_runs import SMALL, small_config, untrained

from headdiv.analysis.masking import heads_of, masked_heads, masks_without
from headdiv.companion.experiments.importance import importance_record
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


# ---- importance and pruning


@pytest.mark.parametrize("task", SMALL)
def test_importance_order_and_curve_are_of_the_losses_of_masked_models_for_any_task(folder, task):
    """What matters least at first goes first; then what matters least to the half that is left."""
    run = untrained(small_config(task))
    heads = [(place, head) for place in heads_of(run.model) for head in (1, 2, 3, 4)]

    def loss(*removed):
        with masked_heads(run.model, masks_without(run.model, removed)):
            return held_out_loss(run, "valid")["nll"]

    found = importance_record(run, steps=10**9)  # there are no more than heads
    changes = {(change["place"], change["head"]): change["change"] for change in found["heads"]}
    assert list(changes.items()) == [(head, loss(head) - loss()) for head in heads]
    order, half = [tuple(head) for head in found["order"]], len(heads) // 2
    first, last = order[:half], order[half:]
    assert first == sorted(heads, key=changes.get)[:half]
    assert last == sorted((head for head in heads if head not in first), key=lambda head: loss(*first, head))
    counts = range(len(heads) + 1)
    assert found["curve"] == [{"kept": len(heads) - count, "loss": loss(*order[:count])} for count in counts]
    assert found["loss"]["value"] == loss()
    assert found["modules"] == heads_of(run.model)
