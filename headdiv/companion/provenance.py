"""Provenance of a number: versions, commit, machine, memory."""

from __future__ import annotations

import math
import os
import platform
import resource
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from headdiv.companion import paths

PACKAGES = (
    "headdiv", "torch", "numpy", "sacrebleu", "sacremoses", "spacy", "torchtext", "rouge-score", "nltk", "tokenizers",
)  # fmt: skip


def provenance(threads: int, device: torch.device) -> dict[str, Any]:
    """Versions, git commit, device, processor with its instruction set, and threads, as JSON."""
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: number for name in PACKAGES if (number := _version(name))},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "cpu": processor(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),  # that torch's kernels use: AVX2, AVX512
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit() -> str | None:
    """The checked-out commit, with "+changes" where code or profiles differ from it.

    Outside git that of HEADDIV_COMMIT, as in a container; None where that is not set.
    """
    head, changes = _git("rev-parse", "--short=12", "HEAD"), _git("status", "--porcelain", "--", "headdiv", "config")
    return f"{head}+changes" if head and changes else head or os.environ.get("HEADDIV_COMMIT") or None


def _git(*arguments: str) -> str | None:
    try:
        command = ["git", *arguments]
        result = subprocess.run(command, cwd=paths.home(), capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def cpu_name() -> str:
    """The processor's name."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def processor() -> str:
    """The processor's name and generation: processors of one name may round differently."""
    info = _cpuinfo()
    generation = ", ".join(f"{key.split()[-1]} {info[key]}" for key in ("cpu family", "model") if key in info)
    return f"{cpu_name()} ({generation})" if generation else cpu_name()


def origin(device: torch.device) -> str:
    """The GPU, or the processor with its generation: what the last digits of a result depend on."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


@cache
def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def peak_memory_mib(device: torch.device) -> float:
    """Peak memory in MiB: of the GPU's allocator, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux, bytes on macOS
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def other_load(seconds: float, processors: int) -> float | None:
    """How many processes of others were busy, on average, over about the last seconds (at most 15 minutes): 0 or more.

    ``seconds``: how long this process has worked, on so many ``processors``. None where the system does not say.
    """
    try:
        averages = os.getloadavg()  # over 1, 5 and 15 minutes
    except (AttributeError, OSError):
        return None
    index = (seconds > 180) + (seconds > 600)
    share = 1 - math.exp(-seconds / (60, 300, 900)[index])  # of the average that is of these seconds: averages decay
    return max(0.0, averages[index] - processors * share)


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
