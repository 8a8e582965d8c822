"""The scale at which heads enter W^O, without a PCA layer: what is left of DEACON without that layer.

Heads are normalised, or multiplied by a learned gate each, or W^O starts smaller; all else is the baseline's, drawn
from the same names. A gate is one number for each head of each attention module (compare ReZero, Bachlechner et al.
2021, and LayerScale, Touvron et al. 2021, which have one for a layer or a channel).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.methods.base import Method
from headdiv.methods.registry import register
from headdiv.nn.batch_norm import normalisation
from headdiv.nn.linear import WeightAndBias, linear
from headdiv.nn.sizes import AttentionSpec, Normalisation, Sizes


def unused_scale(kind: Normalisation, scale: float) -> tuple[str, str] | None:
    """The key and the sentence for a γ that scales nothing, for `check`; None: it has an effect, or is 1."""
    if kind == "none" and scale != 1:
        return "batch_norm_scale", f"{scale} scales nothing, as normalisation is 'none'"
    return None


class ScaledOutput(WeightAndBias):
    """W^O on normalised and gated heads."""

    def __init__(self, spec: AttentionSpec, options: HeadScale.Options) -> None:
        width = spec.heads * spec.d_head
        super().__init__(width, spec.d_model)
        self.heads, self.first_scale = spec.heads, options.output_scale
        self.norm = normalisation(options.normalisation, width, options.batch_norm_scale)
        self.gate = None if options.gate is None else nn.Parameter(torch.full((spec.heads,), options.gate))
        self._scale()

    @property
    def affine(self) -> bool:
        """Whether it is one linear layer in evaluation; layer normalisation depends on each row."""
        return not isinstance(self.norm, nn.LayerNorm)

    def initialise(self, generator: torch.Generator) -> None:
        """The baseline's W^O times the scale."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        nn.init.zeros_(self.bias)
        self._scale()

    @torch.no_grad()
    def _scale(self) -> None:
        self.weight *= self.first_scale

    @torch.no_grad()
    def init_from(self, weight: Tensor, bias: Tensor) -> None:
        """Start from an existing W^O, (D, H·K) and (D,), times the scale."""
        super().init_from(weight * self.first_scale, bias)

    def forward(self, z: Tensor) -> Tensor:
        weight = self.weight
        if self.gate is not None:
            weight = weight * self.gate.repeat_interleave(weight.shape[1] // self.heads)
        return linear(self.norm(z), weight, self.bias)


@register
class HeadScale(Method):
    """The method: a `ScaledOutput` in each attention module."""

    name = "head-scale"

    class Options(Method.Options):
        """By default the baseline."""

        normalisation: Normalisation = Field("none", description="of the heads, in front of W^O")
        batch_norm_scale: float = Field(1.0, gt=0, description="γ of the normalisation at the start")
        output_scale: float = Field(1.0, gt=0, description="W^O at the start, in units of the baseline's")
        gate: float | None = Field(None, gt=0, description="a learned factor of each head, at the start; null: none")

        def check(self, model: Sizes) -> tuple[str, str] | None:
            return unused_scale(self.normalisation, self.batch_norm_scale)

    options: Options

    def output_stage(self, spec: AttentionSpec) -> nn.Module:
        return ScaledOutput(spec, self.options)
