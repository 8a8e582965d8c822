"""Runs that have learnt nothing are named."""

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT

from headdiv.companion.command_line import cli
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import failures, record
from headdiv.companion.experiments.run_result import RunResult, metrics_path
from headdiv.companion.experiments.running import train
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import read_json, write_json


def change(variant, first, last, nll, unigram):
    path = metrics_path("tiny", EXPERIMENT, variant, 1)
    metrics = read_json(path)
    metrics["curve"][0]["training_loss"], metrics["curve"][-1]["training_loss"] = first, last
    metrics["scores"]["validation_nll"]["value"] = nll
    metrics["scores"]["unigram_nll"]["value"] = unigram
    write_json(path, metrics)


def test_runs_that_learnt_have_no_failures(finished):
    for variant in ("baseline", "direct-8"):
        change(variant, 3.0, 2.0, 1.0, 4.0)
    assert failures("tiny") == []
    said = CliRunner().invoke(cli, ["check", "--profile", "tiny"]).output
    assert said.splitlines()[-1].startswith("Every stored run is the profile's and has learnt")


def test_scores_that_outputs_no_longer_have_are_shown_and_kept_where_asked_for(finished):
    path = metrics_path("tiny", EXPERIMENT, "baseline", 1)
    for variant in ("baseline", "direct-8"):
        change(variant, 3.0, 2.0, 1.0, 4.0)
    right = read_json(path)
    write_json(path, right | {"scores": right["scores"] | {"bleu": right["scores"]["bleu"] | {"value": 99.0}}})
    headdiv = CliRunner()
    assert headdiv.invoke(cli, ["check", "--profile", "tiny", "--no-scores"]).exit_code == 0
    found = headdiv.invoke(cli, ["check", "--profile", "tiny"])
    assert "1 scores of stored outputs are others today; --write" in str(found.exception)
    assert ["99.0000", f"{right['scores']['bleu']['value']:.4f}"] == found.output.splitlines()[1].split()[-2:]
    assert headdiv.invoke(cli, ["check", "--profile", "tiny", "--write"]).exit_code == 0
    assert read_json(path) == right


def test_each_failure_is_one_sentence(finished):
    change("baseline", 2.0, 2.5, 1.0, 4.0)
    change("direct-8", 3.0, 2.0, 4.25, 4.0)
    assert failures("tiny") == [
        "deacon/translation, baseline, seed 1: the training loss went from 2.0000 to 2.5000",
        "deacon/translation, direct-8, seed 1: "
        "the validation loss 4.2500 is not below 4.0000, that of frequencies alone",
    ]
    with pytest.raises(HeaddivError, match=r"went from 2\.0000"):
        cli(["check", "--profile", "tiny"], standalone_mode=False)


def test_runs_of_an_earlier_profile_are_named_and_not_shown_as_its_own(finished, tmp_path):
    """Of stored runs in a clone Snakemake does not know the configuration."""
    for variant in ("baseline", "direct-8"):
        change(variant, 3.0, 2.0, 1.0, 4.0)
    finished.write_profile("tiny", train={"learning_rate": 0.5})
    sentence = r"baseline/seed1/metrics.json: train.learning_rate is \S+, but 0.5 in \S+; `headdiv train \S+ baseline"
    figures = (["figure", name, str(tmp_path / "a.svg")] for name in ("deacon_figure6", "deacon_pruning"))
    for command in (["check"], ["table", EXPERIMENT], ["draw", "deacon"], *figures):
        with pytest.raises(HeaddivError, match=sentence):
            cli([*command, "--profile", "tiny"], standalone_mode=False)


def test_a_training_that_diverges_is_marked_wherever_it_is_shown(project, caplog):
    """Its numbers stay finite: thousands of nats a token."""
    project.write_profile("tiny", variants=["baseline"], train={"learning_rate": 50.0, "warmup_steps": 0, "epochs": 3})
    (config,) = Runs("tiny").all()
    metrics = evaluate(train(config))
    record(metrics, "tiny")
    first, *others = metrics["failures"]
    assert first.startswith("the validation loss ")
    assert f"{EXPERIMENT}, baseline, seed 1: {first}" in [entry.getMessage() for entry in caplog.records]
    assert failures("tiny") == [f"{EXPERIMENT}, baseline, seed 1: {sentence}" for sentence in (first, *others)]
    assert f"**Diverged, or learnt nothing: baseline, seed 1: {first}" in table_data("tiny", EXPERIMENT).markdown()


def test_a_fall_that_is_mostly_lost_again_is_a_failure(finished):
    path = metrics_path("tiny", EXPERIMENT, "baseline", 1)
    metrics = read_json(path)
    losses = [
        (6.0, []),
        (3.0, []),
        (4.4, []),
        (4.6, ["the training loss went from 6.0000 to 3.0000 and then to 4.6000"]),
    ]
    metrics["scores"]["unigram_nll"]["value"] = 100.0
    curve = []
    for loss, expected in losses:
        curve.append(metrics["curve"][0] | {"training_loss": loss})
        assert RunResult.parse(metrics | {"curve": curve}).failures() == expected


def test_experiments_that_have_not_run_are_left_out(finished):
    path, found = finished.home / "config" / "tiny.yaml", failures("tiny")
    before, key, experiments = path.read_text().partition("experiments:")
    path.write_text(before + key + experiments + experiments.replace(EXPERIMENT, "deacon/dissection"))
    assert failures("tiny") == found


def test_nothing_stored_is_an_error(project):
    with pytest.raises(DataError, match="no stored results"):
        failures("tiny")
