"""The whole pipeline on the tiny profile with all tasks: what is made, and what is made again after a change."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import yaml
from conftest import EXPERIMENT, TINY, Project
from small_runs import SMALL

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NEEDED = ("Snakefile", "environment.yml", "notebooks", "profiles")
OTHER_TASKS = ("summarisation", "qa", "lm")
RESULTS = Path("results") / "tiny"
RUN_FILES = ("metrics.json", "outputs.json.xz", "run.ipynb")


def snakemake(home, *arguments, profile="tiny"):
    command = [sys.executable, "-m", "snakemake", *arguments, "--cores", "1", "--config", f"profile={profile}"]
    environment = os.environ | {"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu"}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=1500)
    return done.returncode, done.stdout + done.stderr


def succeed(home, *arguments, profile="tiny"):
    """The output of Snakemake, which must succeed."""
    status, output = snakemake(home, *arguments, profile=profile)
    assert status == 0, output
    return output


def jobs(output):
    """How many jobs of each rule were or would be run."""
    if "Nothing to be done" in output:
        return {}
    table = output.split("Job stats:")[1].split("\ntotal")[0]
    return {name: int(count) for name, count in re.findall(r"^([\w-]+) +(\d+)$", table, flags=re.MULTILINE)}


def runs(output):
    """Task and variant of the jobs that train or evaluate."""
    return re.findall(r"wildcards: paper=deacon, task=(\w+), variant=([\w-]+), seed=1$", output, flags=re.MULTILINE)


def every_task():
    """The tiny profile's experiments, and the baseline of each other task."""
    others = {f"deacon/{task}": SMALL[task] | {"variants": ["baseline"]} for task in OTHER_TASKS}
    return {"experiments": copy.deepcopy(TINY["experiments"]) | others}


def change(home, notebook, cell):
    """Another source of one of a notebook's cells."""
    path = home / "notebooks" / "runs" / notebook
    content = json.loads(path.read_text())
    content["cells"][cell]["source"].append("\n# changed")
    path.write_text(json.dumps(content))


def made_in(results):
    """Every file of a profile's results; of the report its first page alone, which stands for the folder."""
    files = (path for path in results.rglob("*") if path.is_file())
    paths = (path.relative_to(results).as_posix() for path in files)
    return {path for path in paths if not path.startswith("report/") or path == "report/index.html"}


def trained(home):
    """When each run was trained."""
    return {path.parent.name: path.stat().st_mtime_ns for path in home.glob("work/*/training.json")}


