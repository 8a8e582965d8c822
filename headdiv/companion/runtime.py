"""Settings of a process that trains or decodes: its threads, its freed memory, and the other processes (ranks)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from datetime import timedelta

import torch
from torch import distributed

from headdiv.core.errors import ConfigError

# Of glibc's <malloc.h>: the option's number, and its value.
OPTIONS = {
    "M_ARENA_MAX": (-8, 1),  # one for all threads: the backward pass runs in another than the forward pass
    "M_MMAP_THRESHOLD": (-3, 1 << 30),  # blocks below 1 GiB come from the heap
    "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1),  # which returns nothing below 2 GiB of free memory at its end
    "M_TOP_PAD": (-2, 64 << 20),  # and grows by 64 MiB at a time
}

# oneDNN compiles a kernel for every new shape of a product, 0.6 to 2.5 MB in bfloat16, and keeps 1,024; PyTorch's
# wrapper of it keeps as many more. Batches of whole sentences hardly ever have the same number of rows again; within a
# step the kernels of 64 shapes are used again.
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}


def configure(threads: int) -> None:
    """Set the number of threads, keep few compiled kernels, and with glibc keep freed memory in the process.

    The numbers of kernels are environment variables that are read with the first product; those that the user has set
    stay.

    A training step allocates and frees hundreds of MiB. By default much of it is returned and faulted in again by the
    next step: some 10,000 page faults, 5 % of a step in bfloat16 at the sizes of DEACON's Table 3. The price is that
    the process stays as large as it ever was.
    """
    torch.set_num_threads(threads)
    for name, number in KERNELS.items():
        os.environ.setdefault(name, number)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in OPTIONS.values():
            mallopt(option, value)


@contextlib.contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the other ranks that `torchrun` started, if it did; on the CPU by gloo, on GPUs by NCCL.

    Raises:
        ConfigError: more ranks than GPUs.
    """
    if distributed.is_initialized() or os.environ.get("WORLD_SIZE", "1") == "1":
        yield
        return
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(f"rank {local_rank} has no GPU of its own: this machine has {torch.cuda.device_count()}")
        torch.cuda.set_device(local_rank)
    # Ranks wait for the first while it prepares a corpus, or while another job trains the same run.
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=7))
    try:
        yield
    finally:
        gc.collect()  # a DistributedDataParallel that outlives its group aborts the process at its end
        distributed.destroy_process_group()
