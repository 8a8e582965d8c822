"""Training in several processes (ranks) started by `torchrun`; with one process everything here does nothing."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from headdiv.core.errors import ConfigError


@contextlib.contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the other ranks that `torchrun` started, if it did; on the CPU by gloo, on GPUs by NCCL.

    Raises:
        ConfigError: more ranks than GPUs, or variables of `torchrun` without the others.
    """
    if distributed.is_initialized() or _started_ranks() == 1:
        yield
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise ConfigError(f"rank {local} has no GPU of its own: this machine has {torch.cuda.device_count()}")
        torch.cuda.set_device(local)
    # Ranks wait for the first while it prepares a corpus, or while another job trains the same run.
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=7))
    try:
        yield
    finally:
        gc.collect()  # a DistributedDataParallel that outlives its group aborts the process at its end
        distributed.destroy_process_group()


def _started_ranks() -> int:
    """How many processes `torchrun` has started, from its environment variables."""
    needed = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    found = {name: os.environ[name] for name in needed if os.environ.get(name)}
    for name in found.keys() - {"MASTER_ADDR"}:
        if not found[name].isdecimal():
            raise ConfigError(f"{name}: expected a whole number, found {found[name]!r} in the environment")
    ranks = int(found.get("WORLD_SIZE", "1"))
    if ranks > 1 and (missing := [name for name in needed if name not in found]):
        raise ConfigError(
            f"WORLD_SIZE is {ranks} in the environment, and {', '.join(missing)} not set; expected all of them, as "
            "torchrun sets them, or none"
        )
    return ranks


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
