"""Multi-head mixing, MHM (Azov & Landau): every head becomes a linear combination of all heads of its module.

Z' = A Z over the heads, with A (h, h), the Alphas, starting as the identity. A stays frozen for a fraction P of the
training; from then on a loss makes its nuclear norm grow (Eqs. 7 and 8):

    L_nuc = ‖A(Θ0)‖_* + Δr − ‖A(Θ)‖_*        L = L_CE + γ L_nuc

Θ0 are constants, so the gradient is that of −‖A‖_* whatever Θ0 and Δr are. As written, Θ0 are the parameters before
the last step; in the authors' code they are the current ones, which makes the loss the constant Δr. They add γ L_nuc
to the loss summed over a batch's tokens, as here; the sum is then divided by the number of tokens.

Their code also has a bias of size h per module, which makes the h² + h parameters of Table 3.

Letters: T rows, H heads (h), K head width, D model width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.similarity import rounded
from headdiv.core.errors import TrainingError
from headdiv.core.modules import active_modules
from headdiv.core.precision import at_least_float32
from headdiv.methods.base import Method, ValidationSplit, groups, of_kinds
from headdiv.methods.registry import register
from headdiv.nn.linear import WeightAndBias, linear
from headdiv.nn.records import HeadRecord, attention_modules, by_name
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, Kind


class MixingOutput(WeightAndBias):
    """W^O after the mixture of heads.

    It is W^O itself with two more parameters: a fresh model is, number for number, its baseline.
    """

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec.heads * spec.d_head, spec.d_model)
        self.spec, self.affine = spec, True
        self.alphas = nn.Parameter(torch.eye(spec.heads))
        self.beta = nn.Parameter(torch.zeros(spec.heads))
        self.register_buffer("former_norm", torch.tensor(float(spec.heads)))  # ‖A(Θ0)‖_*
        self.current_norm: Tensor | None = None  # ‖A‖_* in this step, once the loss has computed it

    def initialise(self, generator: torch.Generator) -> None:
        """W^O as in the baseline, A the identity."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        for bias in (self.bias, self.beta):
            nn.init.zeros_(bias)
        nn.init.eye_(self.alphas)
        self.former_norm.fill_(float(self.spec.heads))

    def forget_interrupted_step(self) -> None:
        """Start a step afresh: nothing of an interrupted one stays."""
        self.current_norm = None

    def forward(self, z: Tensor) -> Tensor:
        """W^O of Z' = A Z + β (a β for each head, from the authors' code): (T, H·K) -> (T, D).

        A is multiplied into W^O, since both are linear: T rows pay for one product.
        """
        by_head = self.weight.view(-1, self.spec.heads, self.spec.d_head)  # (D, H, K)
        weight = torch.matmul(self.alphas.T, by_head)  # head j reaches the output through column j of A
        bias = self.bias + by_head.sum(dim=2) @ self.beta
        return linear(z, weight.flatten(1), bias)


def nuclear_norms(alphas: Tensor) -> Tensor:
    """‖A‖_*, the sum of singular values: (…, H, H) -> (…); NaN where A is not finite, for the trainer to report."""
    alphas = at_least_float32(alphas)
    values = torch.linalg.svdvals(alphas.nan_to_num())  # it would raise its own error for NaN
    return values.sum(-1) + 0 * alphas.detach().sum((-2, -1))


@register
class Mixing(Method):
    """The method: a `MixingOutput` in each attention module."""

    name = "mixing"

    class Options(Method.Options):
        """Defaults are those of the authors' code."""

        start: float = Field(0.31, ge=0, le=1, description="P, share of the training until which A is frozen")
        gamma: float = Field(40.0, ge=0, description="γ; 0: no loss on A")
        growth: float = Field(1e-4, ge=0, description="Δr")
        # No other choice is left; it stays, since the hashes of stored runs include it.
        former: Literal["written"] = Field("written", description="Θ0: the parameters before the last step")
        kinds: tuple[Kind, ...] = Field(
            ATTENTION_KINDS, min_length=1, description="kinds of attention whose heads are mixed"
        )

    options: Options

    def output_stage(self, spec: AttentionSpec) -> nn.Module:
        return MixingOutput(spec)

    def layers(self, model: nn.Module) -> list[MixingOutput]:
        """Every mixture of a model.

        Raises:
            TrainingError: it has none, or no attention of these kinds.
        """
        layers: list[MixingOutput] = []
        for module in of_kinds(attention_modules(model), self.options.kinds):
            output = getattr(module, "output", None)
            if isinstance(output, nn.Module):
                layers += active_modules(output, MixingOutput).values()
        if not layers:
            raise TrainingError("the model has no mixture of heads; expected attention modules that this method built")
        return layers

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """γ times the sum of L_nuc over the modules, for each prediction; None while A is frozen."""
        layers = self.layers(model)
        if progress < self.options.start or not self.options.gamma:
            return None
        by_size = groups(layers, lambda layer: layer.alphas.shape)
        return self.options.gamma / count * sum(self._nuclear_loss(group) for group in by_size)

    def _nuclear_loss(self, layers: list[MixingOutput]) -> Tensor:
        """The sum of L_nuc over layers with the same number of heads; it keeps their norms for the next step."""
        norms = nuclear_norms(torch.stack([layer.alphas for layer in layers]))  # (modules,)
        current = norms.detach()
        former = torch.stack([layer.former_norm for layer in layers])
        for layer, norm in zip(layers, current, strict=True):
            layer.current_norm = norm
        return (former + self.options.growth - norms).sum()

    @torch.no_grad()
    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Freeze A, or note its norm before this step: of several batches of a step, all have the same Θ0."""
        super().after_backward(model, progress)
        for layer in self.layers(model):
            if layer.current_norm is not None:
                layer.former_norm.copy_(layer.current_norm)
                layer.current_norm = None

    def frozen_parameters(self, model: nn.Module, progress: float) -> list[nn.Parameter]:
        """A and its bias, before the fraction P of the training."""
        if progress >= self.options.start:
            return []
        return [parameter for layer in self.layers(model) for parameter in (layer.alphas, layer.beta)]

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        result = {}
        for name, layer in by_name((layer.spec.name, layer) for layer in self.layers(model)).items():
            alphas = layer.alphas.detach().double().cpu()
            result[name] = {
                "alphas": rounded(alphas.tolist()),
                "nuclear_norm": float(nuclear_norms(alphas)),
            }
        return {"alphas": result}
