"""Batch normalisation over the real tokens of a batch, whatever number of ranks they lie on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headdiv import distributed


class BatchNorm(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` whose statistics in training are those of all ranks' rows together.

    On one rank it is exactly that module. (`torch.nn.SyncBatchNorm` does the same on GPUs only.)
    """

    def forward(self, x: Tensor) -> Tensor:
        """(T, C) or (T, C, K), normalised for each of the C channels."""
        if not self.training or distributed.world() == 1:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return self._normalise(x.float() if x.dtype != torch.float64 else x).to(x.dtype)

    def _normalise(self, x: Tensor) -> Tensor:
        shape, others = [1, -1, *[1] * (x.dim() - 2)], [d for d in range(x.dim()) if d != 1]
        rows = x.new_tensor([x.numel() // x.shape[1]])
        total = distributed.total(torch.cat([x.sum(others), rows]))
        mean, n = total[:-1] / total[-1], total[-1].detach()
        centred = x - mean.view(shape)
        variance = distributed.total(centred.square().sum(others)) / n
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * n / (n - 1), self.momentum)  # unbiased, as torch keeps it
        scale = self.weight * (variance + self.eps).rsqrt()
        return centred * scale.view(shape) + self.bias.view(shape)
