"""DEACON (Ampazis & Sakketou 2024): a PCA layer y = x w + b between the concatenated heads and W^O.

Three architectures, section 3; x are batch-normalised:

    direct      rows of h, one for each token and each of the d_k dimensions: `DirectOutput.literal` (Eqs. 22 to 25)
    average     rows of h, one for each token, averaged over d_k: `AverageOutput.forward` (Eqs. 26 to 30)
    nonlinear   rows of h heads, their squares and products, k = h(h + 3)/2: `NonLinearOutput.forward` (Eqs. 31 to 35)

The optimiser trains b and everything else, but not w. After each backward pass w moves by dw, towards the principal
components of x as far as the loss still falls: F (Eq. 14) is `headdiv.gha.hebbian_direction`, dw (Eqs. 13 and
15 to 19) `headdiv.gha.deacon_update`; `Deacon.after_backward` applies them to all modules.

Batch normalisation and C are taken over the real tokens of a batch. In a causal model batch statistics carry
information from later positions to earlier ones while training; evaluation uses running statistics.

Letters: T rows, H heads (h), K head width (d_k), D model width, k inputs and M outputs of the PCA layer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.similarity import column_correlations, column_cosines, mean_off_diagonal
from headdiv.core import distributed
from headdiv.core.errors import TrainingError
from headdiv.core.modules import active_modules
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.core.settings import hash_neutral
from headdiv.core.tracing import is_recomputing
from headdiv.gha import Direction, Moments, deacon_update, hebbian_direction, joined_moments, moments, pooled_covariance
from headdiv.methods.base import Method, ValidationSplit, groups
from headdiv.methods.head_scale import unused_scale
from headdiv.methods.registry import register
from headdiv.nn.batch_norm import BatchNorm, normalisation, scale_and_shift
from headdiv.nn.linear import Linear, linear, weight_is_all
from headdiv.nn.records import attention_modules, by_name
from headdiv.nn.sizes import AttentionSpec, Normalisation, Sizes

Architecture = Literal["direct", "average", "nonlinear"]


def nonlinear_inputs(heads: int) -> int:
    """Inputs of the PCA layer, k = h + h(h + 1)/2: the heads, and products of two with repetition."""
    return heads * (heads + 3) // 2


def pca(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The PCA layer y = x w + b (Eqs. 23 and 33), of inputs that stand in columns: (…, k, N) -> (…, M, N)."""
    return w.T.to(x) @ x + b.to(x)[:, None]


class InputMoments:
    """Number, mean and covariance C of the rows that went through a PCA layer on this rank; None without any.

    Training passes since the last update count; with ``of_all_passes`` every pass does, in float64 on the CPU.
    """

    def __init__(self, of_all_passes: bool = False) -> None:
        self.of_all_passes = of_all_passes
        self.moments: Moments | None = None

    def counts_pass(self, training: bool) -> bool:
        """Whether the rows of this pass count."""
        return not is_recomputing() and (self.of_all_passes or (training and torch.is_grad_enabled()))

    @torch.no_grad()
    def add(self, by_input: Tensor, scale: Tensor | None = None, shift: Tensor | None = None) -> None:
        """Count rows that are given input by input, (k, …): with scale and shift (k,), ``by_input * scale + shift``."""
        with full_precision(by_input):
            rows = at_least_float32(by_input.flatten(1).T)  # (N, k)
            mean, C = moments(rows)
            if scale is not None:
                mean, C = mean * scale + shift, C * scale * scale[:, None]
            # A rank without an example in this batch has no rows: its zeros then weigh nothing.
            mean, C = mean.nan_to_num(), C.nan_to_num()
        if self.of_all_passes:
            mean, C = mean.cpu().double(), C.cpu().double()
        batch = rows.shape[0], mean, C
        self.moments = batch if self.moments is None else joined_moments(self.moments, batch)


