"""Options of the methods that build part or all of attention; see each method's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from headdiv.core.settings import hash_neutral
from headdiv.methods.options.base import AttentionHook, MethodOptions
from headdiv.methods.options.losses import no_shares_of_attention, no_values_to_compare
from headdiv.nn.sizes import ATTENTION_KINDS, Kind, Normalisation, Sizes

Architecture = Literal["direct", "average", "nonlinear"]  # of DEACON
Gates = Literal["coded", "printed"]  # of MoH
Renormalise = bool | Literal["detached"]  # of MoA's gates
Mechanism = Literal["none", "dropout", "kwta", "rfb-kwta", "smart"]  # of homeostasis
Interpretation = Literal["inhibition", "inverted", "printed"]  # of its Eq. 7
KWTA: tuple[Mechanism, ...] = ("kwta", "rfb-kwta")
HIGHEST, LOWEST = 0.99, 0.01  # a and b of its Eq. 7: the largest and the smallest probability


def nonlinear_inputs(heads: int) -> int:
    """Inputs of DEACON's PCA layer, k = h + h(h + 1)/2: the heads, and products of two with repetition."""
    return heads * (heads + 3) // 2


def survivors(units: int, s: float) -> int:
    """kWTA's k = round(s·n); halves go to the even number, as Python rounds."""
    return round(s * units)


def unused_scale(kind: Normalisation, scale: float) -> tuple[str, str] | None:
    """The key and the sentence for a γ that scales nothing, for `check`; None: it has an effect, or is 1."""
    if kind == "none" and scale != 1:
        return "batch_norm_scale", f"{scale} scales nothing, as normalisation is 'none'"
    return None


class DeaconOptions(MethodOptions):
    """Defaults are the paper's (section 5.1)."""

    label = "DEACON"
    builds = frozenset({"output_stage"})

    architecture: Architecture = "direct"
    m: int = Field(ge=1, description="retained components, at most k inputs of the PCA layer")
    delta_p: float = Field(0.2, gt=0, description="δP, length of every step of w")
    delta_p_schedule: Literal["constant", "linear"] = Field(
        "constant", description="the paper's constant, or falling to 0 in a line so that w comes to rest"
    )
    xi: float = Field(0.8, gt=0, lt=1, description="ξ, share of the steepest descent that is demanded")
    gha_steps: int = Field(500, ge=1, description="i, iterations of the inner loop")
    direction: Literal["gha", "sanger", "eigenvectors"] = Field(
        "gha",
        description="F: displacement of the inner loop; one step of Eq. 14; or towards the exact components",
    )
    # To take the method apart; the paper has none of these.
    update: Literal["hebbian", "optimiser", "frozen"] = hash_neutral(
        "hebbian", description="what trains w: DEACON's rule, the optimiser like all else, or nothing"
    )
    update_every: int = hash_neutral(1, ge=1, description="w moves at every so many steps")
    normalisation: Normalisation = hash_neutral("batch", description="of the heads, in front of the PCA layer")
    batch_norm_scale: float = hash_neutral(1.0, gt=0, description="γ of the normalisation at the start")

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """The PCA layer has no more outputs than inputs; products of heads need batch normalisation; γ needs one."""
        if self.architecture == "nonlinear" and self.normalisation != "batch":
            return "normalisation", f"expected 'batch' in the nonlinear architecture, found {self.normalisation!r}"
        k = nonlinear_inputs(model.heads) if self.architecture == "nonlinear" else model.heads
        if self.m <= k:
            return unused_scale(self.normalisation, self.batch_norm_scale)
        layer = f"the PCA layer ({self.architecture} architecture, {model.heads} heads)"
        return "m", f"{self.m} is more than the k = {k} inputs of {layer}"


class HeadScaleOptions(MethodOptions):
    """By default the baseline."""

    builds = frozenset({"output_stage"})

    normalisation: Normalisation = Field("none", description="of the heads, in front of W^O")
    batch_norm_scale: float = Field(1.0, gt=0, description="γ of the normalisation at the start")
    output_scale: float = Field(1.0, gt=0, description="W^O at the start, in units of the baseline's")
    gate: float | None = Field(None, gt=0, description="a learned factor of each head, at the start; null: none")

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """γ belongs to a normalisation."""
        return unused_scale(self.normalisation, self.batch_norm_scale)


class MixingOptions(MethodOptions):
    """Defaults are those of the authors' code."""

    builds = frozenset({"output_stage"})

    start: float = Field(0.31, ge=0, le=1, description="P, share of the training until which A is frozen")
    gamma: float = Field(40.0, ge=0, description="γ; 0: no loss on A")
    growth: float = Field(1e-4, ge=0, description="Δr")
    former: Literal["written", "coded"] = Field(
        "written", description="Θ0: before the last step, or the current parameters; the gradient is the same"
    )
    kinds: tuple[Kind, ...] = Field(
        ATTENTION_KINDS, min_length=1, description="kinds of attention whose heads are mixed"
    )


