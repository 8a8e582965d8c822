"""Attention under FSDP2, in one process and in two: sharded parameters, mixed precision, a loss on the heads."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from headdiv.core.distributed import whole
from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.records import record_heads

D = 16


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


class Layers(nn.Module):
    def __init__(self, method):
        super().__init__()
        self.layers = nn.ModuleList(MultiheadAttention(D, 4, method, batch_first=True) for _ in range(2))

    def forward(self, x, padding):
        for layer in self.layers:
            x = x + layer(x, x, x, padding)[0]
        return x


OPTIONS = [
    {"name": "gated"},
    {"name": "dpp", "term": "output"},
    {"name": "mixing"},
    {"name": "deacon", "m": 3},
    {"name": "deacon", "m": 3, "architecture": "nonlinear"},
]


def sharded_copy(whole, mesh, policy=None):
    options = {"mesh": mesh, "mp_policy": policy or MixedPrecisionPolicy()}
    sharded = copy.deepcopy(whole)
    for layer in sharded.layers:
        fully_shard(layer, **options)
    return fully_shard(sharded, **options)


def trained(model, wrapped, method, x, padding):
    """The last loss, and parameters after three steps, all of each."""
    own = {id(p) for p in method.own_parameters(model)}
    optimiser = torch.optim.SGD([p for p in model.parameters() if id(p) not in own], lr=0.1)
    for step in range(3):
        with record_heads(model) as records:
            output = wrapped(x, padding)
        added = method.aux_loss(model, records, 0.5, 10)
        loss = output.float().square().mean() + (0 if added is None else added)
        loss.backward()
        method.before_optimizer_step(model, step / 3)
        optimiser.step()
        optimiser.zero_grad()
    return loss.detach(), {name: whole(p).detach() for name, p in model.named_parameters()}


PADDING = torch.arange(5) >= torch.tensor([5, 4, 2])[:, None]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("policy", [MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16)], ids=str)
def test_a_sharded_attention_learns_what_the_whole_one_does(mesh, options, policy):
    torch.manual_seed(0)
    method = make_method(options)
    model = Layers(method)
    x = torch.randn(3, 5, D)
    results = [trained(each, each, method, x, PADDING) for each in (model, sharded_copy(model, mesh, policy))]
    exact = policy.param_dtype is None
    # DEACON's steps have one length, however small a gradient is.
    loose = {"rtol": 0.05, "atol": 0.2 if options["name"] == "deacon" else 0.02}
    torch.testing.assert_close(*results, **({} if exact else loose))


@pytest.mark.usefixtures("mesh")
def test_distributed_training_goes_on_after_a_batch_of_padding_alone():
    wrapped = nn.parallel.DistributedDataParallel(Layers(make_method("baseline")))
    for padding in (PADDING, torch.ones_like(PADDING), PADDING):
        wrapped.zero_grad()
        wrapped(torch.randn(3, 5, D), padding).sum().backward()
    assert all(p.grad.any() for p in wrapped.parameters() if p.dim() > 1)


def as_rank_of_two(rank, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for options in OPTIONS:
        torch.manual_seed(0)
        method = make_method(options)
        model = Layers(method)
        sharded = sharded_copy(model, mesh)
        x = torch.randn(3, 5, D, generator=torch.Generator().manual_seed(rank))
        _, expected = trained(model, nn.parallel.DistributedDataParallel(model), method, x, PADDING)
        torch.testing.assert_close(trained(sharded, sharded, method, x, PADDING)[1], expected)
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_on_two_ranks_shards_learn_what_whole_copies_do(tmp_path):
    torch.multiprocessing.start_processes(as_rank_of_two, (tmp_path / "store",), nprocs=2, start_method="spawn")
