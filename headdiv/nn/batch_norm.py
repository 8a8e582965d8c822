"""Batch normalisation over the real tokens of a batch, however many ranks they are spread over."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core import distributed
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.core.tracing import is_recomputing
from headdiv.nn.sizes import Normalisation


def normalisation(kind: Normalisation, channels: int, scale: float = 1.0) -> nn.Module:
    """Batch normalisation of ``channels``, layer normalisation of rows of that width, or nothing; γ starts at scale."""
    if kind == "none":
        return nn.Identity()
    module = BatchNorm(channels) if kind == "batch" else nn.LayerNorm(channels)
    nn.init.constant_(module.weight, scale)
    return module


Normalised = nn.BatchNorm1d | nn.SyncBatchNorm


class BatchNorm(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` whose statistics in training are those of all ranks' rows together.

    On one rank it is exactly that module. (`torch.nn.SyncBatchNorm` does the same on GPUs only.)
    """

    def forward(self, x: Tensor) -> Tensor:
        """(T, C) or (T, C, K), normalised for each of the C channels."""
        if not self.training or distributed.world() == 1:
            if self.training and torch.compiler.is_compiling():  # T may be symbolic
                torch._check(x.shape[0] > 1)
            return self._recomputed(x) if self.training and is_recomputing() else super().forward(x)
        with full_precision(x):
            values = at_least_float32(x)
            scale, shift = (
                part.view(1, -1, *[1] * (x.dim() - 2)) for part in scale_and_shift(self, values.transpose(0, 1))
            )
            return (values * scale + shift).to(x.dtype)

    def _recomputed(self, x: Tensor) -> Tensor:
        """A training pass that is not counted, since activation checkpointing repeats it."""
        statistics = self.running_mean.clone(), self.running_var.clone()
        return F.batch_norm(x, *statistics, self.weight, self.bias, True, 0.0, self.eps)


def scale_and_shift(norm: Normalised, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and shift that normalise x, for a caller whose next step is also linear: x * scale + shift.

    Counts as a batch, as a forward pass does.

    Args:
        norm: a `BatchNorm`, or what torch's `convert_sync_batchnorm` makes of it; statistics are of all ranks.
        x: (C, …), float32 at least.

    Returns:
        Scale and shift (C,).
    """
    mean, variance = _statistics(norm, x.flatten(1)) if norm.training else (norm.running_mean, norm.running_var)
    scale = norm.weight * (variance + norm.eps).rsqrt()
    return scale, norm.bias - scale * mean


def _statistics(norm: Normalised, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each of the rows (C, N), over all ranks."""
    if distributed.world() == 1 and torch.compiler.is_compiling():
        torch._check(rows.shape[1] > 1)
    elif distributed.world() == 1 and rows.shape[1] == 1:
        raise ValueError("batch normalisation needs more than 1 value of each channel in training, found 1")
    n = distributed.total(rows.new_full((1,), rows.shape[1])).detach()
    divisor = n.clamp_min(1)  # a batch of nothing but padding has no rows
    mean = distributed.total(rows.sum(dim=1)) / divisor
    centred = rows - mean.detach()[:, None]  # deviations add up to 0: the variance has no gradient in the mean
    variance = distributed.total(torch.linalg.vecdot(centred, centred)) / divisor
    if is_recomputing():
        return mean, variance
    with torch.no_grad():
        norm.num_batches_tracked += 1
        # Without momentum torch takes the mean over all batches, as its swa_utils.update_bn does.
        share = 1 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        unbiased = variance * n / (n - 1).clamp_min(1)  # as torch keeps it
        for running, new in ((norm.running_mean, mean), (norm.running_var, unbiased)):
            running.lerp_(torch.where(n > 0, new.to(running), running), share)
    return mean, variance
