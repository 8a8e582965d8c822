"""Runs of language models from beginning to end: they learn, and an interruption changes nothing, to the last bit."""

import json
import math
import shutil

import pytest
from small_runs import interrupt, result, small_config

from headdiv.core.files import read_json
from headdiv.experiments.evaluation import evaluate
from headdiv.experiments.running import run_folder, train

LONGER = {"train": {"epochs": 4, "learning_rate": 0.03}, "data": {"epoch_tokens": 6400}}


@pytest.mark.parametrize("variant", ["baseline", "nonlinear-3"])
def test_a_text_is_learnt(home, variant):
    config = small_config("lm", variant, **LONGER)
    run = train(config)
    metrics = evaluate(run)
    scores, curve = metrics["scores"], metrics["curve"]
    assert curve[-1]["training_loss"] < 0.9 * curve[0]["training_loss"]
    assert scores["validation_nll"]["value"] < scores["unigram_nll"]["value"] - 0.1
    assert scores["perplexity"]["value"] == pytest.approx(math.exp(scores["validation_nll"]["value"]))
    assert scores["validation_nll"]["unit"] == "nats/token"
    assert all(told["signature"] for told in scores.values())
    assert json.loads(json.dumps(metrics)) == metrics
    assert metrics["data"]["stream"]["passes"]["all"] >= 1

    expected = result(run.folder)
    shutil.rmtree(run.folder)
    assert result(train(config).folder) == expected


@pytest.mark.parametrize("variant", ["baseline", "direct-2"])
@pytest.mark.parametrize("mixture", [None, {"C4": 3.0, "GitHub": 1.0}], ids=["one_stream", "mixed"])
def test_an_interruption_in_the_middle_of_an_epoch_changes_nothing(home, variant, mixture):
    """An epoch has 12 steps; blocks of the stream begin and end elsewhere."""
    sections = {"train": {"epochs": 2, "checkpoint_seconds": 1e-9}, "data": {"mixture": mixture}}
    config = small_config("lm", variant, **sections)
    whole = train(config)
    expected, data = result(whole.folder), read_json(whole.folder / "training.json")["data"]
    shutil.rmtree(whole.folder)
    interrupt(config, 5, 9, 3)  # at steps 5, 14 and 17 of 24
    (checkpoint,) = (run_folder(config) / "checkpoints").iterdir()
    assert checkpoint.name == "step17"
    feed = read_json(checkpoint / "state.json")["feed"]
    assert feed["done"] == 5
    assert feed["stream"]["taken"] > 0
    again = train(config)
    assert result(again.folder) == expected
    assert read_json(again.folder / "training.json")["data"] == data
