"""Mixture of attention heads, MoA (Zhang et al. 2022): a router chooses k of E heads for every token.

    y_t = Σ_{e chosen for t} p_e(t) · softmax((x_t W^q_e)(C W^k)ᵀ / √K) (C W^v) W^o_e      (Eqs. 4 to 8)

Each expert has its own W^q and W^o; keys and values of the context C are shared by all, as in the authors' code. So
the chosen heads of a token are the heads of multi-query attention (Shazeer 2019), which head is which differs from
token to token, and only chosen experts are computed. See `headdiv.methods.routing` for the router.

Biases: one for the output, outside the sum, as in the baseline's W^O; for queries (one per expert), keys and values
where the baseline has them. Parameters of a module with K = d_head:

    2·D·K + E·2·D·K + D·E + D      (+ D·E if noisy, + (2 + E)·K with biases)

The authors' code adds its losses, summed over the modules, to a loss summed over a batch's predictions, where their
weights are next to nothing. Here they are added to the mean over the predictions, unless `added` says otherwise.

Letters: T rows, E experts, k chosen ones (slots), P = T·k pairs of a row and a slot, D model width, K width of a head,
R windows, N query slots and S key slots of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.precision import autocast
from headdiv.core.settings import hash_neutral
from headdiv.methods.base import Method, MethodOptions, RequiredRecords, ValidationSplit
from headdiv.methods.losses import no_values_to_compare
from headdiv.methods.registry import register
from headdiv.methods.routing import Renormalise, RoutedRecord, Router, Routing, pooled_losses, router_statistics
from headdiv.nn.attention import AttentionModule
from headdiv.nn.caches import Cache, cached_product
from headdiv.nn.dot_product import dot_product, into_windows, out_of_windows
from headdiv.nn.linear import Linear
from headdiv.nn.packing import AttentionLayout
from headdiv.nn.records import HeadRecord
from headdiv.nn.sizes import AttentionSpec, Sizes

# ---- products with the chosen experts' matrices


class ExpertGroups(NamedTuple):
    """Which pairs of a row and a slot, numbered row by row, belong to each of E experts."""

    pairs: tuple[Tensor, ...]  # E times (pairs of the expert,)
    rows: tuple[Tensor, ...]  # E times, the rows of these pairs; none is twice with one expert


def by_expert(experts: Tensor, number: int) -> ExpertGroups:
    """The chosen experts (T, k), grouped by expert, of which there are ``number``."""
    flat = experts.flatten()
    order = torch.argsort(flat, stable=True)
    sizes = flat.new_zeros(number).index_add(0, flat, torch.ones_like(flat))
    # On the meta device, without values, any split will do.
    ends = number if flat.is_meta else sizes.cumsum(0)[:-1].tolist()
    rows = order.div(experts.shape[1], rounding_mode="floor")
    return ExpertGroups(order.tensor_split(ends), rows.tensor_split(ends))


class ExpertProduct(torch.autograd.Function):
    """y[targets_e] += x[sources_e] W_e for each expert, with a backward pass that keeps no gathered copies.

    One product per expert, gathered and added up while in the cache. For E = 32 a batched product of groups padded to
    the longest takes twice as long, and one of all lines in the experts' order a fifth longer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, sources: Sequence[Tensor], targets: Sequence[Tensor], lines: int
    ) -> Tensor:
        """x (X, A), W (E, A, B) -> (lines, B)."""
        ctx.save_for_backward(x, weight)
        ctx.sources, ctx.targets = sources, targets
        y = x.new_zeros(lines, weight.shape[2])
        for matrix, source, target in zip(weight.unbind(0), sources, targets, strict=True):
            y.index_add_(0, target, x.index_select(0, source) @ matrix)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and of the weight."""
        x, weight = ctx.saved_tensors
        grad_x, grad_weight = torch.zeros_like(x), torch.empty_like(weight)
        for expert, (source, target) in enumerate(zip(ctx.sources, ctx.targets, strict=True)):
            grad_y = grad.index_select(0, target)
            grad_x.index_add_(0, source, grad_y @ weight[expert].T)
            grad_weight[expert] = x.index_select(0, source).T @ grad_y
        return grad_x, grad_weight, None, None, None


# ---- the module


class Experts(nn.Module):
    """A matrix for each expert, (E, inputs, outputs); each is drawn like a head's projection."""

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(experts, outputs)) if bias else None
        self.initialise(None)

    def initialise(self, generator: torch.Generator | None) -> None:
        """Xavier for each matrix, as in the authors' code; no bias."""
        bound = (6 / (self.weight.shape[1] + self.weight.shape[2])) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, sources: Sequence[Tensor], targets: Sequence[Tensor], lines: int) -> Tensor:
        weight = autocast(self.weight)  # autocast does not reach into the product
        return ExpertProduct.apply(x.to(weight.dtype), weight, sources, targets, lines)


