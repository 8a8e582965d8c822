"""Settings of a process that trains or decodes: its number of threads, and what happens to freed memory."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

import torch

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
    keep_freed_memory()


@functools.cache
def keep_freed_memory() -> bool:
    """The part of `configure` about memory; returns whether the C library accepted it, which only glibc does."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, value) for option, value in OPTIONS.values())