class PCAOutput(nn.Module):
    """Batch normalisation, PCA layer y = x w + b, and W^O: what stands between the heads and the residual.

    Args:
        spec: the attention module this belongs to.
        m: number M of retained components.
        inputs: k.
        normalised: channels of the batch normalisation.
        projected: inputs of W^O.
    """

    def __init__(self, spec: AttentionSpec, m: int, inputs: int, normalised: int, projected: int) -> None:
        super().__init__()
        self.spec = spec
        self.norm = BatchNorm(normalised)
        self.w = nn.Parameter(torch.empty(inputs, m))
        self.b = nn.Parameter(torch.zeros(m))
        self.project = Linear(projected, spec.d_model)
        self.inputs = InputMoments()
        self.initialise(None)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None) -> None:
        """Orthonormal columns: where the Hebbian rule ends up, but in no particular direction."""
        w = at_least_float32(self.w.detach())  # in half precision there is no decomposition
        self.w.copy_(nn.init.orthogonal_(w, generator=generator))
        nn.init.zeros_(self.b)

    @torch.no_grad()
    def init_from(self, weight: Tensor, bias: Tensor) -> None:
        """Start from an existing W^O, (D, H·K) and (D,); this architecture has a place only for the bias."""
        self.project.bias.copy_(bias)

    @property
    def affine(self) -> bool:
        """Whether it only multiplies by constants in evaluation, for `headdiv.nn.folding.fold`."""
        return not isinstance(self.norm, nn.LayerNorm)

    def forget_interrupted_step(self) -> None:
        """Start a step afresh: nothing of an interrupted one stays."""
        self.inputs.moments = None

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], self.spec.heads, self.spec.d_head)  # (T, H, K)

    def _count(self, by_input: Tensor, scale: Tensor | None = None, shift: Tensor | None = None) -> None:
        if self.inputs.counts_pass(self.training):
            self.inputs.add(by_input, scale, shift)


class DirectOutput(PCAOutput):
    """Direct architecture."""

    def __init__(self, spec: AttentionSpec, m: int) -> None:
        super().__init__(spec, m, inputs=spec.heads, normalised=spec.heads * spec.d_head, projected=m * spec.d_head)

    @torch.no_grad()
    def init_from(self, weight: Tensor, bias: Tensor) -> None:
        """Keep the part of W^O that components can express: w is orthonormal, so with M = H that is all of it."""
        super().init_from(weight, bias)
        by_head = weight.reshape(-1, self.spec.heads, self.spec.d_head).to(self.w)  # (D, H, K)
        self.project.weight.copy_(torch.matmul(self.w.T, by_head).flatten(1))

    def forward(self, z: Tensor) -> Tensor:
        x = self.norm(z)  # (T, H·K)
        self._count(self._heads(x).transpose(0, 1))
        return self.merged(x) if weight_is_all(self.project) else self.literal(x)

    def literal(self, x: Tensor) -> Tensor:
        """As the paper has it, of normalised heads: (T, H·K) -> (T, D)."""
        y = pca(self._heads(x), self.w, self.b)  # Eq. 23: (T, M, K)
        return self.project(y.flatten(1))  # Eq. 25

    def merged(self, x: Tensor) -> Tensor:
        """The same with w multiplied into W^O, since both are linear: T rows pay for one product."""
        by_component = self.project.weight.view(-1, self.w.shape[1], self.spec.d_head)  # (D, M, K)
        weight = torch.matmul(self.w, by_component)  # (D, H, K)
        bias = self.project.bias + by_component.sum(dim=2) @ self.b
        return linear(x, weight.flatten(1), bias)


class AverageOutput(PCAOutput):
    """Average architecture: a head is one number for each token."""

    def __init__(self, spec: AttentionSpec, m: int) -> None:
        super().__init__(spec, m, inputs=spec.heads, normalised=spec.heads * spec.d_head, projected=m)

    def forward(self, z: Tensor) -> Tensor:
        S = self._heads(self.norm(z)).mean(dim=2)  # Eq. 26: (T, H)
        self._count(S.T)
        y = S @ self.w + self.b  # Eq. 28: (T, M)
        return self.project(y)  # Eq. 30


