"""Tuning: what a profile may say of it, the same choice after kills, and the runs that have the choice."""

import dataclasses
import math
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT, Project
from faulty import fails
from reported import renew
from surroundings import Power, enter, fail_after

from headdiv.companion import pipeline
from headdiv.companion.command_line import cli
from headdiv.companion.data import cache
from headdiv.companion.experiments import tuning
from headdiv.companion.experiments.checking import changed_content, outdated
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import Runs, run_config
from headdiv.companion.experiments.results import record, stored
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.experiments.running import train
from headdiv.companion.report.tables import table_data
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import run_name
from headdiv.core.errors import ConfigError, DataError, NotStoredError, TrainingError
from headdiv.core.files import read_json, write_json

STEPS_AN_EPOCH = 5
GRID = [{"model.dropout": 0.2}, {"model.dropout": 0.3, "train.learning_rate": 0.002}]
TUNE = {
    "seeds": [101, 102],
    "rungs": [1, 3],
    "keep": [2, 1],
    "settings": GRID,
    "arms": {"baseline": [{"train.learning_rate": 0.02}], "direct-8": [{"method.batch_norm_scale": 0.5}]},
}
STEPS_OF_AN_ARM = STEPS_AN_EPOCH * 2 * (3 * 1 + 2 * 2)  # three settings for an epoch, two for two more, of two seeds


def tune(variant=None):
    return [tuning.tune(arm) for arm in Runs("tiny").arms_of(EXPERIMENT, variant)]


@pytest.fixture
def untuned(project):
    """The tiny profile, four epochs, both variants tuned."""
    project.write_profile(train={"epochs": 4}, tune=TUNE)
    return project


@pytest.fixture(scope="module")
def tuned_home(prepared_home, tmp_path_factory):
    """Its folder once it is tuned; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter(patch, shutil.copytree(prepared_home, tmp_path_factory.mktemp("tuned") / "home"))
        Project(home).write_profile(train={"epochs": 4}, tune=TUNE)
        steps = fail_after(patch, -1)
        tune()
        assert steps[0] == 2 * STEPS_OF_AN_ARM
    return home


@pytest.fixture
def tuned(tuned_home, tmp_path, monkeypatch):
    """The same for the test alone."""
    return Project(enter(monkeypatch, shutil.copytree(tuned_home, tmp_path / "tuned")))


def outcome(home, arm):
    """An arm's choice without what depends on the machine."""
    choice = read_json(home / "results" / "tiny" / EXPERIMENT / "tune" / arm / "choice.json")
    return {key: value for key, value in choice.items() if key not in ("seconds", "provenance")}


def test_settings_fall_out_by_the_mean_of_the_lowest_validation_loss(tuned, monkeypatch):
    fail_after(monkeypatch, 0)
    (choice,) = tune("baseline")
    assert [tried.setting for tried in choice.tried] == [*GRID, TUNE["arms"]["baseline"][0]]
    for tried in choice.tried:
        epochs = tried.fell_out or 3
        assert {seed: len(curve) for seed, curve in tried.curves.items()} == {101: epochs, 102: epochs}
        lowest = [sum(min(curve[:rung]) for curve in tried.curves.values()) / 2 for rung in (1, 3) if rung <= epochs]
        assert tried.losses == pytest.approx(lowest)
    first = {number: tried.losses[0] for number, tried in enumerate(choice.tried)}
    (worst,) = (number for number, tried in enumerate(choice.tried) if tried.fell_out == 1)
    assert first[worst] == max(first.values())
    assert choice.chosen.losses[1] == min(tried.losses[1] for tried in choice.tried if len(tried.losses) > 1)
    data = table_data("tiny", f"{EXPERIMENT}_tuning")
    assert "batch norm scale 1" in " ".join(data.notes)  # where a setting does not name it
    numbers = data.numbers.query("variant == 'baseline'")
    assert {"model.dropout", "train.learning_rate", "method.batch_norm_scale", "loss_3", "fell_out"} < {*numbers}
    assert numbers["loss_1"].tolist() == [tried.losses[0] for tried in choice.tried]
    assert numbers["chosen"].tolist() == [tried is choice.chosen for tried in choice.tried]
    # As far as it goes, the training is that of the whole run.
    monkeypatch.undo()
    enter(monkeypatch, tuned.home)
    config = run_config("tiny", EXPERIMENT, "baseline", 101)
    assert [point["validation_nll"] for point in train(config).record["curve"]][:3] == choice.chosen.curves[101]


