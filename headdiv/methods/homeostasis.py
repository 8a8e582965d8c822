"""Homeostasis and sparsity (Kotyuzanskiy & Klimov): few units stay active, and rarely active ones come back.

Two positions: the heads before W^O, (T, H, K), each head by itself; and the output of a block (layer), (T, D).
Each has one mechanism, as in Tables 2 and 3:

    kwta        in every row the k = round(s·n) largest units stay (Eqs. 1 to 3)
    rfb-kwta    the same with values that are boosted where a unit was rarely active (Eqs. 4 to 6)
    smart       a mask is drawn, with probabilities that depend on how often a unit was active (Eqs. 7 and 8)
    dropout     what the paper compares with
    none        as in the baseline

In Table 3 (A) is the baseline, (B) rfb-kwta and dropout, (C) dropout twice, (D) smart twice, (E) rfb-kwta and smart.
A unit's activity is how often the masks of the last Q training steps kept it (on all ranks together). The counts of
a step enter after its backward pass, so a mask never depends on its own batch: no later word affects an earlier one.

In evaluation the counts are frozen. kWTA is a function of the values, and a model trained with n·s active units has
never had n of them, so both kinds of kWTA stay active, unless ``kwta_evaluation`` says otherwise. "Smart" inhibition
is random, "similar to dropout", so it is off in evaluation; the paper rescales nothing, and ``expectation`` makes up
for that by multiplying each unit by its probability of being kept. The paper itself is silent about evaluation.

Letters: T rows, G groups (H heads, or 1), n units of a group (K or D), D model width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from headdiv.core import distributed
from headdiv.core.modules import active_modules
from headdiv.core.tracing import is_recomputing
from headdiv.methods.base import AttentionHook, Method, ValidationSplit
from headdiv.methods.kwta import HIGHEST, LOWEST, Interpretation, boost, keep_probabilities, sampled, survivors, winners
from headdiv.methods.registry import register
from headdiv.nn.dropout import Dropout
from headdiv.nn.records import attention_modules, by_name
from headdiv.nn.sizes import AttentionSpec, BlockSpec, Kind, Sizes

Mechanism = Literal["none", "dropout", "kwta", "rfb-kwta", "smart"]
KWTA: tuple[Mechanism, ...] = ("kwta", "rfb-kwta")


class Inhibition(nn.Module):
    """One mechanism at one position, with the activations of the last Q training steps.

    Buffers: ``history`` (Q, G·n + 1), the counts of each step and, last, its number of rows; ``total`` (G·n + 1), its
    sum over the steps; ``oldest``, the line of ``history`` that the next step replaces. They are integers, so that
    subtracting the oldest and adding the newest keeps the sum exact, and a step costs the same whatever Q is.

    Args:
        mechanism: kwta, rfb-kwta or smart.
        spec: its ``name`` is that in results.
        groups: G.
        units: n.
        s: share of units that stay active.
        q: Q.
        options: the method's.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        spec: AttentionSpec | BlockSpec,
        groups: int,
        units: int,
        s: float,
        q: int,
        options: Homeostasis.Options,
    ) -> None:
        super().__init__()
        self.mechanism, self.spec, self.options = mechanism, spec, options
        self.groups, self.units, self.s, self.k = groups, units, s, survivors(units, s)
        self.pending: Tensor | None = None  # (G·n + 1,), counted on this rank since the last `remember`
        width = groups * units + 1
        self.register_buffer("history", torch.zeros(q, width, dtype=torch.int32))
        self.register_buffer("total", torch.zeros(width, dtype=torch.int64))
        self.register_buffer("oldest", torch.zeros(1, dtype=torch.int64))

    @property
    def counts(self) -> Tensor:
        """t̄ of Eq. 5: how often each unit was active in the last Q steps, (G, n)."""
        return self.total[:-1].view(self.groups, self.units)

    @property
    def shares(self) -> Tensor | None:
        """The same per row, (G, n); None where no row was counted yet."""
        rows = int(self.total[-1])
        return self.counts / rows if rows else None

    def forward(self, x: Tensor) -> Tensor:
        """(T, G·n) -> (T, G·n); counts while training."""
        if not self.training and self.is_identity_in_evaluation:
            return x
        groups = x.view(x.shape[0], self.groups, self.units)
        # A product, not a selection: NaN must stay NaN, for the trainer to see it.
        return (groups * self._factor(groups)).to(x.dtype).view(x.shape)

    @property
    def is_identity_in_evaluation(self) -> bool:
        """Whether the mechanism does nothing in evaluation."""
        if self.mechanism in KWTA:
            return self.options.kwta_evaluation == "inactive"
        return self.options.smart_evaluation == "identity"

    @torch.no_grad()
    def _factor(self, x: Tensor) -> Tensor:
        """What (T, G, n) values are multiplied by: 0 where they are inhibited."""
        if self.mechanism == "smart":
            keep = keep_probabilities(self.counts, self.s, self.options.reading, self.options.delta)
            return self._counted(sampled(keep, x.shape[0])) if self.training else keep.to(x.dtype)
        if self.mechanism == "kwta":
            return self._counted(winners(x, self.k))
        boosts = boost(self.counts, self.k).to(torch.promote_types(x.dtype, torch.float32))  # (G, n)
        mask = self._counted(winners(x * boosts, self.k))
        return mask * boosts if self.options.masked == "boosted" else mask

    def _counted(self, mask: Tensor) -> Tensor:
        """The mask (T, G, n) as it is; while training its activations are counted (Eq. 4)."""
        if self.training and not is_recomputing():
            counts = torch.cat([mask.sum(0).flatten(), self.total.new_full((1,), mask.shape[0])])
            self.pending = counts if self.pending is None else self.pending + counts
        return mask

    def remember(self, counts: Tensor) -> None:
        """Replace the oldest step's counts by those of a training step on all ranks, (G·n + 1,)."""
        self.total += counts - self.history.index_select(0, self.oldest)[0]
        self.history.index_copy_(0, self.oldest, counts[None].to(self.history.dtype))
        self.oldest.add_(1).remainder_(len(self.history))
        self.pending = None

    def forget_interrupted_step(self) -> None:
        """Start a step afresh: nothing of an interrupted one is counted."""
        self.pending = None

    def extra_repr(self) -> str:
        """For print(model)."""
        return f"{self.mechanism}, {self.groups}×{self.units} units, s={self.s}, Q={len(self.history)}"


