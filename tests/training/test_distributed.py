"""Statistics and losses of two ranks with half of the rows each are those of one rank with all rows."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from surroundings import launch
from test_routing import literal_losses
from torch import nn

from headdiv.core import distributed
from headdiv.gha import covariance
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.routing import Router
from headdiv.nn.batch_norm import BatchNorm

RANK_SCRIPT = """
import sys, torch
from safetensors.torch import load_file, save_file
from headdiv.core import distributed
from headdiv.nn.batch_norm import BatchNorm
from headdiv.gha import covariance, pooled_covariance
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.routing import RoutedRecord, Router, pooled_losses
from headdiv.nn.sizes import AttentionSpec
given = load_file(sys.argv[1])
torch.distributed.init_process_group("gloo")
rank = distributed.rank()
found = {}
for name in ("flat", "deep"):
    x = given[name][rank * 5 : (rank + 1) * 5 + rank].clone().requires_grad_()  # 5 rows and 6 rows
    norm = BatchNorm(x.shape[1]).double().train()
    y = norm(x)
    (y * given[name + ".weight"][rank * 5 : (rank + 1) * 5 + rank]).sum().backward()
    found |= {name + ".y": y, name + ".grad": x.grad}
    found |= {name + ".mean": norm.running_mean, name + ".var": norm.running_var}
rows = given["flat"][rank * 5 : (rank + 1) * 5 + rank]
found["C"] = pooled_covariance(torch.tensor(float(len(rows)), dtype=torch.float64), rows.mean(0), covariance(rows))
found["gathered"] = distributed.gathered(torch.tensor([rank, 7]))
found["numbers"] = torch.tensor([*distributed.total_numbers(rank + 1.0, 2.0), float(distributed.agreed(rank == 0)),
                                float(distributed.agreed(rank == 1))], dtype=torch.float64)
for rows in (2, 7):
    router = Router(4, 5, 3).double()
    router.load_state_dict({"weight": given["router"]})
    x = given["x"].tensor_split([rows])[rank].clone().requires_grad_()
    record = RoutedRecord(AttentionSpec("encoder", 0, 4, 1), None, None, None, None, router(x))
    losses = torch.cat(pooled_losses([record])[0][1])
    (losses * given["factors"]).sum().backward()
    found |= {f"losses{rows}": losses, f"x{rows}": x.grad, f"weight{rows}": router.weight.grad}
save_file({key: value.detach().contiguous() for key, value in found.items()}, f"{sys.argv[2]}/{rank}.safetensors")
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What is given to two ranks, and what each of them finds."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.manual_seed(1)
    shapes = {"flat": (11, 3), "deep": (11, 3, 4)}
    given = {name: torch.randn(shape, dtype=torch.float64) * 3 + 1 for name, shape in shapes.items()}
    given |= {f"{name}.weight": torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    routed = {"x": (7, 4), "router": (5, 4), "factors": (3,)}
    given |= {name: torch.randn(shape, dtype=torch.float64) for name, shape in routed.items()}
    save_file(given, folder / "given")
    launch(2, "-c", RANK_SCRIPT, str(folder / "given"), str(folder), home=folder)
    return given, [load_file(folder / f"{rank}.safetensors") for rank in range(2)]


def test_statistics_are_those_of_all_rows(ranks):
    given, ranks = ranks
    for name in ("flat", "deep"):
        whole = nn.BatchNorm1d(3).double().train()
        x = given[name].clone().requires_grad_()
        y = whole(x)
        (y * given[f"{name}.weight"]).sum().backward()
        for key, expected in (("y", y), ("grad", x.grad)):
            torch.testing.assert_close(torch.cat([rank[f"{name}.{key}"] for rank in ranks]), expected.detach())
        for rank in ranks:
            torch.testing.assert_close(rank[f"{name}.mean"], whole.running_mean)
            torch.testing.assert_close(rank[f"{name}.var"], whole.running_var)
    for rank in ranks:
        torch.testing.assert_close(rank["C"], covariance(given["flat"]))
        assert rank["gathered"].tolist() == [[0, 7], [1, 7]]
        assert rank["numbers"].tolist() == [3.0, 4.0, 1.0, 0.0]


@pytest.mark.parametrize("rows", [2, 7])  # of the first rank; the second has the other five, or none
def test_losses_of_a_router_are_those_of_all_rows(ranks, rows):
    given, ranks = ranks
    router = Router(4, 5, 3).double()
    router.load_state_dict({"weight": given["router"]})
    x = given["x"].clone().requires_grad_()
    expected = torch.stack(literal_losses(router(x)))
    (expected * given["factors"]).sum().backward()
    for rank in ranks:
        torch.testing.assert_close(rank[f"losses{rows}"], expected.detach())
    # What DistributedDataParallel makes of the parameters' gradients: their mean over the ranks.
    torch.testing.assert_close(sum(rank[f"weight{rows}"] for rank in ranks) / 2, router.weight.grad)
    torch.testing.assert_close(torch.cat([rank[f"x{rows}"] for rank in ranks]) / 2, x.grad)


def test_training_goes_on_after_a_batch_of_padding_alone(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    padding = torch.arange(5) >= torch.tensor([5, 4, 2])[:, None]
    wrapped = nn.parallel.DistributedDataParallel(MultiheadAttention(16, 4, batch_first=True))
    for each in (padding, torch.ones_like(padding), padding):
        wrapped.zero_grad()
        x = torch.randn(3, 5, 16)
        wrapped(x, x, x, each)[0].sum().backward()
    assert all(p.grad.any() for p in wrapped.parameters() if p.dim() > 1)
    del wrapped
    torch.distributed.destroy_process_group()


def test_one_rank_is_alone():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    assert distributed.total(values) is values
    assert distributed.total_numbers(1, 2.5) == [1, 2.5]
    assert distributed.gathered(torch.tensor([3])).tolist() == [[3]]
    assert (distributed.world(), distributed.rank(), distributed.is_first()) == (1, 0, True)
    assert distributed.agreed(True)
    assert not distributed.agreed(False)
    x = torch.randn(7, 3)
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