def test_a_further_seed_joins_at_a_later_rung(project, monkeypatch):
    project.write_profile(train={"epochs": 4}, tune={**TUNE, "seeds_per_rung": [1, 2]})
    steps = fail_after(monkeypatch, -1)
    (choice,) = tune("baseline")
    assert steps[0] == STEPS_AN_EPOCH * (3 * 1 + 2 * 2 + 2 * 3)
    for tried in choice.tried:
        assert set(tried.curves) == ({101} if tried.fell_out == 1 else {101, 102})
        assert tried.losses[0] == min(tried.curves[101][:1])
        if tried.fell_out != 1:
            assert tried.losses[1] == pytest.approx(sum(map(min, tried.curves.values())) / 2)
    # The same epochs again, for the further seed alone.
    project.write_profile(train={"epochs": 4}, tune={**TUNE, "rungs": [1, 1], "seeds_per_rung": [1, 2]})
    (choice,) = tune("baseline")
    assert steps[0] == STEPS_AN_EPOCH * (3 * 1 + 2 * 2 + 2 * 3)
    assert [len(tried.losses) for tried in choice.tried].count(2) == 2
    assert choice.chosen.losses[1] == pytest.approx(sum(curve[0] for curve in choice.chosen.curves.values()) / 2)
    data = table_data("tiny", f"{EXPERIMENT}_tuning")
    expected = [[*tried.losses, math.nan][:2] for tried in choice.tried]
    assert np.array_equal(data.numbers[["loss_1", "loss_1_2_seeds"]], expected, equal_nan=True)
    shown = data.tables["what was tried"]
    assert {"1 epoch", "1 epoch, 2 seeds"} < {*shown}
    assert sorted(shown["Outcome"]) == ["chosen", "eliminated after 1 epoch", "eliminated after 1 epoch, 2 seeds"]


def test_a_tuning_that_was_killed_or_lost_its_checkpoints_chooses_the_same(untuned, tuned_home, monkeypatch):
    for steps in (3, 12, 31, 20):  # within and between rungs
        with monkeypatch.context() as patch:
            fail_after(patch, steps)
            with pytest.raises(Power):
                tune("direct-8")
        if steps == 31:
            shutil.rmtree(untuned.home / "work")
    tune("direct-8")
    assert outcome(untuned.home, "direct-8") == outcome(tuned_home, "direct-8")


def test_only_what_is_not_stored_is_trained(tuned, monkeypatch):
    expected = outcome(tuned.home, "direct-8")
    shutil.rmtree(tuned.home / "work")
    (tuned.home / "results" / "tiny" / EXPERIMENT / "tune" / "direct-8" / "choice.json").unlink()
    steps = fail_after(monkeypatch, -1)
    tune()
    assert (outcome(tuned.home, "direct-8"), steps[0]) == (expected, 0)
    monkeypatch.setattr(cache.toy, "VERSION", "another")  # other data: anew, and once
    for _ in range(2):
        tune("baseline")
        assert steps[0] == STEPS_OF_AN_ARM
    tuned.write_profile(train={"epochs": 4}, tune={**TUNE, "rungs": [1, 4]})  # longer, without checkpoints
    with fails("not tuned yet", NotStoredError):
        run_config("tiny", EXPERIMENT, "baseline", 1)
    tune("baseline")
    assert steps[0] == STEPS_OF_AN_ARM + STEPS_AN_EPOCH * 2 * 2 * 4


def test_an_epoch_that_is_stored_stays_where_a_lost_training_is_repeated_to_other_numbers(tuned):
    folder = tuned.home / "results" / "tiny" / EXPERIMENT / "tune" / "baseline"
    (choice,) = tune("baseline")
    assert not list((tuned.home / "work").rglob("checkpoints"))
    (folder / "choice.json").unlink()
    number = choice.tried.index(choice.chosen)
    path = folder / f"{run_name(Runs('tiny').arms[EXPERIMENT]['baseline'].config(number, 101))}.json"
    training = read_json(path)
    training["curve"][0]["validation_nll"] += 0.001  # as on another processor
    (origin,) = training["origins"]
    elsewhere = origin | {"processor": "another processor"}
    write_json(path, {**training, "epochs": 1, "curve": training["curve"][:1], "origins": [elsewhere]})
    (again,) = tune("baseline")
    assert again.chosen.losses[0] == pytest.approx(choice.chosen.losses[0] + 0.0005)
    assert again.chosen.curves[101][1:] == choice.chosen.curves[101][1:]
    assert {where.processor for where in again.origins} == {"another processor", origin["processor"]}
    assert "another processor" in table_data("tiny", f"{EXPERIMENT}_tuning").markdown()


