"""Stored runs that cannot be read, are not the profile's, have learnt nothing, or score otherwise today, are named."""

import json
import math
import shlex

import pytest
from conftest import EXPERIMENT

from headdiv.companion import paths
from headdiv.companion.command_line import cli
from headdiv.companion.experiments.checking import changed_content, failures, rescore
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import record, with_results
from headdiv.companion.experiments.run_result import (
    OUTPUTS,
    RunResult,
    StoredOutputs,
    metrics_path,
    read_outputs,
    write_outputs,
)
from headdiv.companion.experiments.running import train
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import read_json, write_json


@pytest.fixture
def path(finished):
    """The metrics of a run."""
    return metrics_path("tiny", EXPERIMENT, "baseline", 1)


def headdiv(*command, profile="tiny"):
    cli([*command, "--profile", profile], standalone_mode=False)


def refusal(*command, profile="tiny"):
    with pytest.raises(HeaddivError) as error:
        headdiv(*command, profile=profile)
    return str(error.value)


# ---- damage


def test_damaged_outputs_are_named_and_made_anew_in_a_shell_too(path):
    record(read_json(path), "tiny")
    whole = path.with_name(OUTPUTS).read_bytes()
    profile = str((paths.home() / "config").rename(paths.home() / "my config") / "tiny.yaml")
    path.with_name(OUTPUTS).write_bytes(whole[:-8])
    said = refusal("check", profile=profile)
    assert said.startswith(f"{path.with_name(OUTPUTS)}: damaged (")
    assert said.endswith(f"`headdiv train {EXPERIMENT} baseline --seed 1 --profile '{profile}'` makes it anew")
    cli(shlex.split(said.split("`")[-2])[1:], standalone_mode=False)
    assert path.with_name(OUTPUTS).read_bytes() == whole


def test_metrics_that_are_none_are_named_and_no_run_is_lost_in_silence(path):
    metrics = read_json(path)
    metrics["scores"]["bleu"]["value"] = math.nan
    path.write_text(json.dumps(metrics))
    said = "scores.bleu.value: input should be a finite number, found nan"
    for command in (["check"], ["table", EXPERIMENT], ["report"]):
        sentence = refusal(*command)
        assert sentence.startswith(f"{path}: {said}")
        assert sentence.endswith(f"`headdiv train {EXPERIMENT} baseline --seed 1 --profile tiny` makes it anew")


# ---- the profile's settings, data and code


def test_runs_of_an_earlier_profile_are_named_and_not_shown_as_its_own(finished, tmp_path):
    finished.write_profile("tiny", train={"learning_rate": 0.5})
    sentence = r"baseline/seed1/metrics.json: train.learning_rate is \S+, but 0.5 in \S+; `headdiv train \S+ baseline"
    figures = (["figure", name, str(tmp_path / "a.svg")] for name in ("deacon_figure6", "deacon_translation_pruning"))
    for command in (["check"], ["compare"], ["table", EXPERIMENT], ["draw", "deacon"], *figures):
        with pytest.raises(HeaddivError, match=sentence):
            headdiv(*command)


def of_another_run(path, content):
    """The metrics with another hash, and another content of the data."""
    metrics = read_json(path)
    write_json(path, metrics | {"hash": "0" * 16, "data": metrics["data"] | {"content": content}})


def test_runs_whose_data_or_code_has_changed_are_named(finished, path):
    assert changed_content("tiny") == []
    of_another_run(path, "0")
    (found,) = changed_content("tiny")
    assert found.startswith(f"{path}: hash is {'0' * 16}, expected ")
    finished.write_profile(top={"threads": 2})
    assert changed_content("tiny") == [found]
    finished.write_profile(train={"epochs": 3})
    assert changed_content("tiny") == []  # `outdated` says it


# ---- scores of stored outputs


