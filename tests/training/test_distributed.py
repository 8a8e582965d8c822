"""Two ranks with half a batch each give what one rank with the whole batch gives."""

import os
import socket
import subprocess
import sys

import pytest
import torch
from conftest import Project, enter
from safetensors.torch import load_file, save_file
from test_routing import literal_losses
from torch import nn

from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.running import run_folder, train
from headdiv.core import distributed
from headdiv.core.files import read_json
from headdiv.gha import covariance
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.routing import Router
from headdiv.nn.batch_norm import BatchNorm

PROFILE = """
title: ranks
seeds: [1]
experiments:
  deacon/translation:
    data: {name: toy, examples: 60, held_out: 8, min_frequency: 1}
    model: {d_model: 16, heads: 4, encoder_layers: 1, decoder_layers: 1, d_ff: 16, dropout: 0.0}
    # A large ε keeps Adam from turning the noise of gradients that are zero into whole steps.
    train: {epochs: 2, tokens_per_batch: 150, learning_rate: 0.001, warmup_steps: 5, epsilon: 1.0e-3}
    variants: [baseline, d3, n3, dpp, hsic, moh, rfb, mixing, rotation]
    define:
      d3: {name: deacon, architecture: direct, m: 3}
      n3: {name: deacon, architecture: nonlinear, m: 3}
      dpp: {name: dpp, term: output}
      hsic: {name: hsic, term: output}
      moh: {name: moh, shared: 1, k: 2}
      rfb: {name: homeostasis, attention: rfb-kwta, s_att: 0.5, q_att: 4}
      mixing: {name: mixing, start: 0.4}
      rotation: {name: dynamic-rotation, choice: hard, swaps: 1}  # the second rank has no batch to look at
  deacon/lm:
    data: {name: toy, examples: 200, vocabulary_size: 300, context: 16, epoch_tokens: 1152, block: 8}
    model: {d_model: 16, heads: 4, d_ff: 16, layers: 1, dropout: 0.0}
    # Nine batches, five steps an epoch: the last is of one batch.
    train: {epochs: 2, tokens_per_batch: 128, accumulate: 2, learning_rate: 0.001, warmup_steps: 5, epsilon: 1.0e-3}
    decode: {prompt_tokens: 4, new_tokens: 4}
    variants: [baseline, a2, d2]
    define:
      a2: {name: deacon, architecture: average, m: 2}
      d2: {name: deacon, architecture: direct, m: 2}
"""


def launch(ranks, *arguments, home):
    """Run Python with these arguments in so many ranks at once; the outputs, after all ended well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu"}
    started = []
    for rank in range(ranks):
        environment = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=environment, text=True, **pipes))
    outputs = [process.communicate(timeout=200)[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks, "\n".join(outputs)
    return outputs


RANK_SCRIPT = """
import sys, torch
from safetensors.torch import load_file, save_file
from headdiv.companion import runtime
from headdiv.core import distributed
from headdiv.nn.batch_norm import BatchNorm
from headdiv.gha import covariance, pooled_covariance
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.routing import RoutedRecord, Router, pooled_losses
from headdiv.nn.sizes import AttentionSpec
given = load_file(sys.argv[1])
with runtime.process_group(torch.device("cpu")):
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


def project_in(folder, text=PROFILE):
    Project(folder).write_config("ranks", text)
    (folder / "Snakefile").touch()
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A project with the profile above, where one rank trains."""
    with pytest.MonkeyPatch.context() as patch:
        yield enter(patch, project_in(tmp_path_factory.mktemp("one")))


EVERY_RUN = """
import sys, torch
from headdiv.companion import runtime
from headdiv.companion.command_line import cli
with runtime.process_group(torch.device("cpu")):
    for run in sys.argv[1:]:
        cli(["train", *run.split(), "--profile", "ranks", "--no-scores"], standalone_mode=False)
"""
RUNS = [f"deacon/translation {name}" for name in ("baseline", "d3", "n3", "dpp", "hsic", "moh", "rfb")]
RUNS += [f"deacon/translation {name}" for name in ("mixing", "rotation")]
RUNS += [f"deacon/lm {name}" for name in ("baseline", "a2", "d2")]  # gradients of two batches are added up


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Another project, where two ranks have trained all runs one after the other."""
    home = project_in(tmp_path_factory.mktemp("many"))
    launch(2, "-c", EVERY_RUN, *RUNS, home=home)
    return home


def largest_differences(one, other):
    """Of DEACON's w, and of all other parameters."""
    one, other = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert one.keys() == other.keys()
    found = {True: 0.0, False: 0.0}
    for key, value in one.items():
        is_w = key.endswith(".output.w")
        found[is_w] = max(found[is_w], (value.double() - other[key].double()).abs().max().item())
    return found[True], found[False]


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_two_ranks_train_what_one_trains(home, many, run):
    experiment, variant = run.split()
    alone = train(run_config("ranks", experiment, variant, 1))
    folder = many / "work" / alone.folder.name
    of_w, of_others = largest_differences(alone.folder, folder)
    assert of_w < 2e-3  # a step is 0.2 long, and 500 iterations of the Hebbian rule amplify rounding
    assert of_others < (5e-5 if of_w else 1e-5)
    record = read_json(folder / "training.json")
    assert record["provenance"]["ranks"] == 2
    for mine, theirs in zip(alone.record["curve"], record["curve"], strict=True):
        assert mine.pop("method", None) == theirs.pop("method", None)  # swaps, which are nested
        assert mine == pytest.approx(theirs, rel=1e-4, abs=2e-6)  # a norm of about 8, in float32, less its start


KILL = """
import os, signal, sys
from headdiv.core import distributed
from headdiv.training import checkpoints
from headdiv.companion.command_line import main
save = checkpoints.save
def save_and_die(folder, step, *rest):
    save(folder, step, *rest)
    distributed.wait()
    if step >= 7:  # in the middle of the second epoch
        os._exit(0)
checkpoints.save = save_and_die
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "score", "ranks", "later"),
    [("deacon/translation d3", "bleu", 1, 3), ("deacon/lm a2", "perplexity", 2, 1)],
)
def test_any_number_of_ranks_goes_on_from_a_checkpoint(home, tmp_path, run, score, ranks, later):
    project_in(tmp_path, PROFILE.replace("epsilon: 1.0e-3", "epsilon: 1.0e-3, checkpoint_seconds: 1.0e-6"))
    arguments = ("train", *run.split(), "--profile", "ranks")
    config = run_config("ranks", *run.split(), 1)
    launch(ranks, "-c", KILL, *arguments, home=tmp_path)
    folder = tmp_path / "work" / run_folder(config).name
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step6", "step7"]
    first, *others = launch(later, "-m", "headdiv", *arguments, home=tmp_path)
    assert "going on from step 7" in first
    assert score in first.lower()
    assert not any(others)  # one of them speaks
    metrics = tmp_path / "results" / "ranks" / run.replace(" ", "/") / "seed1" / "metrics.json"
    assert read_json(metrics)["hash"] == folder.name
    assert read_json(folder / "training.json")["provenance"]["ranks"] == [[0, ranks], [7, later]]
    assert max(largest_differences(train(config).folder, folder)) < 1e-5