class MixtureAttention(AttentionModule):
    """Attention whose heads are chosen for each token: each token has k slots, filled by the experts chosen for it.

    Args:
        spec: its position and sizes; the number of heads is ignored.
        experts: E.
        k: experts of a token.
        d_head: K.
        router: options of its `Router`.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        experts: int,
        k: int,
        d_head: int | None = None,
        **router: Any,
    ) -> None:
        super().__init__(spec)
        self.experts, self.k = experts, k
        self.d_head = spec.d_head if d_head is None else d_head
        D, K = spec.d_model, self.d_head
        self.router = Router(D, experts, k, **router)
        self.query = Experts(experts, D, K, spec.bias)
        self.key_value = Linear(D, 2 * K, bias=spec.bias)
        self.output = Experts(experts, K, D, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(D))

    def initialise(self, generator: torch.Generator) -> None:
        """No output bias; submodules draw their own parameters."""
        nn.init.zeros_(self.output_bias)

    @property
    def head_slots(self) -> int:
        return self.k

    @property
    def head_width(self) -> int:
        return self.d_head

    def forward(self, x: Tensor, memory: Tensor | None, layout: AttentionLayout) -> Tensor:
        k = self.k
        routing, groups, q = self._queries(x)
        key_value = self.key_value(x if memory is None else memory)  # (T', 2·K)
        (q,) = into_windows(q.flatten(1), layout.queries, 1, k)  # (R, k, N, K)
        keys, values = (part.expand(-1, k, -1, -1) for part in into_windows(key_value, layout.keys, 2, 1))
        z, weights = dot_product(q, keys, values, layout, self.needs_weights)
        heads = out_of_windows(z, layout.queries)  # (T, k, K)
        shared = key_value[:, None, self.d_head :].expand(-1, k, -1)  # (T', k, K)
        heads = self.record(layout, weights, shared, heads, RoutedRecord, routing=routing)
        return self._mix(heads, routing, groups)

    def _queries(self, x: Tensor) -> tuple[Routing, ExpertGroups, Tensor]:
        """Which experts serve each row, the same by expert, and their queries (T, k, K)."""
        routing = self.router(x)
        groups = by_expert(routing.experts, self.experts)
        q = self.query(x, groups.rows, groups.pairs, x.shape[0] * self.k)  # (P, K)
        q = q.view(-1, self.k, self.d_head)
        if self.query.bias is not None:
            q = q + F.embedding(routing.experts, self.query.bias).to(q.dtype)
        return routing, groups, q

    def _mix(self, heads: Tensor, routing: Routing, groups: ExpertGroups) -> Tensor:
        """Σ gate · head · W^o: (T, k, K) -> (T, D)."""
        gated = (heads * routing.gates.unsqueeze(-1).to(heads.dtype)).reshape(-1, self.d_head)  # (P, K)
        y = self.output(gated, groups.pairs, groups.rows, heads.shape[0])
        return y + self.output_bias.to(y.dtype)

    # ---- one token at a time

    def self_cache(self, lines: int, like: Tensor) -> Cache:
        empty = like.new_empty(lines, 1, 0, self.d_head)
        return Cache((empty, empty))

    def cross_cache(self, memory: Tensor, mask: Tensor) -> Cache:
        keys, values = (part.unsqueeze(1).contiguous() for part in self.key_value(memory).chunk(2, dim=-1))
        return Cache((keys, values), mask[:, None, None])

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        routing, groups, q = self._queries(x)
        if cache.mask is None:
            cache.add(*self.key_value(x).unsqueeze(1).chunk(2, dim=-1))
        z = cached_product(cache.by_text(q.unsqueeze(1)), *cache.kept, cache.mask)  # (B, 1, N/B·k, K)
        heads = cache.by_line(z, self.k).view_as(q)
        return self._mix(self.edited_in_step(heads, cache), routing, groups)


# ---- the method


@register
class Moa(Method):
    """The method: a `MixtureAttention` in each position, and the losses of their routers."""

    name = "moa"

    class Options(Method.Options):
        """Weights of the losses and gates are those of the authors' code."""

        label = "Mixture of attention heads"
        experts: int = Field(ge=1, description="E, heads of a module to choose from")
        k: int = Field(ge=1, description="heads of each token, at most E")
        d_head: int | None = Field(None, ge=1, description="width of a head; null: d_model / heads")
        balance: float = Field(0.01, ge=0, description="weight of the load-balancing loss")
        z: float = Field(0.001, ge=0, description="weight of the z-loss")
        cv: float = Field(0.0, ge=0, description="weight of the squared coefficient of variation of the importance")
        added: Literal["mean", "sum"] = Field(
            "mean", description="to the mean loss of a prediction; or, as coded, to the sum over a batch's predictions"
        )
        noisy: bool = Field(False, description="noise on the router's logits in training (Eqs. 2 and 3)")
        noise_floor: float = hash_neutral(
            0.0, ge=0, description="added to the noise's size; 0.01 as coded, where Eq. 3 has nothing"
        )
        renormalise: Renormalise = Field(
            False,
            description="the gates of a token sum to 1 (Eq. 2); detached: their sum is a constant for the gradient",
        )

        def check(self, model: Sizes) -> tuple[str, str] | None:
            if self.k > self.experts:
                return "k", f"{self.k} is more than the {self.experts} experts to choose from"
            if self.renormalise is True and self.k == 1:
                sentence = "with k = 1 every gate is 1 and the router learns nothing from the task; expected k ≥ 2"
                return "renormalise", sentence
            if self.noise_floor and not self.noisy:
                return "noise_floor", "there is no noise; expected noisy: true"
            return None

        def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
            return no_values_to_compare(other, name, others_name)

    options: Options

    def attention(self, spec: AttentionSpec) -> MixtureAttention:
        o = self.options
        router = {"noisy": o.noisy, "renormalise": o.renormalise, "floor": o.noise_floor}
        return MixtureAttention(spec, o.experts, o.k, o.d_head, **router)

    def required_records(self) -> RequiredRecords:
        o = self.options
        return "heads" if o.balance or o.z or o.cv else "nothing"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """The weighted losses of `routing_losses`, summed over the modules; the same on every rank."""
        if self.required_records() == "nothing":
            return None
        o = self.options
        loss = sum((o.balance * balance + o.z * z + o.cv * cv).sum() for balance, z, cv in pooled_losses(records))
        return loss if o.added == "mean" else loss / count

    def counts_predictions(self) -> bool:
        """Only where the losses are added to a batch's sum."""
        return self.options.added == "sum"

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        return router_statistics(validation) if validation else {}
