"""Memory that is freed stays with the process, and kernels for ever new sizes do not fill it."""

import platform
import subprocess
import sys

import pytest

MEMORY = """
import resource, torch
from headdiv.companion.runtime import configure

def usage():
    return resource.getrusage(resource.RUSAGE_SELF)

def faults_of_a_block(mebibytes):
    before = usage().ru_minflt
    torch.ones(mebibytes << 18)
    return usage().ru_minflt - before

configure(1)
print(faults_of_a_block(64), faults_of_a_block(60))
weight, bias = torch.ones(512, 129, dtype=torch.bfloat16, requires_grad=True).split([128, 1], dim=1)

def peak_after(rows):
    for count in rows:
        x = torch.ones(count, 128, dtype=torch.bfloat16, requires_grad=True)
        torch.nn.functional.linear(x, weight, bias[:, 0]).sum().backward()
    return usage().ru_maxrss // 1024

print(peak_after(range(200, 270)), peak_after(range(270, 400)))
"""


@pytest.mark.slow  # a kernel is compiled for each size
def test_memory_is_used_again_and_not_filled_with_kernels():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    first, second, before, after = done.stdout.split()
    assert platform.libc_ver()[0] != "glibc" or 10 * int(second) < int(first), done.stdout
    assert int(after) - int(before) < 70, done.stdout  # MiB