@pytest.mark.parametrize(
    ("name", "damaged", "problem"),
    [("choice", "[]", ": input should be a valid dictionary"), ("training", "{", ", line 1: not")],
)
def test_a_damaged_file_is_named_with_what_makes_it_anew(tuned, name, damaged, problem):
    arm = Runs("tiny").arms[EXPERIMENT]["baseline"]
    expected, path = arm.choice, arm.choice_file
    if name == "training":
        path.unlink()
        path = path.with_name(f"{run_name(arm.config(0, 101))}.json")
    path.write_text(damaged)
    remedy = f"; remove it, and `headdiv tune {EXPERIMENT} --profile tiny --arm baseline` makes it anew"
    with pytest.raises(DataError, match=f"{re.escape(path.name + problem)}.*{re.escape(remedy)}$"):
        tune("baseline")
    path.unlink()
    assert tune("baseline")[0].tried == expected.tried


def test_a_setting_that_diverges_falls_out_and_the_test_set_is_not_read(untuned, monkeypatch):
    task = type(TASKS["translation"])
    load = task.load
    monkeypatch.setattr(task, "load", lambda self, config: dataclasses.replace(load(self, config), test=None))
    changed = {**TUNE, "settings": [{"train.learning_rate": 1e30}, {}], "keep": [1, 1], "arms": {"baseline": []}}
    untuned.write_profile(train={"epochs": 4, "warmup_steps": 0}, tune=changed)
    (choice,) = tune()
    assert (choice.tried[0].losses, choice.tried[0].fell_out) == ([None], 1)
    assert choice.chosen.setting == {}
    assert "diverged, eliminated after 1 epoch" in table_data("tiny", f"{EXPERIMENT}_tuning").markdown()
    untuned.write_profile(tune=changed | {"rungs": [1, 2], "settings": [{"train.learning_rate": 1e30}]})
    with fails("every setting diverged", TrainingError):
        tune()


# ---- the runs that have the choice


def test_a_plan_tunes_before_it_trains_and_runs_have_the_choice_as_if_it_were_written_out(untuned, monkeypatch):
    monkeypatch.setattr(pipeline, "notebook_code", lambda notebook: "")
    planned = pipeline.Plan("tiny")
    choices = [f"results/tiny/{EXPERIMENT}/tune/{arm}/choice.json" for arm in TUNE["arms"]]
    assert planned.choices([EXPERIMENT]) == choices
    assert planned.choices([EXPERIMENT], "direct-8") == choices[1:]
    assert set(choices) < set(planned.drawn_from("deacon"))
    assert "deacon_translation_tuning" in planned.tables
    with fails("`headdiv tune deacon/translation --profile tiny --arm direct-8` tunes it", NotStoredError):
        run_config("tiny", EXPERIMENT, "direct-8", 1)
    with fails(f"`headdiv tune {EXPERIMENT} --profile tiny` does it", DataError):
        table_data("tiny", f"{EXPERIMENT}_tuning")
    with fails("not tuned yet", NotStoredError):
        Runs("tiny").configs()
    done = CliRunner().invoke(cli, ["tune", EXPERIMENT, "--profile", "tiny", "--arm", "direct-8"])
    assert "Baseline" not in done.output
    assert "dropout 0.3, learning rate 0.002" in done.output
    chosen = {choice.arm: choice.chosen.setting for choice in tune()}
    assert vars(pipeline.Plan("tiny")) == vars(planned)  # so that Snakemake makes nothing anew
    for arm, setting in chosen.items():
        own = {section: {} for section in ("model", "train", "method")}
        for key, value in setting.items():
            section, _, name = key.partition(".")
            own[section][name] = value
        method = {"name": "deacon", "architecture": "direct", "m": 8} if arm == "direct-8" else {"name": "baseline"}
        by_hand = untuned.config("by-hand", train={"epochs": 4} | own["train"], model=own["model"],
                                 variants=["by-hand"], define={"by-hand": method | own["method"]})  # fmt: skip
        assert run_config("tiny", EXPERIMENT, arm, 1).hash == by_hand.hash
    untuned.write_profile(train={"epochs": 4}, tune=TUNE | {"rungs": [2, 3]})
    again = pipeline.Plan("tiny")
    assert again.runs[EXPERIMENT]["baseline", 1] != planned.runs[EXPERIMENT]["baseline", 1]


