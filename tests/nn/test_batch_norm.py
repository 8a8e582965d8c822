"""Scale and shift against torch's own layer; many ranks are in test_distributed.py."""

import pytest
import torch
from examples import ARCHITECTURES, deacon
from torch import nn
from torch.utils.checkpoint import checkpoint

import headdiv
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.batch_norm import BatchNorm, scale_and_shift


class OfOne(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def pair(channels, momentum):
    """torch's layer and ours, with equal weights that are not 1 and 0."""
    theirs, ours = (kind(channels, momentum=momentum).double() for kind in (nn.BatchNorm1d, BatchNorm))
    with torch.no_grad():
        theirs.weight.uniform_(0.5, 2)
        theirs.bias.normal_()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_one_row_has_no_variance():
    with pytest.raises(ValueError, match="needs more than 1 value of each channel in training, found 1"):
        scale_and_shift(BatchNorm(3), torch.zeros(3, 1))


def test_without_a_row_statistics_stay_and_gradients_are_0():
    norm, x = BatchNorm(3), torch.zeros(3, 0, requires_grad=True)
    scale, shift = scale_and_shift(norm, x)
    (x * scale[:, None] + shift[:, None]).sum().backward()
    assert not norm.weight.grad.any()
    assert torch.equal(norm.running_mean, torch.zeros(3))
    assert torch.equal(norm.running_var, torch.ones(3))


@pytest.mark.parametrize(("training", "momentum"), [(True, 0.1), (True, None), (False, 0.1)])
@pytest.mark.parametrize("shape", [(7, 3), (5, 3, 4)])
def test_scale_and_shift_do_what_the_layer_does(shape, training, momentum):
    torch.manual_seed(0)
    theirs, ours = (norm.train(training) for norm in pair(3, momentum))
    upstream = torch.randn(shape, dtype=torch.float64)
    for _ in range(3):  # running statistics take part too
        x = (3 + 2 * torch.randn(shape, dtype=torch.float64)).requires_grad_()
        other = x.detach().clone().requires_grad_()
        expected = theirs(x)
        scale, shift = scale_and_shift(ours, other.transpose(0, 1))
        y = (other.transpose(1, -1) * scale + shift).transpose(1, -1)
        torch.testing.assert_close(y, expected)
        (expected * upstream).sum().backward()
        (y * upstream).sum().backward()
        torch.testing.assert_close(other.grad, x.grad)
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
        torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_pass_that_is_repeated_counts_once(momentum):
    x, (theirs, ours) = torch.randn(5, 3, 4).double(), pair(3, momentum)
    checkpoint(ours, x.requires_grad_(), use_reentrant=False).sum().backward()
    theirs(x)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_module_whose_normalisation_torch_has_converted_is_as_before(architecture):
    """Lightning's sync_batchnorm does it for several GPUs; torch's has no training on the CPU."""
    torch.manual_seed(0)
    module, x = OfOne(MultiheadAttention(12, 3, deacon(architecture), batch_first=True)), torch.randn(4, 5, 12)
    module(x)
    expected = module.eval()(x)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    assert type(converted.attention.attention.output.norm) is nn.SyncBatchNorm
    torch.testing.assert_close(converted(x), expected)
    torch.testing.assert_close(headdiv.fold(converted)(x), expected)
