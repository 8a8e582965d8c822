"""Memory that is freed stays with the process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from headdiv.companion.runtime import keep_freed_memory

def faults_of_a_block(mebibytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(mebibytes << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(keep_freed_memory(), faults_of_a_block(64), faults_of_a_block(60))
"""


def test_a_block_that_was_freed_is_used_again_without_page_faults():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    kept, first, second = done.stdout.split()
    assert (kept == "True") == (platform.libc_ver()[0] == "glibc")
    assert kept == "False" or 10 * int(second) < int(first), done.stdout


KERNELS = """
import resource, torch
from headdiv.companion.runtime import configure

configure(1)
weight, bias = torch.ones(512, 129, dtype=torch.bfloat16, requires_grad=True).split([128, 1], dim=1)

def peak_after(rows):
    for count in rows:
        x = torch.ones(count, 128, dtype=torch.bfloat16, requires_grad=True)
        torch.nn.functional.linear(x, weight, bias[:, 0]).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

print(peak_after(range(200, 300)), peak_after(range(300, 600)))
"""


@pytest.mark.slow  # a kernel is compiled for each size
def test_batches_of_ever_new_sizes_do_not_fill_the_memory_with_kernels():
    done = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())  # MiB
    assert after - before < 150