def test_results_may_differ_in_what_is_tuned_and_in_nothing_else(untuned):
    arms = {"baseline": [{"train.learning_rate": 0.02}], "direct-8": [{"train.learning_rate": 0.005}]}
    changed = {"seeds": [101], "rungs": [1], "keep": [1], "arms": arms}
    untuned.write_profile(tune=changed)
    tune()
    for config in Runs("tiny").configs():
        record(evaluate(train(config)), "tiny")
    assert [run.config.train["learning_rate"] for run in stored("tiny", EXPERIMENT)] == [0.02, 0.005]
    assert len(table_data("tiny", EXPERIMENT).numbers) == 2
    assert outdated("tiny") == changed_content("tiny") == []
    choice = Runs("tiny").arms[EXPERIMENT]["direct-8"].choice_file
    write_json(choice, read_json(choice) | {"content": "other files"})
    (sentences,) = changed_content("tiny")
    assert sentences.startswith(f"{choice}: content is other files, expected ")
    path = metrics_path("tiny", EXPERIMENT, "direct-8", 1)
    metrics = read_json(path)
    metrics["config"]["train"]["warmup_steps"] = 7
    renew(path, metrics)
    with fails("train.warmup_steps is 7, but 5", DataError):
        stored("tiny", EXPERIMENT)
    untuned.write_profile(tune=changed | {"seeds": [103]})
    sentences = outdated("tiny")
    assert len(sentences) == 2
    assert "direct-8/seed1/metrics.json: deacon/translation direct-8: not tuned yet" in sentences[1]


# ---- mistakes


@pytest.mark.parametrize(
    ("changed", "key", "message"),
    [
        ({"rungs": [3, 3]}, "rungs", "expected epochs that rise from rung to rung, or stay where seeds are added"),
        ({"rungs": [3, 2], "seeds_per_rung": [1, 2]}, "rungs", "seeds are added, found [3, 2]"),
        ({"rungs": [1, 5]}, "rungs.1", "5 is longer than the training of baseline; expected at most"),
        ({"keep": [4, 1]}, "keep", "4 settings are to survive, and baseline has 3"),
        ({"seeds_per_rung": [1, 1]}, "seeds_per_rung", "the last of them the 2 seeds, found [1, 1]"),
        ({"seeds": [101, 1]}, "seeds.1", "1 is a seed of the runs too"),
        ({"arms": {"basline": []}}, "arms.basline", "unknown variant 'basline'; did you mean 'baseline'?"),
        ({"settings": [{}, {"model.dropuot": 0.2}]}, "settings.1.model.dropuot", "did you mean 'dropout'?"),
        ({"settings": [{}, {"train.epochs": 3}]}, "settings.1.train.epochs", "cannot be tuned"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_line(project, changed, key, message):
    project.write_profile("p", train={"epochs": 4}, tune={**TUNE, **changed})
    with pytest.raises(ConfigError) as error:
        Runs("p")
    text = str(error.value)
    assert f": experiments.{EXPERIMENT}.tune.{key}: " in text
    assert message in text
    lines = (project.home / "config" / "p.yaml").read_text().splitlines()
    line = lines[int(text.partition(", line ")[2].partition(":")[0]) - 1].strip()
    # PyYAML writes a key of a setting, and an item of a list, in a line of its own.
    assert line.startswith((f"- {key.partition('.1.')[2]}", f"{key.rpartition('.')[2]}:"))


def test_a_rung_is_within_its_arms_own_training(project):
    def planned(epochs):
        project.write_profile("p", tune=TUNE, settings={arm: {"train.epochs": count} for arm, count in epochs.items()})
        return [arm.configs[0].train.epochs for arm in Runs("p").arms_of(EXPERIMENT)]

    assert planned({"baseline": 4, "direct-8": 3}) == [4, 3]
    with fails("rungs.1: 3 is longer than the training of direct-8; expected at most train.epochs = 2", ConfigError):
        planned({"baseline": 4})


def test_only_arms_are_tuned(untuned):
    with fails("no variant 'direct-3'; did you mean 'direct-8'?", ConfigError):
        tune("direct-3")
    untuned.write_profile()
    with fails("has no arm in a section 'tune'", ConfigError):
        tune()
    with fails("it has no section 'tune'", DataError):
        table_data("tiny", f"{EXPERIMENT}_tuning")
