"""DEACON (Ampazis & Sakketou 2024): a PCA layer between the concatenated heads and W^O.

Its weights w follow the principal components of the heads as far as the loss still falls (`headdiv.gha`);
its bias and everything else are left to the ordinary optimiser. Three architectures, section 3:

    direct      rows of h, one for each token and each of the d_k dimensions (Eqs. 22 to 25)
    average     rows of h, one for each token, averaged over d_k (Eqs. 26 to 30)
    nonlinear   rows of h heads, their squares and products, k = h(h + 3)/2 (Eqs. 31 to 35)

Batch normalisation and C are taken over the real tokens of a batch. In a causal model batch statistics
carry information from later positions to earlier ones while training; evaluation uses running statistics.

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
from headdiv.core.arguments import must_be_progress
from headdiv.core.errors import TrainingError
from headdiv.core.modules import active_modules
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.core.settings import hash_neutral
from headdiv.core.tracing import is_recomputing, is_transformed
from headdiv.gha import (
    Moments,
    deacon_update,
    gha_inner_loop,
    joined_moments,
    moments,
    pooled_covariance,
    principal_components,
    sanger_rule,
)
from headdiv.methods.base import Method, ValidationSplit
from headdiv.methods.head_scale import unused_scale
from headdiv.methods.registry import register
from headdiv.nn.batch_norm import BatchNorm, normalisation, scale_and_shift
from headdiv.nn.linear import Linear, linear, weight_is_all
from headdiv.nn.records import attention_modules, keyed_by_place
from headdiv.nn.sizes import AttentionSpec, Normalisation, Sizes

Architecture = Literal["direct", "average", "nonlinear"]


def nonlinear_inputs(heads: int) -> int:
    """Inputs of the PCA layer, k = h + h(h + 1)/2: the heads, and products of two with repetition."""
    return heads * (heads + 3) // 2


class PCAOutput(nn.Module):
    """Batch normalisation, PCA layer y = x w + b, and W^O: what stands between the heads and the residual.

    Args:
        spec: the attention module this belongs to.
        m: number of retained components.
    """

    def __init__(self, spec: AttentionSpec, m: int, inputs: int, normalised: int, projected: int) -> None:
        super().__init__()
        self.spec = spec
        self.norm = BatchNorm(normalised)
        self.w = nn.Parameter(torch.empty(inputs, m))
        self.b = nn.Parameter(torch.zeros(m))
        self.project = Linear(projected, spec.d_model)
        self.moments: Moments | None = (
            None  # of all PCA inputs in training since the last `after_backward`, on this rank
        )
        self.learned = False  # whether the last pass was counted in `moments`
        self.collected: Moments | None = None  # of all inputs since `collected_moments` was opened
        self.initialise(None)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator | None) -> None:
        """Orthonormal columns: where the Hebbian rule ends up, but in no particular direction."""
        drawn = at_least_float32(self.w.detach())  # in half precision there is no decomposition
        self.w.copy_(nn.init.orthogonal_(drawn, generator=generator))
        nn.init.zeros_(self.b)

    @torch.no_grad()
    def take_over(self, weight: Tensor, bias: Tensor) -> None:
        """Start from an existing W^O, (D, H·K) and (D,); this architecture has a place only for the bias."""
        self.project.bias.copy_(bias)

    @property
    def components(self) -> int:
        """M."""
        return self.w.shape[1]

    def forget_interrupted_step(self) -> None:
        """Start a step afresh: nothing of an interrupted one stays."""
        self.moments, self.learned = None, False

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], self.spec.heads, self.spec.d_head)  # (T, H, K)

    def _record_moments(self, by_input: Tensor, scale: Tensor | None = None, shift: Tensor | None = None) -> None:
        """Moments of the PCA layer's inputs, from their values input by input: (k, …).

        Where scale and shift (k,) are given, the moments of ``by_input * scale + shift``.
        """
        learning = self.training and torch.is_grad_enabled() and not is_transformed()
        if (
            is_recomputing()
        ):  # counted before, unless checkpointing is the reentrant one, whose first pass learns nothing
            learning = learning and not self.learned
        elif self.learned != learning and not torch.compiler.is_compiling():
            self.learned = learning
        if learning or self.collected is not None:
            with torch.no_grad(), full_precision(by_input):
                rows = at_least_float32(by_input.flatten(1).T)  # (N, k)
                # A rank without an example in this batch has no rows: its zeros then weigh nothing.
                mean, C = moments(rows)
                if scale is not None:
                    mean, C = mean * scale + shift, C * scale * scale[:, None]
                batch = rows.shape[0], mean.nan_to_num(), C.nan_to_num()
            if self.collected is None:
                self.moments = batch if self.moments is None else joined_moments(self.moments, batch)
            else:
                self.collected = joined_moments(self.collected, _on_cpu(batch))


class LinearPCAOutput(PCAOutput):
    """An output that in evaluation only multiplies by constants, unless rows are normalised."""

    @property
    def affine(self) -> bool:
        """See `headdiv.nn.folding.fold`."""
        return not isinstance(self.norm, nn.LayerNorm)


class DirectOutput(LinearPCAOutput):
    """Direct architecture. PCA layer and W^O are both linear, so they are multiplied first: T rows pay for one."""

    def __init__(self, spec: AttentionSpec, m: int) -> None:
        super().__init__(spec, m, inputs=spec.heads, normalised=spec.heads * spec.d_head, projected=m * spec.d_head)

    @torch.no_grad()
    def take_over(self, weight: Tensor, bias: Tensor) -> None:
        """Keep the part of W^O that components can express: w is orthonormal, so with M = H that is all of it."""
        super().take_over(weight, bias)
        by_head = weight.reshape(-1, self.spec.heads, self.spec.d_head).to(self.w)  # (D, H, K)
        self.project.weight.copy_(torch.matmul(self.w.T, by_head).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """(T, H·K) -> (T, D)."""
        x = self.norm(x)
        self._record_moments(self._heads(x).transpose(0, 1))
        if not weight_is_all(self.project):
            components = self.w.T.to(x) @ self._heads(x) + self.b.to(x)[:, None]  # (T, M, K)
            return self.project(components.flatten(1))
        by_component = self.project.weight.view(-1, self.components, self.spec.d_head)  # (D, M, K)
        weight = torch.matmul(self.w, by_component)  # (D, H, K)
        bias = self.project.bias + by_component.sum(dim=2) @ self.b
        return linear(x, weight.flatten(1), bias)


class AverageOutput(LinearPCAOutput):
    """Average architecture: a head is one number for each token."""

    def __init__(self, spec: AttentionSpec, m: int) -> None:
        super().__init__(spec, m, inputs=spec.heads, normalised=spec.heads * spec.d_head, projected=m)

    def forward(self, x: Tensor) -> Tensor:
        """(T, H·K) -> (T, D)."""
        s = self._heads(self.norm(x)).mean(dim=2)  # (T, H)
        self._record_moments(s.T)
        return self.project(s @ self.w + self.b)


class NonLinearOutput(PCAOutput):
    """Non-linear architecture: heads, their squares, products of two heads.

    Batch normalisation and PCA layer are both linear in the k inputs, so that w is scaled in place of them.
    """

    def __init__(self, spec: AttentionSpec, m: int) -> None:
        k = nonlinear_inputs(spec.heads)
        super().__init__(spec, m, inputs=k, normalised=k, projected=m * spec.d_head)
        squares = [(i, i) for i in range(spec.heads)]
        first, second = torch.tensor([*squares, *combinations(range(spec.heads), 2)]).T.contiguous()
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(T, H·K) -> (T, D)."""
        z = self._heads(x).transpose(0, 1).flatten(1)  # (H, T·K)
        features = torch.cat([z, z.index_select(0, self.first) * z.index_select(0, self.second)])  # (k, T·K)
        with full_precision(x):
            inputs = at_least_float32(features)
            scale, shift = scale_and_shift(self.norm, inputs)  # (k,)
            w, b = self.w * scale[:, None], self.b + shift @ self.w.to(shift)
        self._record_moments(inputs, scale, shift)
        y = w.T.to(features) @ features + b.to(features)[:, None]  # (M, T·K)
        return self.project(y.view(self.components, x.shape[0], self.spec.d_head).transpose(0, 1).flatten(1))


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
        """The architecture's output stage."""
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
        must_be_progress(progress)
        layers, moves = list(pca_layers(model).values()), self.options.update == "hebbian"
        if not layers:
            raise TrainingError("the model has no PCA layer; expected attention modules that this method built")
        if self.options.update_every > 1:
            for layer in layers:
                layer.steps += 1
            moves = moves and not layers[0].steps % self.options.update_every
        by_size: dict[torch.Size, list[PCAOutput]] = {}
        for layer in layers:
            if layer.w.grad is not None:
                by_size.setdefault(layer.w.shape, []).append(layer)
        if not by_size and self.options.update == "hebbian" and any(layer.w.requires_grad for layer in layers):
            raise TrainingError("no PCA layer has a gradient; expected after_backward after loss.backward()")
        for group in by_size.values() if moves else ():
            self._move(group, progress)
        for layer in layers:
            layer.moments = None
            if self.options.update != "optimiser":
                layer.w.grad = None

    def _move(self, layers: list[PCAOutput], progress: float) -> None:
        for layer in layers:
            if layer.moments is None:
                raise TrainingError(
                    f"{layer.spec.place}: DEACON needs a forward pass in training mode, found none; call model.train()"
                )
        C = self._covariances(layers)  # (modules, k, k)
        # In float32 at least: near its end F is less than what half precision rounds w by.
        w, G = (
            at_least_float32(torch.stack([distributed.whole(x) for x in each]))
            for each in zip(*((layer.w, layer.w.grad) for layer in layers), strict=True)
        )  # (modules, k, M) each
        fade = 1.0 if self.options.delta_p_schedule == "constant" else max(1 - progress, 1e-6)
        dw = deacon_update(G, self._hebbian_direction(C, w), self.options.delta_p * fade, self.options.xi)
        # A loop that scales its loss, as for float16, may overflow; its optimiser then skips the step, and so does w.
        for layer, step in zip(layers, torch.where(dw.isfinite(), dw, 0.0), strict=True):
            distributed.add_to(layer.w, step)

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        """See `pca_weights`."""
        return {"pca_weights": pca_weights(model)}

    @staticmethod
    def _covariances(layers: list[PCAOutput]) -> Tensor:
        """C of every module over the rows of all ranks."""
        numbers, means, covariances = zip(*(layer.moments for layer in layers), strict=True)
        if distributed.world() == 1:
            return torch.stack(covariances)
        return pooled_covariance(means[0].new_tensor(numbers), torch.stack(means), torch.stack(covariances))

    def _hebbian_direction(self, C: Tensor, w: Tensor) -> Tensor:
        if self.options.direction == "gha":
            return gha_inner_loop(C, w, self.options.gha_steps) - w
        if self.options.direction == "sanger":
            return sanger_rule(C, w)
        components = principal_components(C, w.shape[-1])
        nearer = (components * w).sum(dim=-2, keepdim=True).sign()  # an eigenvector's sign is arbitrary
        return components * torch.where(nearer == 0, 1.0, nearer) - w


