"""A folded model is the plain Transformer, and computes what it did."""

import pytest
import torch
from examples import EXAMPLES, combined, deacon, some_pairs, trained_one_step
from small_model import make_batch

import headdiv
from headdiv.nn.linear import Linear
from headdiv.nn.records import attention_modules

LINEAR = [deacon("direct", gha_steps=5), deacon("average", 2, gha_steps=5), *EXAMPLES["mixing"], *EXAMPLES["rotation"]]
LINEAR += [{"name": "head-scale", "normalisation": "batch", "gate": 0.3}]
LINEAR += [combined(deacon(gha_steps=5), {"name": "homeostasis", "attention": "kwta", "s_att": 0.5})]
OTHERS = [deacon("nonlinear", gha_steps=5), EXAMPLES["moa"][0], EXAMPLES["homeostasis"][0]]
OTHERS += [{"name": "head-scale", "normalisation": "layer"}]


@pytest.mark.parametrize("options", LINEAR + OTHERS, ids=lambda options: options.get("architecture", options["name"]))
def test_a_folded_model_computes_the_same(options):
    model, method = trained_one_step(options)
    method.after_backward(model, 0.5)
    folded, batch = headdiv.fold(model), make_batch(some_pairs(seed=4), range(6))
    torch.testing.assert_close(folded(batch), model.eval()(batch), rtol=1e-5, atol=1e-5)
    plain = {type(module.output) is Linear for module in attention_modules(folded)}
    assert plain == {options in LINEAR or options["name"] == "homeostasis"}


def test_folding_does_not_depend_on_autocast():
    torch.manual_seed(0)
    model = headdiv.MultiheadAttention(8, 2, headdiv.make_method("deacon", m=2), batch_first=True)
    expected = headdiv.fold(model).state_dict()
    with torch.autocast("cpu", torch.bfloat16):
        state = headdiv.fold(model).state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
