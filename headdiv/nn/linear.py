"""Linear layers whose products have few distinct shapes in half precision on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling
from torch.nn import functional as F

from headdiv.core.precision import HALF, autocast

MULTIPLE = 64  # of rows
PLAIN = (Tensor, nn.Parameter)


class Linear(nn.Linear):
    """torch's layer, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, in_features) -> (…, out_features)."""
        return linear(x, self.weight, self.bias)


class WeightAndBias(nn.Module):
    """Parameters of a linear layer, initialised alike, for a module that does more with its input than multiply.

    It is no nn.Linear, since peft would merge adapters into its weight, which would change the output.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        layer = Linear(in_features, out_features)
        self.weight, self.bias = layer.weight, layer.bias

    @torch.no_grad()
    def init_from(self, weight: Tensor, bias: Tensor) -> None:
        """Start from an existing layer's, (out_features, in_features) and (out_features,)."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)

    def extra_repr(self) -> str:
        """For print(model)."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias: (…, D) -> (…, N), as torch's.

    Under autocast in half precision on the CPU, ⌈T / 64⌉·64 rows are computed for T, padded with zeros at the end.
    oneDNN compiles a kernel for every new shape of a product there, which can take ten times as long as the product,
    and batches of whole sentences hardly ever have the same number of rows twice. Results are equal up to rounding:
    sums, above all that over rows in the weight's gradient, are added up in another order.
    """
    cpu_autocast = not is_compiling() and torch.is_autocast_enabled("cpu") and x.device.type == "cpu" and x.dim() > 1
    if cpu_autocast and type(x) in PLAIN and type(weight) in PLAIN:
        x, weight = autocast(x), autocast(weight)
        if x.dtype in HALF and weight.dtype == x.dtype:
            return _Linear.apply(x, weight, None if bias is None else autocast(bias))
    return F.linear(x, weight, bias)


LINEAR = (nn.Linear, Linear)  # modules that are a linear layer and nothing more


def weight_is_all(module: nn.Module) -> bool:
    """Whether a module is a linear layer whose weight and bias may be read in place of calling it.

    Not an adapter's, and not one with hooks: those of torch.nn.utils.prune recompute the weight before every call.
    """
    return type(module) in LINEAR and not module._forward_pre_hooks and not module._forward_hooks


def with_rounded_rows(x: Tensor) -> Tensor:
    """(T, D) -> (⌈T / 64⌉·64, D), with zeros at the end; ``x`` itself where no row is missing."""
    missing = -len(x) % MULTIPLE
    return F.pad(x, (0, 0, 0, missing)) if missing else x


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = with_rounded_rows(x.flatten(0, -2))  # (T', D)
        ctx.save_for_backward(rows, weight)
        with torch.autocast("cpu", enabled=False):
            # A view of the first rows would not do: a ReLU after it may change it in place.
            return F.linear(rows, weight, bias).resize_(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        flat = grad.flatten(0, -2)  # (T, N)
        grads = with_rounded_rows(flat)  # (T', N)
        return (
            (grads @ weight).resize_(*grad.shape[:-1], weight.shape[1]) if for_x else None,
            grads.T @ rows if for_weight else None,
            flat.sum(0) if for_bias else None,
        )