def pca_layers(model: nn.Module) -> dict[str, PCAOutput]:
    """Name and PCA layer of every attention module that has one."""
    attention_modules(model)  # numbers copies of a layer
    return active_modules(model, PCAOutput)


@contextlib.contextmanager
def collected_moments(model: nn.Module) -> Iterator[dict[str, Moments]]:
    """While open, PCA layers collect moments of their inputs in evaluation too; those of training stay as they are.

    Yields:
        A dictionary that is filled when the block ends: by place ("encoder 1") the moments, in float64 on the CPU,
        of all rows that went through a layer meanwhile. Layers that nothing went through are left out.
    """
    layers = list(pca_layers(model).values())
    found: dict[str, Moments] = {}
    for layer in layers:
        k = len(layer.w)
        layer.collected = _on_cpu((0, torch.zeros(k), torch.zeros(k, k)))
    try:
        yield found
        found.update(keyed_by_place((layer.spec.place, layer.collected) for layer in layers if layer.collected[0]))
    finally:
        for layer in layers:
            layer.collected = None


def _on_cpu(of: Moments) -> Moments:
    number, mean, C = of
    return number, mean.cpu().double(), C.cpu().double()


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
            "place": layer.spec.place,
            "cosines": [[round(value, 6) for value in row] for row in cosines.tolist()],
            "mean_absolute_cosine": mean_off_diagonal(cosines),
            "mean_absolute_correlation": mean_off_diagonal(column_correlations(w)),
            "column_lengths": w.norm(dim=0).tolist(),
        }
    return result
