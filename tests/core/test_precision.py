"""Half precision is widened, nothing else is touched."""

import pytest
import torch

from headdiv.core.precision import at_least_float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(dtype):
    x = torch.tensor([0.1, -3.0, 60000.0], dtype=dtype)
    wide = at_least_float32(x)
    assert wide.dtype == torch.float32
    assert torch.equal(wide.to(dtype), x)  # every number of half precision is one of float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_all_else_is_the_same_tensor(dtype):
    x = torch.arange(3).to(dtype)
    assert at_least_float32(x) is x
