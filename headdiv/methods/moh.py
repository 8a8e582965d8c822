"""Mixture-of-head attention, MoH (Jin et al. 2024, arXiv 2410.11842): a router weighs and chooses heads for each token.

    y = Σ_i g_i H_i W^O_i      g_i = α_1 softmax(W_s x)_i for the s shared heads, which are always on
                               g_i = α_2 softmax(W_r x)_i for the k largest of the others, 0 for the rest
    [α_1, α_2] = softmax(W_h x)

As printed, these gates add up to 1 at most, so that a fresh module's output has a fifth of the baseline's norm. In
the authors' code (github.com/SkyworkAI/MoH) the gates of the heads that are on are 1 on average (``gates: coded``, the
default):

    g_i = 2 α_1 s softmax(W_s x)_i      g_i = 2 α_2 k softmax(W_r x)_i / Σ_j softmax(W_r x)_j, j the chosen ones

β Σ_i f_i P_i over the routed heads is added to the loss: f_i the share of tokens that choose i, P_i the mean of its
probability; here it is added to the mean over predictions and summed over modules, like the losses of
`headdiv.methods.moa`. (The code's is this one times the number of routed heads.) Heads that are not chosen are
computed and multiplied by 0, so a step saves no time.

Letters: T rows, D model width, H heads, K head width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.core.precision import at_least_float32, full_precision
from headdiv.methods.base import Method, RequiredRecords, ValidationSplit
from headdiv.methods.registry import register
from headdiv.methods.routing import RoutedRecord, Router, Routing, pooled_losses, router_statistics
from headdiv.nn.linear import linear_in_float32
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.packing import AttentionLayout, PackedRows
from headdiv.nn.records import HeadRecord
from headdiv.nn.sizes import AttentionSpec, Sizes

Gates = Literal["coded", "printed"]


class MixtureOfHeads(MultiHeadAttention):
    """The baseline's module with a weight for each head and token; head records hold the weighted outputs.

    Args:
        spec: its position and sizes.
        shared: s, at least 1.
        k: how many of the H − s others are chosen.
        gates: as coded, 1 on average over the heads that are on, or the paper's.
    """

    rowwise_heads = True

    def __init__(self, spec: AttentionSpec, shared: int, k: int, gates: Gates = "coded") -> None:
        super().__init__(spec)
        coded = gates == "coded"
        self.router = Router(spec.d_model, spec.heads - shared, k, renormalise=coded)
        self.scales = (2 * shared, 2 * k) if coded else (1, 1)  # of the shared heads' gates, and of the chosen ones'
        self.shared = nn.Linear(spec.d_model, shared, bias=False)  # W_s
        self.types = nn.Linear(spec.d_model, 2, bias=False)  # W_h
        self.routing: Routing | None = None  # of the rows being computed

    def gates(self, x: Tensor) -> tuple[Tensor, Routing]:
        """g of rows (T, D) -> (T, H), and the router's choice."""
        with full_precision(x):
            x = at_least_float32(x)
            alpha = linear_in_float32(x, self.types).softmax(dim=-1)  # (T, 2)
            always = linear_in_float32(x, self.shared).softmax(dim=-1)  # (T, s)
            routing = self.router(x)
            chosen = torch.zeros_like(routing.probabilities).scatter(1, routing.experts, routing.gates)
            shared, routed = (self.scales[i] * alpha[:, i : i + 1] for i in (0, 1))  # (T, 1) each
            return torch.cat([always * shared, chosen * routed], dim=1), routing

    def transform_heads(self, heads: Tensor, x: Tensor, rows: PackedRows | None) -> Tensor:
        gates, routing = self.gates(x)
        self.routing = None if rows is None else routing  # for `record`: `step` makes no record
        return (heads.unflatten(1, (self.spec.heads, -1)) * gates.unsqueeze(-1).to(heads.dtype)).flatten(1)

    def record(self, layout: AttentionLayout, *tensors: Tensor | None, **more: Any) -> Tensor:
        """See `AttentionModule`; with the routing, which is not kept: it holds on to the graph."""
        routing, self.routing = self.routing, None
        return super().record(layout, *tensors, kind=RoutedRecord, routing=routing)


@register
class Moh(Method):
    """The method: a `MixtureOfHeads` in each position, and the loss that balances the choices."""

    name = "moh"

    class Options(Method.Options):
        """Three quarters of 8 heads on for a token, a share within the paper's 50 to 90 %; β is the paper's."""

        label = "Mixture of heads"
        shared: int = Field(2, ge=1, description="heads that are always on")
        k: int = Field(4, ge=1, description="heads chosen for a token among the others")
        balance: float = Field(0.01, ge=0, description="β")
        gates: Gates = Field("coded", description="1 on average over the heads that are on, or the paper's equations")

        def check(self, model: Sizes) -> tuple[str, str] | None:
            if self.shared + self.k > model.heads:
                return "k", f"{self.k} chosen and {self.shared} shared heads are more than the model's {model.heads}"
            if self.gates == "coded" and self.k == 1:
                return (
                    "k",
                    "1 chosen head has the same gate whichever it is, and the router learns nothing; expected k ≥ 2",
                )
            return None

    options: Options

    def attention(self, spec: AttentionSpec) -> MixtureOfHeads:
        return MixtureOfHeads(spec, self.options.shared, self.options.k, self.options.gates)

    def required_records(self) -> RequiredRecords:
        return "heads" if self.options.balance else "nothing"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """β Σ f P, summed over the modules; the same on every rank."""
        if not self.options.balance:
            return None
        losses = pooled_losses(records)  # the balance (modules,): E Σ (f / k) P
        return sum(self.options.balance * self.options.k / routed * balance.sum() for routed, (balance, _, _) in losses)

    def counts_predictions(self) -> bool:
        """Its loss is over rows."""
        return False

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        return router_statistics(validation) if validation else {}
