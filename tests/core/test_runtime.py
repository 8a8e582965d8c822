"""Memory that is freed stays with the process."""

import platform
import subprocess
import sys

FAULTS = """
import resource, torch
from headdiv.core.runtime import keep_freed_memory

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
