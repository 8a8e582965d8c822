"""Tuning: what a profile may say of it, the same choice after kills, and the runs that have the choice."""

import dataclasses
import shutil

import pytest
from click.testing import CliRunner
from conftest import EXPERIMENT, Project
from faulty import fails
from reported import renew
from small_runs import Power, enter, fail_after

from headdiv.companion import pipeline
from headdiv.companion.command_line import cli
from headdiv.companion.data import cache
from headdiv.companion.experiments import halving
from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.outdated import of_other_content, outdated
from headdiv.companion.experiments.profiles import Runs, run_config
from headdiv.companion.experiments.results import record, stored
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.experiments.running import train
from headdiv.companion.report.tables import table_data
from headdiv.companion.report.tuning import setting_text
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.run_config import run_name
from headdiv.core.errors import ConfigError, DataError, TrainingError
from headdiv.core.files import read_json, write_json

STEPS_AN_EPOCH = 5
GRID = [{"model.dropout": 0.2}, {"model.dropout": 0.3, "train.learning_rate": 0.002}]
TUNE = {
    "seeds": [101, 102],
    "rungs": [1, 3],
    "keep": [2, 1],
    "settings": GRID,
    "arms": {"baseline": [{"train.learning_rate": 0.02}], "direct-8": [{"method.delta_p": 0.05}]},
}


@pytest.fixture
def tuning(project):
    """The tiny profile, four epochs, both variants tuned."""
    project.write_profile(train={"epochs": 4}, tune=TUNE)
    return project


@pytest.fixture(scope="module")
def tuned_home(prepared_home, tmp_path_factory):
    """Its folder once it is tuned; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        home = enter(patch, shutil.copytree(prepared_home, tmp_path_factory.mktemp("tuned") / "home"))
        Project(home).write_profile(train={"epochs": 4}, tune=TUNE)
        halving.tune("tiny", EXPERIMENT)
    return home


@pytest.fixture
def tuned(tuned_home, tmp_path, monkeypatch):
    """The same for the test alone."""
    return Project(enter(monkeypatch, shutil.copytree(tuned_home, tmp_path / "tuned")))


def outcome(home, arm):
    """An arm's choice without what depends on the machine."""
    choice = read_json(home / "results" / "tiny" / EXPERIMENT / "tune" / arm / "choice.json")
    return {key: value for key, value in choice.items() if key not in ("seconds", "provenance")}


def counted_steps(monkeypatch):
    return fail_after(monkeypatch, -1)


def test_settings_fall_out_by_the_mean_of_the_lowest_validation_loss(tuning, monkeypatch):
    steps = counted_steps(monkeypatch)
    (choice,) = halving.tune("tiny", EXPERIMENT, "baseline")
    assert steps[0] == STEPS_AN_EPOCH * 2 * (3 * 1 + 2 * 2)
    assert [tried.setting for tried in choice.tried] == [*GRID, TUNE["arms"]["baseline"][0]]
    for tried in choice.tried:
        until = tried.fell_out or 3
        assert {seed: len(curve) for seed, curve in tried.curves.items()} == {101: until, 102: until}
        lowest = [sum(min(curve[:rung]) for curve in tried.curves.values()) / 2 for rung in (1, 3) if rung <= until]
        assert tried.losses == pytest.approx(lowest)
    first = {number: tried.losses[0] for number, tried in enumerate(choice.tried)}
    (worst,) = (number for number, tried in enumerate(choice.tried) if tried.fell_out == 1)
    assert first[worst] == max(first.values())
    assert choice.chosen.losses[1] == min(tried.losses[1] for tried in choice.tried if len(tried.losses) > 1)
    # As far as it goes, the training is that of the whole run.
    config = run_config("tiny", EXPERIMENT, "baseline", 101)
    assert [point["validation_nll"] for point in train(config).record["curve"]][:3] == choice.chosen.curves[101]


def test_a_further_seed_joins_at_a_later_rung(project, monkeypatch):
    project.write_profile(train={"epochs": 4}, tune={**TUNE, "seeds_per_rung": [1, 2]})
    steps = counted_steps(monkeypatch)
    (choice,) = halving.tune("tiny", EXPERIMENT, "baseline")
    assert steps[0] == STEPS_AN_EPOCH * (3 * 1 + 2 * 2 + 2 * 3)
    for tried in choice.tried:
        assert set(tried.curves) == ({101} if tried.fell_out == 1 else {101, 102})
        assert tried.losses[0] == min(tried.curves[101][:1])
        if tried.fell_out != 1:
            assert tried.losses[1] == pytest.approx(sum(map(min, tried.curves.values())) / 2)


