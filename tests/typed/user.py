# ruff: noqa: F821 (reveal_type)
"""What a user of the library writes, for a type checker at its strictest: no error, and types everywhere."""

import torch
from torch import Tensor, nn

import headdiv


@headdiv.register
class PushApart(headdiv.Method):
    """A method of one's own."""

    name = "push-apart"

    class Options(headdiv.Method.Options):
        weight: float = 0.1

    options: Options

    def aux_loss(
        self, model: nn.Module, records: list[headdiv.HeadRecord], progress: float, count: int
    ) -> Tensor | None:
        return self.options.weight * torch.stack([record.outputs.mean() for record in records]).mean()


method = headdiv.make_method("deacon", m=8)
attention = headdiv.MultiheadAttention(64, 8, method, batch_first=True)
x = torch.zeros(2, 3, 64)
with headdiv.record_heads(attention) as records:
    output, weights = attention(x, x, x)


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    return attention(batch, batch, batch)[0].square().mean()


trainer = headdiv.Trainer(attention, [x], loss, method=method, epochs=1)
curve = trainer.run().curve
update = headdiv.gha.gha_inner_loop
heads = headdiv.ModelHeads(attention)
plain = headdiv.MultiheadAttention(64, 8)
reveal_type(method, expected_type=headdiv.Method)
reveal_type(attention, expected_type=headdiv.MultiheadAttention)
reveal_type(output, expected_type=Tensor)
reveal_type(weights, expected_type=Tensor | None)
reveal_type(records, expected_type=list[headdiv.HeadRecord])
reveal_type(PushApart(weight=0.2), expected_type=PushApart)
reveal_type(heads.counts, expected_type=dict[str, int])
reveal_type(plain.num_heads, expected_type=int)
reveal_type(trainer, expected_type=headdiv.Trainer)
