"""Differential Transformer (Ye et al. 2024, arXiv 2410.05258): a head's weights are the difference of two softmaxes.

    O = (softmax(Q1 K1ᵀ/√K) − λ softmax(Q2 K2ᵀ/√K)) V
    λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init,   λ_init = 0.8 − 0.6 exp(−0.3 (l − 1)) in layer l from 1
    output stage: W^O of the heads (1 − λ_init) RMSNorm(O) side by side

Head dimensions: the paper keeps the width K of queries and keys, gives V twice that, and halves the number of heads, so
that parameters and products are the baseline's except for 4·K numbers λ and 2·K of the norm in each module
(``halved``). The baseline's heads 2i − 1 and 2i are the two queries and keys of head i, and their values side by side
its V. It is then not comparable with other rows head by head: H = 8 gives 4 heads of twice the width, and the authors
advise at least 8. ``kept`` makes up for it the other way: H heads with V of width K, whose queries and keys are the
halves, of width K / 2, of the baseline's. Weights can be negative and do not add up to 1.

λ_init belongs to the layer and is in no state dictionary. Copies of one module, as `torch.nn.TransformerEncoder` makes
them, are numbered as soon as the model is passed to headdiv: to `own_parameters`, a trainer or `ModelHeads`.

Letters: R windows, T rows, H heads of the baseline, K their width, h heads, N query slots, S key slots.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.precision import at_least_float32, full_precision
from headdiv.methods.base import Method, MethodOptions
from headdiv.methods.losses import no_shares_of_attention
from headdiv.methods.registry import register
from headdiv.nn.caches import Cache
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout, PackedRows
from headdiv.nn.records import attention_modules
from headdiv.nn.sizes import AttentionSpec, Sizes


class DifferentialAttention(MultiHeadAttention):
    """h heads on the baseline's projections; λ and the norm's scale are shared by all heads.

    Args:
        spec: its position and sizes.
        halved: h = H / 2 heads of width 2·K, else H of width K.
    """

    rowwise_heads = True

    def __init__(self, spec: AttentionSpec, halved: bool) -> None:
        super().__init__(spec)
        self.halved = halved
        self.lambdas = nn.Parameter(torch.empty(4, spec.d_head if halved else spec.d_head // 2))  # q1, k1, q2, k2
        self.norm = nn.RMSNorm(self.head_width, eps=1e-5)
        nn.init.normal_(self.lambdas, std=0.1)

    def initialise(self, generator: torch.Generator) -> None:
        """λ as in the authors' code; submodules draw their own parameters."""
        nn.init.normal_(self.lambdas, std=0.1, generator=generator)

    @property
    def head_slots(self) -> int:
        return self.spec.heads // 2 if self.halved else self.spec.heads

    @property
    def head_width(self) -> int:
        return 2 * self.spec.d_head if self.halved else self.spec.d_head

    @property
    def start(self) -> float:
        """λ_init for the module's current layer: `attention_modules` numbers copies."""
        return 0.8 - 0.6 * math.exp(-0.3 * self.spec.layer)

    @property
    def factor(self) -> Tensor:
        """λ."""
        q1, k1, q2, k2 = self.lambdas
        return torch.exp((q1 * k1).sum()) - torch.exp((q2 * k2).sum()) + self.start

    def weigh_values(
        self, q: Tensor, k: Tensor, v: Tensor, layout: AttentionLayout | Cache
    ) -> tuple[Tensor, Tensor | None]:
        if self.halved:
            v = v.unflatten(1, (-1, 2)).transpose(2, 3).flatten(3)  # (R, h, S, 2·K)
        else:
            q, k = (x.unflatten(3, (2, -1)).transpose(2, 3).flatten(1, 2) for x in (q, k))  # (R, 2·h, …, K/2)
        if layout.mask is not None and layout.mask.dim() == 4 and layout.mask.shape[1] > 1:  # one for each head
            layout = replace(layout, mask=layout.mask.repeat_interleave(2, dim=1))
        z, weights = super().weigh_values(q, k, v.repeat_interleave(2, dim=1), layout)
        if layout.dropout and layout.dropped:
            layout.dropped[-1] = self._difference(layout.dropped[-1])
        return self._difference(z), None if weights is None else self._difference(weights)

    def _difference(self, x: Tensor) -> Tensor:
        """The first of each pair minus λ times the second: (R, 2·h, …) -> (R, h, …)."""
        return x[:, 0::2] - self.factor.to(x.dtype) * x[:, 1::2]

    def transform_heads(self, heads: Tensor, x: Tensor, rows: PackedRows | None) -> Tensor:
        each = at_least_float32(heads.view(heads.shape[0], self.head_slots, self.head_width))
        with full_precision(heads):
            normed = F.rms_norm(each, each.shape[-1:], self.norm.weight, self.norm.eps)
        return ((1 - self.start) * normed).flatten(1).to(heads.dtype)


@register
class Differential(Method):
    """The method: a `DifferentialAttention` in each position."""

    name = "differential"

    class Options(Method.Options):
        """The paper's."""

        heads: Literal["halved", "kept"] = Field("halved", description="how head dimensions are made up for")

        def check(self, model: Sizes) -> tuple[str, str] | None:
            halved = self.heads == "halved"
            number, what = (model.heads, "heads") if halved else (model.d_model // model.heads, "units of a head")
            if number % 2:
                return "heads", f"{self.heads!r} needs an even number of {what}, found {number}"
            return None

        def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
            return no_shares_of_attention(other, name, others_name)

    options: Options

    def attention(self, spec: AttentionSpec) -> DifferentialAttention:
        return DifferentialAttention(spec, self.options.heads == "halved")

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """None; but copies of a module are numbered, since their λ_init depends on it."""
        attention_modules(model)
        return []

    def frozen_parameters(self, model: nn.Module, progress: float) -> list[nn.Parameter]:
        """None; see `own_parameters`."""
        return self.own_parameters(model)