class HomeostasisOptions(MethodOptions):
    """By default the paper's best model, (D) of Table 3; where only one mechanism is named, the other is none."""

    builds = frozenset({"before_output"})
    part_names: ClassVar[Mapping[str, str]] = {
        **{name: f"attention: {name}" for name in ("kwta", "rfb-kwta", "smart")},
        "smart-inhibition": "attention: smart, block: smart",
    }

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
    def _best_where_none_is_named(cls, values: Any) -> Any:
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
        for key, mechanism, s, units, of in checks:
            if mechanism in KWTA and survivors(units, s) < 1:
                return key, f"{s} keeps no unit: {of} has {units}, and round(s·{units}) must be at least 1"
            if mechanism in KWTA and survivors(units, s) == units:
                return key, f"{s} keeps all units: {of} has {units}, and round(s·{units}) must be less"
            if mechanism == "smart" and not LOWEST <= s <= HIGHEST:
                return key, f"{s} is no median that smart inhibition can have: from {LOWEST} to {HIGHEST}"
        return None

    def hooks_for(self, kind: Kind) -> frozenset[AttentionHook]:
        """No hooks of attention where only blocks are inhibited."""
        return frozenset() if self.attention == "none" else super().hooks_for(kind)


class MoaOptions(MethodOptions):
    """Weights of the losses and gates are those of the authors' code."""

    label = "Mixture of attention heads"
    builds = frozenset({"attention"})

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
        False, description="the gates of a token sum to 1 (Eq. 2); detached: their sum is a constant for the gradient"
    )

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """No more choices than experts, and gates that can learn."""
        if self.k > self.experts:
            return "k", f"{self.k} is more than the {self.experts} experts to choose from"
        if self.renormalise is True and self.k == 1:
            what = "with k = 1 every gate is 1 and the router learns nothing from the task; expected k ≥ 2"
            return "renormalise", what
        if self.noise_floor and not self.noisy:
            return "noise_floor", "there is no noise; expected noisy: true"
        return None

    def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
        """All experts have the same values."""
        return no_values_to_compare(other, name, others_name)


class MohOptions(MethodOptions):
    """Three quarters of 8 heads on for a token, a share within the paper's 50 to 90 %; β is the paper's."""

    label = "Mixture of heads"
    builds = frozenset({"attention"})

    shared: int = Field(2, ge=1, description="heads that are always on")
    k: int = Field(4, ge=1, description="heads chosen for a token among the others")
    balance: float = Field(0.01, ge=0, description="β")
    gates: Gates = Field("coded", description="1 on average over the heads that are on, or the paper's equations")

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """There are as many heads, and gates that can learn."""
        if self.shared + self.k > model.heads:
            return "k", f"{self.k} chosen and {self.shared} shared heads are more than the model's {model.heads}"
        if self.gates == "coded" and self.k == 1:
            return "k", "1 chosen head has the same gate whichever it is, and the router learns nothing; expected k ≥ 2"
        return None


class TalkingHeadsOptions(MethodOptions):
    """None."""

    builds = frozenset({"attention"})

    def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
        """Mixed weights can be negative."""
        return no_shares_of_attention(other, name, others_name)


class DropHeadOptions(MethodOptions):
    """A V from and to 0.2; ``turn: 0`` rises from 0 throughout."""

    label = "DropHead"
    builds = frozenset({"attention"})

    start: float = Field(0.2, ge=0, lt=1, description="rate at the start")
    turn: float = Field(0.1, ge=0, lt=1, description="share of the training at which the rate is 0")
    end: float = Field(0.2, ge=0, lt=1, description="rate at the end")


class GatedOptions(MethodOptions):
    """The paper's best variant."""

    builds = frozenset({"attention"})

    gates: Literal["elementwise", "headwise"] = Field("elementwise", description="a gate for each unit, or head")


class DifferentialOptions(MethodOptions):
    """The paper's."""

    builds = frozenset({"attention"})

    heads: Literal["halved", "kept"] = Field("halved", description="how head dimensions are made up for")

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """What is halved must be even."""
        halved = self.heads == "halved"
        number, what = (model.heads, "heads") if halved else (model.d_model // model.heads, "units of a head")
        if number % 2:
            return "heads", f"{self.heads!r} needs an even number of {what}, found {number}"
        return None

    def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
        """Differences of weights can be negative."""
        return no_shares_of_attention(other, name, others_name)