def copied(home):
    """What the pipeline needs of the repository, in a folder of its own; returns it."""
    home.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        else:
            shutil.copy(ROOT / name, home / name)
    return home


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A copy of the project in which `snakemake reproduce-all` has been run, and what that said."""
    home = copied(tmp_path_factory.mktemp("pipeline") / "home")
    Project(home).write_profile("tiny", every_task())
    shutil.copy(ROOT / "config" / "paper.yaml", home / "config")  # the companion counts its parameters
    return home, succeed(home, "reproduce-all")


@pytest.fixture
def project(first, tmp_path):
    """A further copy, which a test may change."""
    return Project(shutil.copytree(first[0], tmp_path / "home"))


def test_everything_is_made(first):
    home, output = first
    assert jobs(output) == {"run": 5, "draw_deacon": 1, "companion": 2, "report": 1, "reproduce-all": 1}
    results, tasks = home / RESULTS, ("translation", *OTHER_TASKS)
    folders = [f"{EXPERIMENT}/direct-8/seed1", *(f"deacon/{task}/baseline/seed1" for task in tasks)]
    figures = ("deacon_figure6", "deacon_table3", *(f"deacon_{task}_curves" for task in tasks))
    assert made_in(results) == {
        *(f"{folder}/{file}" for folder in folders for file in RUN_FILES),
        *(f"tables/deacon_{table}.{kind}" for table in (*tasks, "sources") for kind in ("csv", "md")),
        *(f"figures/{figure}.svg" for figure in figures),
        "companions/deacon.ipynb",
        "companions/explore.ipynb",
        "report/index.html",
    }
    assert len(trained(home)) == 5
    assert {path.name for path in home.iterdir()} == {
        *(name.partition("/")[0] for name in NEEDED), "config", "data", "logs", "results", "work", ".snakemake"
    }  # fmt: skip
    report = results / "report"
    assert 'href="companions/deacon.html"' in (report / "deacon.html").read_text()
    assert "one run" in (report / "runs" / "deacon_translation_direct-8_seed_1.html").read_text()
    assert "Direct-8" in (report / "companions" / "deacon.html").read_text()
    companion = (results / "companions" / "deacon.ipynb").read_text()
    assert "Profile tiny has no deacon/dissection." in companion
    assert "354818048" in companion
    assert "there are no sources to compare" in companion  # the small run's text is one stream
    explored = (results / "companions" / "explore.ipynb").read_text()
    assert explored.count('"image/png"') == 1
    assert "training loss" in (results / f"{EXPERIMENT}/baseline/seed1/run.ipynb").read_text()


def test_a_profiles_notebook_is_executed_whatever_its_name(tmp_path):
    home = copied(tmp_path / "home")
    shutil.copy(home / "notebooks" / "explore.ipynb", home / "notebooks" / "my_own_2.ipynb")
    Project(home).write_profile("tiny", {"notebooks": ["my_own_2"]})
    output = succeed(home, "--dry-run", str(RESULTS / "companions" / "my_own_2.ipynb"))
    assert jobs(output) == {"run": 2, "draw_deacon": 1, "companion": 1}


def test_prose_of_a_notebook_and_keys_that_decide_nothing_make_nothing_again(project):
    change(project.home, "deacon_translation.ipynb", 0)
    project.write_profile("tiny", every_task(), train={"checkpoint_seconds": 7.0})
    assert jobs(succeed(project.home, "reproduce-all", "--dry-run")) == {}


def test_code_of_a_notebook_runs_it_again_without_training(project):
    before = trained(project.home)
    change(project.home, "deacon_lm.ipynb", -1)
    files = [str(RESULTS / "deacon" / task / "baseline" / "seed1" / "metrics.json") for task in ("translation", "lm")]
    output = succeed(project.home, *files)
    assert (jobs(output), runs(output)) == ({"run": 1}, [("lm", "baseline")])
    assert trained(project.home) == before


def test_a_change_of_the_profile_runs_what_it_changes(project):
    changed = {"methods": {"deacon": {"xi": 0.5}}, "variants": ["baseline", "direct-8", "average-8"]}
    project.write_profile("tiny", every_task(), **changed)
    output = succeed(project.home, "reproduce-all", "--dry-run")
    assert jobs(output) == {"run": 2, "draw_deacon": 1, "companion": 2, "report": 1, "reproduce-all": 1}
    assert sorted(runs(output)) == [("translation", "average-8"), ("translation", "direct-8")]


def test_a_mistake_in_the_profile_is_one_clear_message(project):
    project.write_profile("tiny", train={"epoch": 3})
    status, output = snakemake(project.home, "reproduce-all")
    assert status != 0
    path = project.home / "config" / "tiny.yaml"
    line = [line.strip() for line in path.read_text().splitlines()].index("epoch: 3") + 1
    message = "experiments.deacon/translation.train.epoch: unknown key; did you mean 'epochs'?"
    assert f"{path}, line {line}: {message}" in output
    assert "Traceback" not in output
    assert len(output.strip().splitlines()) <= 4, output


def test_a_profile_is_given_by_its_path_in_a_folder_whose_name_has_spaces(project):
    project.write_profile("tiny", variants=["baseline"])
    path = project.home / "own profiles" / "my-own.yaml"
    path.parent.mkdir()
    shutil.move(project.home / "config" / "tiny.yaml", path)
    succeed(project.home, "tables", profile="own profiles/my-own.yaml")
    results = project.home / "results" / "my-own"
    assert (results / EXPERIMENT / "baseline" / "seed1" / "metrics.json").is_file()
    assert (results / "tables" / "deacon_translation.md").is_file()


def test_a_clone_with_stored_results_draws_without_data_and_training(project):
    for name in ("work", "data", "logs", ".snakemake"):
        shutil.rmtree(project.home / name)
    for path in project.home.rglob("*"):  # git sets times in no order that means anything
        moment = 1_700_000_000 + zlib.crc32(path.name.encode()) % 1000
        os.utime(path, (moment, moment))
    figure = project.home / RESULTS / "figures" / "deacon_figure6.svg"
    content = figure.read_bytes()
    shutil.rmtree(figure.parent)
    assert jobs(succeed(project.home, "figures")) == {"draw_deacon": 1, "figures": 1}
    assert figure.read_bytes() == content
    assert not (project.home / "work").exists()
    assert not (project.home / "data").exists()
    shutil.rmtree(project.home / RESULTS / "deacon" / "translation" / "direct-8")
    output = succeed(project.home, "reproduce-all", "--dry-run")
    assert runs(output) == [("translation", "direct-8")]  # the missing one alone


def test_a_failing_run_says_why(project):
    project.write_profile("tiny", variants=["baseline"], train={"learning_rate": 1e30, "warmup_steps": 0})
    status, output = snakemake(project.home, "reproduce-all")
    assert status != 0
    assert "the loss is nan at step 2; nothing was recorded" in output
    log = project.home / "logs" / "tiny" / EXPERIMENT / "baseline" / "seed1" / "run.log"
    assert "the loss is nan at step 2" in log.read_text()


def test_one_task_alone_is_reported_from_what_is_trained(project):
    experiments = {"deacon/lm": every_task()["experiments"]["deacon/lm"]}
    content = {"title": "alone", "seeds": [1], "experiments": experiments}
    alone, before = project.write_config("alone", yaml.safe_dump(content)), trained(project.home)
    companion = Path("results") / alone / "companions" / "deacon.ipynb"
    output = succeed(project.home, str(companion), profile=alone)
    assert jobs(output) == {"run": 1, "draw_deacon": 1, "companion": 1}
    assert trained(project.home) == before
    for task in ("translation", "summarisation", "qa"):
        assert f"Profile alone has no deacon/{task}." in (project.home / companion).read_text()


def test_a_run_waits_for_its_arms_choice_and_a_choice_changes_no_plan(project):
    tune = {"seeds": [101], "rungs": [1], "keep": [1], "arms": {"baseline": [{}, {"model.dropout": 0.2}]}}
    project.write_profile("tuned", tune=tune)
    run = f"results/tuned/{EXPERIMENT}/baseline/seed1/metrics.json"
    assert jobs(succeed(project.home, "-n", run, profile="tuned")) == {"tune": 1, "run": 1}
    succeed(project.home, f"results/tuned/{EXPERIMENT}/tune/baseline/choice.json", profile="tuned")
    assert jobs(succeed(project.home, "-n", run, profile="tuned")) == {"run": 1}
    succeed(project.home, run, profile="tuned")
    assert jobs(succeed(project.home, "-n", run, profile="tuned")) == {}
