"""Statistics and losses of two ranks with a part of the rows each are those of one rank with all rows."""

import pytest
import torch
from test_routing import literal_losses
from torch import multiprocessing, nn

from headdiv.core import distributed
from headdiv.gha import covariance, pooled_covariance
from headdiv.methods.routing import RoutedRecord, Router, pooled_losses
from headdiv.nn.batch_norm import BatchNorm
from headdiv.nn.sizes import AttentionSpec


def results_of_a_rank(rank, inputs, folder):
    """What the functions under test return in one of two processes: saved in ``folder``."""
    store = f"file://{folder / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    results, share = {}, slice(rank * 5, (rank + 1) * 5 + rank)  # 5 rows and 6 rows
    for name in ("flat", "deep"):
        x = inputs[name][share].clone().requires_grad_()
        norm = BatchNorm(x.shape[1]).double().train()
        y = norm(x)
        (y * inputs[f"{name}.weight"][share]).sum().backward()
        results[name] = {"y": y.detach(), "grad": x.grad, "mean": norm.running_mean, "var": norm.running_var}
    rows = inputs["flat"][share]
    number = torch.tensor(float(len(rows)), dtype=torch.float64)
    results["C"] = pooled_covariance(number, rows.mean(0), covariance(rows))
    results["gathered"] = distributed.gathered(torch.tensor([rank, 7])).tolist()
    results["numbers"] = distributed.total_numbers(rank + 1.0, 2.0)
    results["agreed"] = [distributed.agreed(rank == 0), distributed.agreed(rank == 1)]
    for rows in (2, 7):
        router = Router(4, 5, 3).double()
        router.load_state_dict({"weight": inputs["router"]})
        x = inputs["x"].tensor_split([rows])[rank].clone().requires_grad_()
        record = RoutedRecord(AttentionSpec("encoder", 0, 4, 1), None, None, None, None, router(x))
        losses = torch.cat(pooled_losses([record])[0])
        (losses * inputs["factors"]).sum().backward()
        results[rows] = {"losses": losses.detach(), "x": x.grad, "weight": router.weight.grad}
    torch.save(results, folder / str(rank))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What is given to two ranks, and what each of them finds."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.manual_seed(1)
    shapes = {"flat": (11, 3), "deep": (11, 3, 4)}
    inputs = {name: torch.randn(shape, dtype=torch.float64) * 3 + 1 for name, shape in shapes.items()}
    inputs |= {f"{name}.weight": torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    routed = {"x": (7, 4), "router": (5, 4), "factors": (3,)}
    inputs |= {name: torch.randn(shape, dtype=torch.float64) for name, shape in routed.items()}
    multiprocessing.start_processes(results_of_a_rank, (inputs, folder), nprocs=2, start_method="fork")
    return inputs, [torch.load(folder / str(rank), weights_only=True) for rank in range(2)]  # noqa: TID251


def test_statistics_are_those_of_all_rows(ranks):
    inputs, ranks = ranks
    for name in ("flat", "deep"):
        whole = nn.BatchNorm1d(3).double().train()
        x = inputs[name].clone().requires_grad_()
        y = whole(x)
        (y * inputs[f"{name}.weight"]).sum().backward()
        for key, expected in (("y", y), ("grad", x.grad)):
            torch.testing.assert_close(torch.cat([rank[name][key] for rank in ranks]), expected.detach())
        for rank in ranks:
            torch.testing.assert_close(rank[name]["mean"], whole.running_mean)
            torch.testing.assert_close(rank[name]["var"], whole.running_var)
    for rank in ranks:
        torch.testing.assert_close(rank["C"], covariance(inputs["flat"]))
        assert rank["gathered"] == [[0, 7], [1, 7]]
        assert rank["numbers"] == [3.0, 4.0]
        assert rank["agreed"] == [True, False]


@pytest.mark.parametrize("rows", [2, 7])  # of the first rank; the second has the other five, or none
def test_losses_of_a_router_are_those_of_all_rows(ranks, rows):
    inputs, ranks = ranks
    router = Router(4, 5, 3).double()
    router.load_state_dict({"weight": inputs["router"]})
    x = inputs["x"].clone().requires_grad_()
    expected = torch.stack(literal_losses(router(x)))
    (expected * inputs["factors"]).sum().backward()
    for rank in ranks:
        torch.testing.assert_close(rank[rows]["losses"], expected.detach())
    # What DistributedDataParallel makes of the parameters' gradients: their mean over the ranks.
    torch.testing.assert_close(sum(rank[rows]["weight"] for rank in ranks) / 2, router.weight.grad)
    torch.testing.assert_close(torch.cat([rank[rows]["x"] for rank in ranks]) / 2, x.grad)


def test_one_rank_keeps_its_values_and_their_gradient():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    assert distributed.total(values) is values