def inhibitions(model: nn.Module) -> list[Inhibition]:
    """Every mechanism that counts, in the model's order."""
    return list(active_modules(model, Inhibition).values())


@register
class Homeostasis(Method):
    """The method: a mechanism before each W^O, at each block's output, or both."""

    name = "homeostasis"

    class Options(Method.Options):
        """By default the paper's best model, (D) of Table 3; where only one mechanism is named, the other is none."""

        attention: Mechanism = Field("none", description="on the heads, before W^O")
        block: Mechanism = Field("none", description="on the output of each layer, after its last norm")
        s_att: float = Field(0.9, gt=0, lt=1, description="share of a head's units that stay active")
        s_bo: float = Field(0.9, gt=0, lt=1, description="share of a block's units that stay active")
        q_att: int = Field(256, ge=1, description="training steps whose activations are counted, at the heads…")
        q_bo: int = Field(16, ge=1, description="…and at the blocks")
        dropout: float = Field(0.1, ge=0, lt=1, description="rate where the mechanism is dropout")
        kinds: tuple[Kind, ...] = Field(
            ("encoder", "decoder"), min_length=1, description="kinds of attention; the paper names self-attention alone"
        )
        masked: Literal["boosted", "plain"] = Field(
            "boosted", description="rfb-kwta: which values the winners pass on; the paper leaves it open"
        )
        reading: Interpretation = Field(
            "inhibition", description="smart: what Eq. 7 is the probability of (see `kwta.keep_probabilities`)"
        )
        delta: float = Field(0.0, ge=0, description="smart: δ of Eq. 8, for which the paper has no number")
        kwta_evaluation: Literal["active", "inactive"] = Field("active", description="kwta and rfb-kwta at evaluation")
        smart_evaluation: Literal["identity", "expectation"] = Field(
            "identity", description="smart at evaluation: all units, or each times its probability of being kept"
        )

        @model_validator(mode="before")
        @classmethod
        def _default_to_best_model(cls, values: Any) -> Any:
            named = not isinstance(values, dict) or {"attention", "block"} & values.keys()
            return values if named else {**values, "attention": "smart", "block": "smart"}

        def check(self, model: Sizes) -> tuple[str, str] | None:
            """Some mechanism, with at least one unit that stays and probabilities that Eq. 8 can reach."""
            if self.attention == self.block == "none":
                return "attention", "'none', and block is 'none' too; that is the method 'baseline'"
            checks = (
                ("s_att", self.attention, self.s_att, model.d_model // model.heads, "a head"),
                ("s_bo", self.block, self.s_bo, model.d_model, "a block's output"),
            )
            for key, mechanism, s, units, position in checks:
                if mechanism in KWTA and survivors(units, s) < 1:
                    return key, f"{s} keeps no unit: {position} has {units}, and round(s·{units}) must be at least 1"
                if mechanism in KWTA and survivors(units, s) == units:
                    return key, f"{s} keeps all units: {position} has {units}, and round(s·{units}) must be less"
                if mechanism == "smart" and not LOWEST <= s <= HIGHEST:
                    return key, f"{s} is no median that smart inhibition can have: from {LOWEST} to {HIGHEST}"
            return None

        def hooks_for(self, kind: Kind) -> frozenset[AttentionHook]:
            """No hooks of attention where only blocks are inhibited."""
            return frozenset() if self.attention == "none" else super().hooks_for(kind)

    options: Options

    def before_output(self, spec: AttentionSpec) -> nn.Module:
        o = self.options
        return self._mechanism(o.attention, spec, spec.heads, spec.d_head, o.s_att, o.q_att)

    def block_output(self, spec: BlockSpec) -> nn.Module:
        o = self.options
        if o.block == "none":
            return super().block_output(spec)
        return self._mechanism(o.block, spec, 1, spec.d_model, o.s_bo, o.q_bo)

    def _mechanism(
        self, name: Mechanism, spec: AttentionSpec | BlockSpec, groups: int, units: int, s: float, q: int
    ) -> nn.Module:
        if name == "dropout":
            return Dropout(self.options.dropout)
        return Inhibition(name, spec, groups, units, s, q, self.options)

    @torch.no_grad()
    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Add up what this step's masks counted on all ranks, in one exchange, and remember it."""
        layers = inhibitions(model)
        if not layers or (distributed.world() == 1 and all(layer.pending is None for layer in layers)):
            return
        counted = [torch.zeros_like(layer.total) if layer.pending is None else layer.pending for layer in layers]
        pooled = distributed.total(torch.cat(counted))
        for layer, counts in zip(layers, pooled.split([len(part) for part in counted]), strict=True):
            layer.remember(counts)

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        """For every unit the share of rows in which it was active in the last Q training steps, by name.

        A block's output is one group, attention one per head. Plain kWTA does not use its counts, but those of the
        others are to be compared with them.
        """
        attention_modules(model)  # numbers copies of a layer
        result = {}
        for name, layer in by_name((layer.spec.name, layer) for layer in inhibitions(model)).items():
            if layer.shares is not None:
                rows = [[round(share, 4) for share in group] for group in layer.shares.tolist()]
                result[name] = {"mechanism": layer.mechanism, "s": layer.s, "shares": rows}
        return {"activations": result} if result else {}