class NonLinearOutput(PCAOutput):
    """Non-linear architecture: heads, their squares, products of two heads.

    Batch normalisation and PCA layer are both linear in the k inputs, so that w is scaled in place of them.
    """

    affine = False  # it multiplies heads with each other

    def __init__(self, spec: AttentionSpec, m: int) -> None:
        k = nonlinear_inputs(spec.heads)
        super().__init__(spec, m, inputs=k, normalised=k, projected=m * spec.d_head)
        squares = [(i, i) for i in range(spec.heads)]
        first, second = torch.tensor([*squares, *combinations(range(spec.heads), 2)]).T.contiguous()
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        Z = self._heads(z).transpose(0, 1).flatten(1)  # (H, T·K)
        C = torch.cat([Z, Z.index_select(0, self.first) * Z.index_select(0, self.second)])  # Eq. 31: (k, T·K)
        with full_precision(z):
            inputs = at_least_float32(C)
            scale, shift = scale_and_shift(self.norm, inputs)  # (k,)
            w, b = self.w * scale[:, None], self.b + shift @ self.w.to(shift)
        self._count(inputs, scale, shift)
        y = pca(C, w, b)  # Eq. 33: (M, T·K)
        return self.project(y.view(y.shape[0], z.shape[0], self.spec.d_head).transpose(0, 1).flatten(1))  # Eq. 35


OUTPUTS: dict[str, type[PCAOutput]] = {"direct": DirectOutput, "average": AverageOutput, "nonlinear": NonLinearOutput}


