"""Training in several processes (ranks); with one process everything here does nothing."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, distributed


def world() -> int:
    """Number of ranks."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """This process's rank, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def is_first() -> bool:
    """Whether this is the rank that writes files and prints."""
    return (rank() if distributed.is_initialized() else int(os.environ.get("RANK", "0"))) == 0


def total(values: Tensor) -> Tensor:
    """Sum over the ranks; gradients are summed over the ranks as well, since every loss depends on every value."""
    return _Total.apply(values) if world() > 1 else values


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _reduced(values.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _reduced(grad.clone())


def _reduced(values: Tensor) -> Tensor:
    distributed.all_reduce(values)
    return values


def total_numbers(*values: float) -> list[float]:
    """Sums over the ranks, in float64."""
    if world() == 1:
        return list(values)
    return _reduced(torch.tensor(values, dtype=torch.float64, device=_device())).tolist()


def gathered(values: Tensor) -> Tensor:
    """(…) of each rank -> (ranks, …)."""
    if world() == 1:
        return values[None]
    parts = [torch.empty_like(values, device=_device()) for _ in range(world())]
    distributed.all_gather(parts, values.to(_device()))
    return torch.stack(parts).to(values.device)


def _device() -> str:
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"


def wait() -> None:
    """Block until every rank has called this."""
    if world() > 1:
        distributed.barrier()


def agreed(yes: bool) -> bool:
    """The first rank's value on every rank: clocks differ, and all must save at the same step."""
    if world() == 1:
        return yes
    return total_numbers(float(yes and rank() == 0))[0] > 0
