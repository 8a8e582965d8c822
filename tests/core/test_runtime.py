"""Memory that is freed stays with the process."""

import resource

import pytest
import torch

from headdiv.core.runtime import keep_freed_memory


def faults_of_a_block(mebibytes=64):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(mebibytes << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_a_block_that_was_freed_is_used_again_without_page_faults():
    if not keep_freed_memory():
        pytest.skip("another C library than glibc")
    faults_of_a_block()
    assert faults_of_a_block() < 100  # of 16,384 pages
