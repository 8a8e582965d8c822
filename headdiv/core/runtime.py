"""What a process that trains or decodes asks of the machine: its threads, and freed memory to use again."""

from __future__ import annotations

import ctypes
import functools
import sys

import torch

# Of glibc's <malloc.h>: the option's number, and its value.
OPTIONS = {
    "M_ARENA_MAX": (-8, 1),  # the backward pass has a thread of its own; it shall find what the main thread freed
    "M_MMAP_THRESHOLD": (-3, 1 << 30),  # blocks below 1 GiB come from the heap
    "M_TRIM_THRESHOLD": (-1, (1 << 31) - 1),  # which gives nothing back below 2 GiB of free memory at its end
    "M_TOP_PAD": (-2, 64 << 20),  # and grows by 64 MiB at a time
}


def configure(threads: int) -> None:
    """Compute with so many threads; with glibc, keep the memory that is freed, where others give it back at once.

    A training step allocates and frees hundreds of MiB. Given back, each page of them is a page fault in the next step:
    some 10,000 faults and 5 % of a step in bfloat16 at DEACON's sizes. The process keeps the most that it ever needed.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()


@functools.cache
def keep_freed_memory() -> bool:
    """The part of `configure` about memory; whether it could be done: with another C library nothing changes."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(option, value) for option, value in OPTIONS.values())
