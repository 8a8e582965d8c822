"""Attention under FSDP2, in one process: sharded parameters, mixed precision, a loss on the heads."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from headdiv.methods import make_method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.nn.attention import record_heads

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


@pytest.mark.parametrize("options", [{"name": "gated"}, {"name": "dpp", "term": "output"}], ids=lambda o: o["name"])
@pytest.mark.parametrize("policy", [MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16)], ids=str)
def test_a_sharded_attention_learns_what_the_whole_one_does(mesh, options, policy):
    torch.manual_seed(0)
    method = make_method(options)
    whole = Layers(method)
    sharded = copy.deepcopy(whole)
    for layer in sharded.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(sharded, mesh=mesh, mp_policy=policy)
    x, padding = torch.randn(3, 5, D), torch.arange(5) >= torch.tensor([5, 4, 2])[:, None]
    results = []
    for model in (whole, sharded):
        own = {id(p) for p in method.own_parameters(model)}
        optimiser = torch.optim.SGD([p for p in model.parameters() if id(p) not in own], lr=0.1)
        for step in range(2):
            with record_heads(model) as records:
                output = model(x, padding)
            added = method.aux_loss(model, records, 0.5, 10)
            loss = output.float().square().mean() + (0 if added is None else added)
            loss.backward()
            method.before_optimizer_step(model, step / 2)
            optimiser.step()
            optimiser.zero_grad()
        full = {name: getattr(p, "full_tensor", lambda p=p: p)().detach() for name, p in model.named_parameters()}
        results.append((loss.detach(), full))
    exact = policy.param_dtype is None
    torch.testing.assert_close(*results, **({} if exact else {"rtol": 0.05, "atol": 0.02}))