def test_a_tuning_that_was_killed_or_lost_its_checkpoints_chooses_the_same(tuning, tuned_home, monkeypatch):
    for steps in (3, 12, 31, 20):  # within and between rungs
        with monkeypatch.context() as patch:
            fail_after(patch, steps)
            with pytest.raises(Power):
                halving.tune("tiny", EXPERIMENT)
        if steps == 31:
            shutil.rmtree(tuning.home / "work")
    halving.tune("tiny", EXPERIMENT)
    for arm in TUNE["arms"]:
        assert outcome(tuning.home, arm) == outcome(tuned_home, arm)


def test_what_is_stored_is_not_trained_again(tuned, monkeypatch):
    expected = outcome(tuned.home, "direct-8")
    shutil.rmtree(tuned.home / "work")
    (tuned.home / "results" / "tiny" / EXPERIMENT / "tune" / "direct-8" / "choice.json").unlink()
    with monkeypatch.context() as patch:
        fail_after(patch, 0)
        halving.tune("tiny", EXPERIMENT)
    assert outcome(tuned.home, "direct-8") == expected
    more = {**TUNE, "rungs": [1, 4]}
    tuned.write_profile(train={"epochs": 4}, tune=more)  # longer, from what is stored of the first rung
    steps = counted_steps(monkeypatch)
    with fails("not tuned yet", ConfigError):
        run_config("tiny", EXPERIMENT, "baseline", 1)
    halving.tune("tiny", EXPERIMENT, "baseline")
    assert steps[0] == STEPS_AN_EPOCH * 2 * 2 * 4  # without checkpoints


def test_a_choice_for_other_data_is_made_anew(tuned, monkeypatch):
    monkeypatch.setattr(cache.toy, "VERSION", "another")
    steps = counted_steps(monkeypatch)
    halving.tune("tiny", EXPERIMENT, "baseline")
    assert steps[0] == STEPS_AN_EPOCH * 2 * (3 * 1 + 2 * 2)
    halving.tune("tiny", EXPERIMENT, "baseline")
    assert steps[0] == STEPS_AN_EPOCH * 2 * (3 * 1 + 2 * 2)  # and once


def test_an_epoch_that_is_stored_stays_where_a_lost_training_is_repeated_to_other_numbers(tuned):
    folder = tuned.home / "results" / "tiny" / EXPERIMENT / "tune" / "baseline"
    (choice,) = halving.tune("tiny", EXPERIMENT, "baseline")
    assert not list((tuned.home / "work").rglob("checkpoints"))
    (folder / "choice.json").unlink()
    number = choice.tried.index(choice.chosen)
    path = folder / f"{run_name(Runs('tiny').arms[EXPERIMENT]['baseline'].config(number, 101))}.json"
    training = read_json(path)
    training["curve"][0]["validation_nll"] += 0.001  # as on another processor
    (origin,) = training["origins"]
    elsewhere = origin | {"processor": "another processor"}
    write_json(path, {**training, "epochs": 1, "curve": training["curve"][:1], "origins": [elsewhere]})
    (again,) = halving.tune("tiny", EXPERIMENT, "baseline")
    assert again.chosen.losses[0] == pytest.approx(choice.chosen.losses[0] + 0.0005)
    assert again.chosen.curves[101][1:] == choice.chosen.curves[101][1:]
    assert {one.processor for one in again.origins} == {"another processor", origin["processor"]}
    assert "another processor" in table_data("tiny", f"{EXPERIMENT}_tuning").markdown()


def test_the_test_set_is_not_read(tuning, monkeypatch):
    task = type(TASKS["translation"])
    load = task.load
    monkeypatch.setattr(task, "load", lambda self, config: dataclasses.replace(load(self, config), test=None))
    assert len(halving.tune("tiny", EXPERIMENT, "baseline")) == 1


def test_a_setting_that_diverges_falls_out(tuning):
    tune = {**TUNE, "settings": [{"train.learning_rate": 1e30}, {}], "keep": [1, 1], "arms": {"baseline": []}}
    tuning.write_profile(train={"epochs": 4, "warmup_steps": 0}, tune=tune)
    (choice,) = halving.tune("tiny", EXPERIMENT)
    assert (choice.tried[0].losses, choice.tried[0].fell_out) == ([None], 1)
    assert choice.chosen.setting == {}
    assert "diverged, eliminated after 1 epoch" in table_data("tiny", f"{EXPERIMENT}_tuning").markdown()
    tuning.write_profile(tune=tune | {"rungs": [1, 2], "settings": [{"train.learning_rate": 1e30}]})
    with fails("every setting diverged", TrainingError):
        halving.tune("tiny", EXPERIMENT)


