"""DropHead: the literal twin, what a sentence loses in training, and the schedule."""

import pytest
import torch
from examples import some_pairs, tiny
from hypothesis import given
from hypothesis import strategies as st
from small_model import make_batch

from headdiv.methods.drop_head import kept_heads
from headdiv.nn.records import record_heads

H = 4
seeds = st.integers(0, 1000)


@given(seeds, st.floats(0, 0.99))
def test_dropped_heads_are_the_literal_ones(seed, rate):
    draws = torch.rand(6, H, generator=torch.Generator().manual_seed(seed))
    for row, factors in zip(draws.tolist(), kept_heads(draws, rate).tolist(), strict=True):
        kept = [draw >= rate for draw in row]
        if not any(kept):
            kept[row.index(max(row))] = True
        assert factors == pytest.approx([H / sum(kept) if keep else 0.0 for keep in kept])


def test_heads_are_dropped_by_sentence_in_training_alone():
    model, method = tiny({"name": "drop-head", "start": 0.5}, torch.float32)
    batch = make_batch(some_pairs(), range(6))
    with torch.no_grad():
        torch.testing.assert_close(model(batch), tiny({"name": "baseline"}, torch.float32)[0](batch))
        with record_heads(model.train()) as records:
            model(batch)
    dropped = 0
    for record in records:
        zero = (record.outputs == 0).all(-1)  # (T, H)
        dropped += int(zero.sum())
        assert not zero.all(dim=1).any()
        for rows in zero.split(record.layout.queries.lengths.tolist()):
            assert (rows == rows[0]).all()
    assert dropped
    rates = []
    for progress in (0.0, 0.05, 0.1, 0.55, 1.0):
        method.after_backward(model, progress)
        rates.append(model.encoder[0].attention["encoder"].rate.item())
    assert rates == pytest.approx([0.5, 0.25, 0.0, 0.1, 0.2])
    assert "encoder.0.attention.encoder.rate" in model.state_dict()
