"""Runs of every task from beginning to end: they learn, and an interruption changes nothing, to the last bit."""

import json
import shutil

import pytest
from small_runs import interrupt, result, small_config

from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.running import run_folder, train
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import held_out_loss
from headdiv.core.files import read_json

LONGER = {"train": {"epochs": 4, "learning_rate": 0.03}, "data": {"epoch_tokens": 6400}}
MASKED = LONGER | {"train": {"epochs": 8, "learning_rate": 0.03}, "model": {"d_model": 32}}


@pytest.mark.parametrize(
    ("task", "variant", "sections"),
    [
        ("summarisation", "direct-2", {}),
        ("qa", "baseline", {}),
        pytest.param("lm", "direct-2", LONGER, marks=pytest.mark.slow),
        pytest.param("mlm", "direct-2", MASKED, marks=pytest.mark.slow),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_task_is_learnt_and_evaluated_and_an_interruption_changes_nothing(home, task, variant, sections):
    config = small_config(task, variant, **sections)
    run = train(config)
    metrics = evaluate(run)
    scores, curve = metrics["scores"], metrics["curve"]
    assert curve[-1]["training_loss"] < 0.93 * curve[0]["training_loss"]
    assert scores["validation_nll"]["value"] < scores["unigram_nll"]["value"] - 0.1
    assert scores["validation_nll"]["unit"] == TASKS[task].unit
    compared = (TASKS[task].test_score_name, *TASKS[task].also_compared)
    assert scores.keys() >= {TASKS[task].main_score.name, *(f"{name}_best" for name in (*compared, "validation_nll"))}
    assert all(score["signature"] for score in scores.values())
    assert json.loads(json.dumps(metrics)) == metrics
    nll = held_out_loss(run, "valid")["nll"]
    assert nll == pytest.approx(scores["validation_nll"]["value"], rel=1e-6)

    expected = result(run.folder)
    shutil.rmtree(run.folder)
    saving = sections.get("train", {}) | {"checkpoint_seconds": 1e-9}
    again = small_config(task, variant, **sections | {"train": saving})
    assert run_folder(again) == run.folder
    interrupt(again, 3, 9)
    assert result(train(again).folder) == expected


def test_blocks_of_a_mixed_stream_begin_and_end_elsewhere_after_an_interruption(home):
    """An epoch has 12 steps."""
    data = {"mixture": {"C4": 3.0, "GitHub": 1.0}}
    config = small_config("lm", "direct-2", train={"epochs": 2, "checkpoint_seconds": 1e-9}, data=data)
    whole = train(config)
    expected, data = result(whole.folder), read_json(whole.folder / "training.json")["data"]
    shutil.rmtree(whole.folder)
    interrupt(config, 5, 9, 3)  # at steps 5, 14 and 17 of 24
    assert read_json(run_folder(config) / "checkpoints" / "step17" / "state.json")["stream"]["done"] == 5
    again = train(config)
    assert result(again.folder) == expected
    assert read_json(again.folder / "training.json")["data"] == data