def test_a_methods_key_is_told_from_the_models():
    assert setting_text({"model.dropout": 0.2, "method.dropout": 0.1}) == "dropout 0.2, method's dropout 0.1"
    assert setting_text({"method.gamma": 640.0}) == "gamma 640"


# ---- the runs that have the choice


def test_runs_have_their_arms_choice_as_if_it_were_written_out(tuning, monkeypatch):
    monkeypatch.setattr(pipeline, "notebook_code", lambda notebook: "")
    planned = pipeline.make_plan("tiny")
    with fails("`headdiv tune deacon/translation --profile tiny --arm direct-8` tunes it", ConfigError):
        run_config("tiny", EXPERIMENT, "direct-8", 1)
    assert Runs("tiny").all() == []
    chosen = {choice.arm: choice.chosen.setting for choice in halving.tune("tiny", EXPERIMENT)}
    assert pipeline.make_plan("tiny") == planned  # so that Snakemake makes nothing anew
    for arm, setting in chosen.items():
        own = {section: {} for section in ("model", "train", "method")}
        for key, value in setting.items():
            section, _, name = key.partition(".")
            own[section][name] = value
        method = {"name": "deacon", "architecture": "direct", "m": 8} if arm == "direct-8" else {"name": "baseline"}
        by_hand = tuning.config("by-hand", train={"epochs": 4} | own["train"], model=own["model"],
                                variants=["by-hand"], define={"by-hand": method | own["method"]})  # fmt: skip
        assert run_config("tiny", EXPERIMENT, arm, 1).hash == by_hand.hash


def test_a_plan_tunes_before_it_trains(tuning):
    plan = pipeline.make_plan("tiny")
    choices = [f"results/tiny/{EXPERIMENT}/tune/{arm}/choice.json" for arm in TUNE["arms"]]
    assert plan.choices([EXPERIMENT]) == choices
    assert plan.choices([EXPERIMENT], "direct-8") == choices[1:]
    assert set(choices) < set(plan.drawn_from("deacon"))
    assert "deacon_translation_tuning" in plan.tables
    before = plan.decisive(EXPERIMENT, "baseline", 1)
    tuning.write_profile(train={"epochs": 4}, tune=TUNE | {"rungs": [2, 3]})
    assert pipeline.make_plan("tiny").decisive(EXPERIMENT, "baseline", 1) != before


def test_results_may_differ_in_what_is_tuned_and_in_nothing_else(tuning):
    arms = {"baseline": [{"train.learning_rate": 0.02}], "direct-8": [{"train.learning_rate": 0.005}]}
    tune = {"seeds": [101], "rungs": [1], "keep": [1], "arms": arms}
    tuning.write_profile(tune=tune)
    halving.tune("tiny", EXPERIMENT)
    for config in Runs("tiny").all():
        record(evaluate(train(config)), "tiny")
    assert [run.config.train["learning_rate"] for run in stored("tiny", EXPERIMENT)] == [0.02, 0.005]
    assert len(table_data("tiny", EXPERIMENT).numbers) == 2
    assert outdated("tiny") == of_other_content("tiny") == []
    choice = Runs("tiny").arms[EXPERIMENT]["direct-8"].choice_file
    write_json(choice, read_json(choice) | {"content": "other files"})
    (found,) = of_other_content("tiny")
    assert found.startswith(f"{choice}: content is other files, expected ")
    path = metrics_path("tiny", EXPERIMENT, "direct-8", 1)
    metrics = read_json(path)
    metrics["config"]["train"]["warmup_steps"] = 7
    renew(path, metrics)
    with fails("train.warmup_steps is 7, but 5", DataError):
        stored("tiny", EXPERIMENT)
    tuning.write_profile(tune=tune | {"seeds": [103]})
    found = outdated("tiny")
    assert len(found) == 2
    assert "direct-8/seed1/metrics.json: deacon/translation direct-8: not tuned yet" in found[1]


# ---- what is shown