def test_scores_are_made_anew_from_outputs_and_references_alone(path):
    record(read_json(path), "tiny")
    of_another_run(path, read_json(path)["data"]["content"])  # as where its method's code has changed
    whole = path.read_bytes()
    assert not any(rescore("tiny", write=True).values())
    assert path.read_bytes() == whole
    right, stored = path.read_bytes(), read_outputs(path)
    assert stored.tokens
    wrong = read_json(path)
    wrong["scores"]["bleu"] |= {"value": 99.0, "signature": "another measure"}
    del wrong["scores"]["unknown_share"]
    write_json(path, wrong)
    write_outputs(path, stored.model_copy(update={"counts": None}))
    bleu = json.loads(right)["scores"]["bleu"]["value"]
    expected = {f"{EXPERIMENT} baseline seed 1": {"bleu": (99.0, bleu)}, f"{EXPERIMENT} direct-8 seed 1": {}}
    assert rescore("tiny") == expected
    assert read_json(path) == wrong  # nothing is written yet
    assert rescore("tiny", write=True) == expected
    assert json.loads(path.read_bytes()) == json.loads(right)
    assert read_outputs(path) == stored


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.with_name(OUTPUTS).unlink(), "missing.*makes it anew"),
        (
            lambda path: write_outputs(path, StoredOutputs(test=["a"])),
            "seed1/outputs.json.xz: BLEU: found 1 translations and 8 references.*makes it anew",
        ),
    ],
    ids=["no outputs", "another number"],
)
def test_what_cannot_be_scored_is_named(path, spoil, message):
    spoil(path)
    with pytest.raises(DataError, match=message):
        rescore("tiny")


def test_the_command_shows_scores_that_differ_and_keeps_todays_where_asked(path, capsys):
    for variant in ("baseline", "direct-8"):
        change(variant, 3.0, 2.0, 1.0, 4.0)
    right = read_json(path)
    headdiv("check")
    assert capsys.readouterr().out.splitlines()[-1].startswith("Every stored run is the profile's, and each has learnt")
    write_json(path, right | {"scores": right["scores"] | {"bleu": right["scores"]["bleu"] | {"value": 99.0}}})
    headdiv("check", "--no-scores")
    assert "1 scores of stored outputs are others today; --write" in refusal("check")
    assert f"bleu is stored as 99.0000, and {right['scores']['bleu']['value']:.4f} today" in capsys.readouterr().out
    headdiv("check", "--write")
    assert read_json(path) == right


# ---- runs that have learnt nothing


def change(variant, first, last, nll, unigram):
    path = metrics_path("tiny", EXPERIMENT, variant, 1)
    metrics = read_json(path)
    metrics["curve"][0]["training_loss"], metrics["curve"][-1]["training_loss"] = first, last
    metrics["scores"]["validation_nll"]["value"] = nll
    metrics["scores"]["unigram_nll"]["value"] = unigram
    write_json(path, metrics)


def test_each_failure_is_one_sentence(finished):
    change("baseline", 2.0, 2.5, 1.0, 4.0)
    change("direct-8", 3.0, 2.0, 4.25, 4.0)
    fell, beats = failures("tiny")
    assert fell == f"{EXPERIMENT}, baseline, seed 1: the training loss went from 2.0000 to 2.5000"
    assert beats.startswith(f"{EXPERIMENT}, direct-8, seed 1: the validation loss 4.2500 is not below 4.0000")
    assert refusal("check") == f"{fell}\n{beats}"
    finished.write_profile("tiny", unlearned=["direct-8"])
    assert failures("tiny") == [fell]


def test_a_fall_that_is_mostly_lost_again_is_a_failure(path):
    metrics, curve = read_json(path), []
    metrics["scores"]["unigram_nll"]["value"] = 100.0
    lost = ["the training loss went from 6.0000 to 3.0000 and then to 4.6000"]
    for loss, expected in [(6.0, []), (3.0, []), (4.4, []), (4.6, lost)]:
        curve.append(metrics["curve"][0] | {"training_loss": loss})
        assert RunResult.parse(metrics | {"curve": curve}).failures() == expected


def test_a_training_that_diverges_is_marked_wherever_it_is_shown(project, caplog):
    """Its numbers stay finite: thousands of nats a token."""
    project.write_profile("tiny", variants=["baseline"], train={"learning_rate": 50.0, "warmup_steps": 0, "epochs": 3})
    (config,) = Runs("tiny").configs()
    metrics = evaluate(train(config))
    record(metrics, "tiny")
    first, *others = metrics["failures"]
    assert first.startswith("the validation loss ")
    assert f"{EXPERIMENT}, baseline, seed 1: {first}" in [entry.getMessage() for entry in caplog.records]
    assert failures("tiny") == [f"{EXPERIMENT}, baseline, seed 1: {sentence}" for sentence in (first, *others)]
    assert f"**Diverged, or learnt nothing: baseline, seed 1: {first}" in table_data("tiny", EXPERIMENT).markdown()


def test_experiments_that_have_not_run_are_left_out(finished):
    path, before = finished.home / "config" / "tiny.yaml", with_results("tiny").keys()
    head, key, experiments = path.read_text().partition("experiments:")
    path.write_text(head + key + experiments + experiments.replace(EXPERIMENT, "deacon/dissection"))
    assert with_results("tiny").keys() == before


def test_nothing_stored_is_an_error(project):
    assert "no stored results" in refusal("check")