@register
class Deacon(Method):
    """The method: one `PCAOutput` for each attention module, all updated together after each backward pass."""

    name = "deacon"

    class Options(Method.Options):
        """Defaults are the paper's (section 5.1)."""

        label = "DEACON"
        architecture: Architecture = "direct"
        m: int = Field(ge=1, description="retained components, at most k inputs of the PCA layer")
        delta_p: float = Field(0.2, gt=0, description="δP, length of every step of w")
        delta_p_schedule: Literal["constant", "linear"] = Field(
            "constant", description="the paper's constant, or falling to 0 in a line so that w comes to rest"
        )
        xi: float = Field(0.8, gt=0, lt=1, description="ξ, share of the steepest descent that is demanded")
        gha_steps: int = Field(500, ge=1, description="i, iterations of the inner loop")
        direction: Direction = Field(
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
            """No more outputs of the PCA layer than inputs; products of heads need batch normalisation; γ needs one."""
            if self.architecture == "nonlinear" and self.normalisation != "batch":
                return "normalisation", f"expected 'batch' in the nonlinear architecture, found {self.normalisation!r}"
            k = nonlinear_inputs(model.heads) if self.architecture == "nonlinear" else model.heads
            if self.m <= k:
                return unused_scale(self.normalisation, self.batch_norm_scale)
            layer = f"the PCA layer ({self.architecture} architecture, {model.heads} heads)"
            return "m", f"{self.m} is more than the k = {k} inputs of {layer}"

    options: Options

    def output_stage(self, spec: AttentionSpec) -> nn.Module:
        options = self.options
        stage = OUTPUTS[options.architecture](spec, options.m)
        stage.norm = normalisation(options.normalisation, stage.norm.num_features, options.batch_norm_scale)
        if options.update_every > 1:
            stage.register_buffer("steps", torch.zeros((), dtype=torch.long))
        return stage

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """The weights w, not the biases; none where the optimiser trains them."""
        return [] if self.options.update == "optimiser" else [layer.w for layer in pca_layers(model).values()]

    @torch.no_grad()
    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Move every w by DEACON's dw, all modules of one size in one batched product.

        C is taken over all rows that went through a layer in training since the last call, those that its gradient is
        summed over. A layer without a gradient, or with one that is not finite, stays as it is.

        Raises:
            TrainingError: no layer has a gradient though not all are frozen, or one was not in training mode.
        """
        layers = list(pca_layers(model).values())
        if not layers:
            raise TrainingError("the model has no PCA layer; expected attention modules that this method built")
        if self.options.update == "hebbian":
            trained = [layer for layer in layers if layer.w.grad is not None]
            if not trained and any(layer.w.requires_grad for layer in layers):
                raise TrainingError("no PCA layer has a gradient; expected before_optimizer_step after loss.backward()")
            if self._is_due(layers):
                for group in groups(trained, lambda layer: layer.w.shape):
                    self._move(group, progress)
        for layer in layers:
            layer.inputs.moments = None
            if self.options.update != "optimiser":
                layer.w.grad = None

    def _is_due(self, layers: list[PCAOutput]) -> bool:
        """Whether this is one of the steps at which w moves; the layers count the steps."""
        if self.options.update_every == 1:
            return True
        for layer in layers:
            layer.steps += 1
        return not layers[0].steps % self.options.update_every

    def _move(self, layers: list[PCAOutput], progress: float) -> None:
        options = self.options
        C = covariances(layers)  # (modules, k, k)
        # In float32 at least: near its end F is less than what half precision rounds w by.
        w = at_least_float32(torch.stack([layer.w for layer in layers]))  # (modules, k, M)
        G = at_least_float32(torch.stack([layer.w.grad for layer in layers]))
        F = hebbian_direction(C, w, options.direction, options.gha_steps)
        fade = 1.0 if options.delta_p_schedule == "constant" else max(1 - progress, 1e-6)
        dw = deacon_update(G, F, options.delta_p * fade, options.xi)
        # A loop that scales its loss, as for float16, may overflow; its optimiser then skips the step, and so does w.
        for layer, step in zip(layers, torch.where(dw.isfinite(), dw, 0.0), strict=True):
            layer.w += step

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        return {"pca_weights": pca_weights(model)}


def covariances(layers: list[PCAOutput]) -> Tensor:
    """C of the inputs of every layer since the last update, over the rows of all ranks: (modules, k, k)."""
    for layer in layers:
        if layer.inputs.moments is None:
            raise TrainingError(
                f"{layer.spec.name}: DEACON needs a forward pass in training mode, found none; call model.train()"
            )
    numbers, means, C = zip(*(layer.inputs.moments for layer in layers), strict=True)
    if distributed.world() == 1:
        return torch.stack(C)
    return pooled_covariance(means[0].new_tensor(numbers), torch.stack(means), torch.stack(C))


def pca_layers(model: nn.Module) -> dict[str, PCAOutput]:
    """Name and PCA layer of every attention module that has one."""
    attention_modules(model)  # numbers copies of a layer
    return active_modules(model, PCAOutput)


@contextlib.contextmanager
def collected_moments(model: nn.Module) -> Iterator[dict[str, Moments]]:
    """While open, PCA layers collect moments of their inputs in evaluation too; those of training stay as they are.

    Yields:
        A dictionary that is filled when the block ends: by name ("encoder 1") the moments, in float64 on the CPU,
        of all rows that went through a layer meanwhile. Layers that nothing went through are left out.
    """
    layers = list(pca_layers(model).values())
    training_inputs = [layer.inputs for layer in layers]
    collected: dict[str, Moments] = {}
    for layer in layers:
        layer.inputs = InputMoments(of_all_passes=True)
    try:
        yield collected
        collected |= by_name((layer.spec.name, layer.inputs.moments) for layer in layers if layer.inputs.moments)
    finally:
        for layer, inputs in zip(layers, training_inputs, strict=True):
            layer.inputs = inputs


def pca_weights(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Statistics of every PCA layer for Figure 6, by module name; empty for a model without any.

    Returns:
        For each: the matrix of `column_cosines`, its `mean_off_diagonal`, that of `column_correlations`,
        and the length of each column.
    """
    result = {}
    for name, layer in pca_layers(model).items():
        w = layer.w.detach().double().cpu()
        cosines = column_cosines(w)
        result[name.removesuffix(".output")] = {
            "place": layer.spec.name,
            "cosines": [[round(value, 6) for value in row] for row in cosines.tolist()],
            "mean_absolute_cosine": mean_off_diagonal(cosines),
            "mean_absolute_correlation": mean_off_diagonal(column_correlations(w)),
            "column_lengths": w.norm(dim=0).tolist(),
        }
    return result