def test_what_was_tried_is_shown(tuning):
    done = CliRunner().invoke(cli, ["tune", EXPERIMENT, "--profile", "tiny", "--arm", "direct-8"])
    assert "Baseline" not in done.output
    assert "dropout 0.3, learning rate 0.002" in done.output
    choice = Runs("tiny").arms[EXPERIMENT]["direct-8"].choice
    numbers = table_data("tiny", f"{EXPERIMENT}_tuning").numbers
    assert list(numbers) == [
        "variant", "label", "setting", "model.dropout", "train.learning_rate", "method.delta_p", "loss_1", "loss_3",
        "fell_out", "chosen"
    ]  # fmt: skip
    assert numbers["chosen"].sum() == 1
    assert numbers["loss_1"].tolist() == [tried.losses[0] for tried in choice.tried]


# ---- mistakes


@pytest.mark.parametrize(
    ("changed", "key", "message"),
    [
        ({"rungs": [3, 3]}, "rungs", "expected epochs that rise from rung to rung, found [3, 3]"),
        ({"rungs": [1, 5]}, "rungs.1", "5 is longer than the training of baseline; expected at most"),
        ({"keep": [1]}, "keep", "expected a number for each rung that does not rise, the last of them 1, found [1]"),
        ({"keep": [1, 2, 1], "rungs": [1, 2, 3]}, "keep", "that does not rise"),
        ({"keep": [4, 1]}, "keep", "4 settings are to survive, and baseline has 3"),
        ({"seeds_per_rung": [1, 1]}, "seeds_per_rung", "the last of them the 2 seeds, found [1, 1]"),
        ({"seeds": [101, 1]}, "seeds.1", "1 is a seed of the runs too"),
        ({"arms": {"basline": []}}, "arms.basline", "no variant of the experiment; did you mean 'baseline'?"),
        ({"settings": [{}, {"model.dropuot": 0.2}]}, "settings.1.model.dropuot", "did you mean 'dropout'?"),
        ({"arms": {"direct-8": [{}, {"method.weight": 1}]}}, "arms.direct-8.1.method.weight", "unknown key"),
        ({"settings": [{}, {"data.name": "x"}]}, "settings.1.data.name", "expected one of model, train, method"),
        ({"settings": [{}, {"train.epochs": 3}]}, "settings.1.train.epochs", "cannot be tuned"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_line(project, changed, key, message):
    project.write_profile("p", train={"epochs": 4}, tune={**TUNE, **changed})
    with pytest.raises(ConfigError) as error:
        Runs("p")
    said = str(error.value)
    assert f": experiments.{EXPERIMENT}.tune.{key}: " in said
    assert message in said
    lines = (project.home / "config" / "p.yaml").read_text().splitlines()
    line = lines[int(said.partition(", line ")[2].partition(":")[0]) - 1].strip()
    # PyYAML writes a key of a setting, and an item of a list, in a line of its own.
    assert line.startswith((f"- {key.partition('.1.')[2]}", f"{key.rpartition('.')[2]}:"))


def test_a_rung_is_within_its_arms_own_training(project):
    def planned(epochs):
        project.write_profile(
            "p", train={"epochs": 2}, tune=TUNE, settings={arm: {"train.epochs": n} for arm, n in epochs}
        )
        return [arm.configs[0].train.epochs for arm in Runs("p").arms[EXPERIMENT].values()]

    assert planned([("baseline", 4), ("direct-8", 3)]) == [4, 3]
    with fails("rungs.1: 3 is longer than the training of direct-8; expected at most train.epochs = 2", ConfigError):
        planned([("baseline", 4)])


def test_without_a_choice_the_command_that_makes_it_is_named_if_there_is_one(tuning):
    with fails(f"`headdiv tune {EXPERIMENT} --profile tiny` does it", DataError):
        table_data("tiny", f"{EXPERIMENT}_tuning")
    tuning.write_profile("plain")
    with fails("it has no section 'tune'", DataError):
        table_data("plain", f"{EXPERIMENT}_tuning")


def test_several_ranks_are_refused(tuning):
    tuning.write_profile("ranked", {"ranks": 2})
    with fails("tuning trains in one process", ConfigError):
        halving.tune("ranked", EXPERIMENT)


def test_only_arms_are_tuned(tuning):
    with fails(f"{EXPERIMENT} has no arm 'direct-3'", ConfigError):
        halving.tune("tiny", EXPERIMENT, "direct-3")
    tuning.write_profile("plain")
    with fails("no section 'tune'", ConfigError):
        halving.tune("plain", EXPERIMENT)
