"""Methods together: what goes together and what does not, and that each part does what it does alone."""

import pytest
import torch
from examples import combined, deacon, tiny
from torch import nn

from headdiv.methods import make_method
from headdiv.methods.base import EpochEnd, Method
from headdiv.methods.deacon import pca_layers
from headdiv.methods.homeostasis import Inhibition
from headdiv.methods.mixing import MixingOutput
from headdiv.nn.linear import Linear
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import AttentionSpec, BlockSpec

DEACON = deacon(gha_steps=5)
MIXING = {"name": "mixing", "start": 0.0}
KWTA = {"name": "homeostasis", "attention": "kwta", "s_att": 0.5}
APART = {"name": "disagreement", "term": "output"}
VALUES = {"name": "dpp", "term": "subspace"}


# ---- the model


@pytest.mark.parametrize("methods", [(MIXING, KWTA), (KWTA, MIXING)])
def test_winners_are_taken_before_heads_are_mixed(methods):
    """A literal twin: in each of a row's heads the k largest stay, then every head becomes a mixture, then W^O."""
    module = make_method(combined(*methods)).attention(AttentionSpec("encoder", 0, 12, 3)).double().eval()
    stage = module.output.requires_grad_(False)
    assert isinstance(stage, MixingOutput)
    assert isinstance(module.before_output, Inhibition)
    stage.alphas += 0.3 * torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    stage.beta += 0.1
    z = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for row, y in zip(z, stage(module.before_output(z)), strict=True):
        kept = []
        for head in row.view(3, 4):
            limit = sorted(head.tolist())[-2]
            kept.append([value if value >= limit else 0.0 for value in head.tolist()])
        mixed = [
            sum(float(stage.alphas[i, j]) * kept[j][k] for j in range(3)) + float(stage.beta[i])
            for i in range(3)
            for k in range(4)
        ]
        expected = stage.weight @ torch.tensor(mixed, dtype=torch.float64) + stage.bias
        torch.testing.assert_close(y, expected)


def test_each_kind_of_attention_has_what_its_methods_give_it():
    """Homeostasis leaves encoder-decoder attention alone by default, mixing is told to leave the decoder's alone."""
    method = make_method(combined(KWTA, MIXING | {"kinds": ["encoder", "cross"]}))
    modules = [method.attention(AttentionSpec(kind, 0, 12, 3)) for kind in ("encoder", "decoder", "cross")]
    assert [isinstance(module.output, MixingOutput) for module in modules] == [True, False, True]
    assert [isinstance(module.before_output, Inhibition) for module in modules] == [True, True, False]
    plain = make_method(combined(APART, VALUES)).attention(AttentionSpec("cross", 0, 12, 3))
    assert type(plain) is MultiHeadAttention
    assert type(plain.output) is Linear


class Logged(Method):
    """Notes when it is called, and answers what it is made with."""

    def __init__(self, name, log, records, loss, done):
        super().__init__(Method.Options())
        self.name, self.log, self.records, self.loss, self.done = name, log, records, loss, done

    def block_output(self, spec):
        return nn.Linear(spec.d_model, spec.d_model)

    def required_records(self):
        return self.records

    def aux_loss(self, *_):
        return self.loss

    def after_backward(self, model, progress):
        self.log.append((self.name, progress))

    def after_epoch(self, end):
        self.log.append((self.name, end.history))
        return self.done

    def artifacts(self, model, validation=None):
        return {self.name: validation}


def test_hooks_of_all_are_called_in_the_order_of_the_list():
    log, method = [], make_method(combined(MIXING, APART))
    method.parts = {
        "a": Logged("a", log, "weights", torch.tensor(2.0), {"swaps": 1}),
        "dpp": Logged("b", log, "heads", torch.tensor(3.0), {}),
    }
    assert [type(block) for block in method.block_output(BlockSpec("encoder", 0, 4))] == [nn.Linear, nn.Linear]
    assert method.required_records() == "weights"
    assert method.aux_loss(None, [], 0.5, 1) == 5
    method.after_backward(None, 0.25)
    history = [{}, {"a": {"swaps": 7}}, {"dpp": {"x": 1}, "a": {"swaps": 8}}]
    assert method.after_epoch(EpochEnd(nn.Identity(), None, 3, 5, 1, history, lambda: iter(()))) == {"a": {"swaps": 1}}
    assert log == [("a", 0.25), ("b", 0.25), ("a", [{}, {"swaps": 7}, {"swaps": 8}]), ("b", [{}, {}, {"x": 1}])]
    assert method.artifacts(None, "split") == {"a": "split", "b": "split"}


def test_parameters_of_their_own_and_frozen_ones_are_those_of_all():
    model, method = tiny(combined(DEACON, APART))
    own = {id(parameter) for parameter in method.own_parameters(model)}
    assert own == {id(layer.w) for layer in pca_layers(model).values()}
    model, method = tiny(combined(KWTA, MIXING | {"start": 0.5}))
    assert len(method.frozen_parameters(model, 0.4)) == 6
    assert method.frozen_parameters(model, 0.6) == []
