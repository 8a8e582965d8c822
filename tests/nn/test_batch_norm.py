"""Scale and shift against torch's own layer; many ranks are in test_distributed.py."""

import pytest
import torch
from torch import nn

from headdiv.nn.batch_norm import BatchNorm


def pair(channels):
    """torch's layer and ours, with equal weights that are not 1 and 0."""
    theirs, ours = nn.BatchNorm1d(channels).double(), BatchNorm(channels).double()
    with torch.no_grad():
        theirs.weight.uniform_(0.5, 2)
        theirs.bias.normal_()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_one_row_has_no_variance():
    with pytest.raises(ValueError, match="needs more than 1 value of each channel in training, found 1"):
        BatchNorm(3).scale_and_shift(torch.zeros(3, 1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(7, 3), (5, 3, 4)])
def test_scale_and_shift_do_what_the_layer_does(shape, training):
    torch.manual_seed(0)
    theirs, ours = (norm.train(training) for norm in pair(3))
    wanted = torch.randn(shape, dtype=torch.float64)
    for _ in range(3):  # running statistics take part too
        x = (3 + 2 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
        other = x.detach().clone().requires_grad_()
        expected = theirs(x)
        scale, shift = ours.scale_and_shift(other.transpose(0, 1))
        found = other * scale.view(1, 3, *[1] * (len(shape) - 2)) + shift.view(1, 3, *[1] * (len(shape) - 2))
        torch.testing.assert_close(found, expected)
        (expected * wanted).sum().backward()
        (found * wanted).sum().backward()
        torch.testing.assert_close(other.grad, x.grad)
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
        torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
