"""Half precision is widened, nothing else is touched."""

import pytest
import torch

from headdiv.core.precision import at_least_float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_half_precision_becomes_float32_and_all_else_is_the_same_tensor(dtype):
    x = torch.tensor([1, -3, 60000]).to(dtype)
    wide = at_least_float32(x)
    assert torch.equal(wide.to(dtype), x)  # every number of half precision is one of float32
    assert wide.dtype == torch.float32 if dtype.itemsize == 2 else wide is x
