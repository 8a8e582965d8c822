"""Runs that two ranks train with half a batch each are those that one rank trains with the whole batch."""

import pytest
from conftest import Project
from safetensors.torch import load_file
from surroundings import enter, launch

from headdiv.companion.experiments.profiles import run_config
from headdiv.companion.experiments.running import run_folder, train
from headdiv.core.files import read_json

PROFILE = """
title: ranks
seeds: [1]
experiments:
  deacon/translation:
    data: {name: toy, examples: 60, held_out: 8, min_frequency: 1}
    model: {d_model: 16, heads: 4, encoder_layers: 1, decoder_layers: 1, d_ff: 16, dropout: 0.0}
    # A large ε keeps Adam from turning the noise of gradients that are zero into whole steps.
    train: {epochs: 2, tokens_per_batch: 150, learning_rate: 0.001, warmup_steps: 5, epsilon: 1.0e-3}
    variants: [baseline, d3, n3, dpp, hsic, moa, rfb, mixing, rotation]
    define:
      d3: {name: deacon, architecture: direct, m: 3}
      n3: {name: deacon, architecture: nonlinear, m: 3}
      dpp: {name: dpp, term: output}
      hsic: {name: hsic, term: output}
      moa: {name: moa, experts: 4, k: 2}
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
RUNS = [f"deacon/translation {name}" for name in ("baseline", "d3", "n3", "dpp", "hsic", "moa", "rfb")]
RUNS += [f"deacon/translation {name}" for name in ("mixing", "rotation")]
RUNS += [f"deacon/lm {name}" for name in ("baseline", "a2", "d2")]  # gradients of two batches are added up


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Another project, where two ranks have trained all runs one after the other."""
    home = project_in(tmp_path_factory.mktemp("many"))
    launch(2, "-c", EVERY_RUN, *RUNS, home=home)
    return home


def largest_differences(first, second):
    """Of DEACON's w, and of all other parameters."""
    first, second = (load_file(folder / "model.safetensors") for folder in (first, second))
    assert first.keys() == second.keys()
    largest = {True: 0.0, False: 0.0}
    for key, value in first.items():
        is_w = key.endswith(".output.w")
        largest[is_w] = max(largest[is_w], (value.double() - second[key].double()).abs().max().item())
    return largest[True], largest[False]


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
    for point, expected in zip(alone.record["curve"], record["curve"], strict=True):
        assert point.pop("method", None) == expected.pop("method", None)  # swaps, which are nested
        assert point == pytest.approx(expected, rel=1e-4, abs=2e-6)  # a norm of about 8, in float32, less its start


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
@pytest.mark.parametrize(("run", "score"), [("deacon/translation d3", "bleu"), ("deacon/lm a2", "perplexity")])
def test_two_ranks_go_on_from_a_checkpoint(home, many, tmp_path, run, score):
    project_in(tmp_path, PROFILE.replace("epsilon: 1.0e-3", "epsilon: 1.0e-3, checkpoint_seconds: 1.0e-6"))
    arguments = ("train", *run.split(), "--profile", "ranks")
    config = run_config("ranks", *run.split(), 1)
    launch(2, "-c", KILL, *arguments, home=tmp_path)
    folder = tmp_path / "work" / run_folder(config).name
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step6", "step7"]
    first, *others = launch(2, "-m", "headdiv", *arguments, home=tmp_path)
    assert "going on from step 7" in first
    assert score in first.lower()
    assert not any(others)  # one of them speaks
    metrics = tmp_path / "results" / "ranks" / run.replace(" ", "/") / "seed1" / "metrics.json"
    assert read_json(metrics)["hash"] == folder.name
    assert largest_differences(many / "work" / folder.name, folder) == (0, 0)
