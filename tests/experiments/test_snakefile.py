"""The whole pipeline on the tiny profile: what is made, and what is made again after a change."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
import yaml
from conftest import EXPERIMENT, TINY, Project
from small_runs import SMALL

from headdiv.core.files import checksum

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NEEDED = ("Snakefile", "environment.yml", "notebooks", "profiles", "config/report")
RUN_NOTEBOOK = Path("notebooks") / "runs" / "deacon_translation.ipynb"
RESULTS = Path("results") / "tiny"
RUN_FILES = ("metrics.json", "outputs.json", "examples.json", "model.json", "heads.png", "run.ipynb")


def snakemake(home, *arguments, profile="tiny", config=()):
    command = [sys.executable, "-m", "snakemake", *arguments, "--cores", "1", "--config", f"profile={profile}", *config]
    environment = os.environ | {"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu"}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def planned(home, target="reproduce-all", profile="tiny"):
    """How many jobs of each rule would be run."""
    status, said = snakemake(home, target, "--dry-run", profile=profile)
    assert status == 0, said
    if "Nothing to be done" in said:
        return {}
    table = said.split("Job stats:")[1].split("\ntotal")[0]
    return {name: int(count) for name, count in re.findall(r"^([\w-]+) +(\d+)$", table, flags=re.MULTILINE)}


def made_in(results):
    """Every file of a profile's results; of the report its first page alone, which stands for the folder."""
    found = (path for path in results.rglob("*") if path.is_file() and path.name != "counts.csv")  # of translations
    paths = (path.relative_to(results).as_posix() for path in found)
    return {path for path in paths if not path.startswith("report/") or path == "report/index.html"}


def trained(home):
    """When each run was trained."""
    return {path.parent.name: path.stat().st_mtime_ns for path in home.glob("work/*/training.json")}


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A copy of the project in which `snakemake reproduce-all` has been run; not to be changed."""
    home = tmp_path_factory.mktemp("pipeline") / "home"
    home.mkdir()
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, home / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".ipynb_checkpoints")
            )
        else:
            shutil.copy(source, home / name)
    Project(home).write_profile()
    shutil.copy(ROOT / "config" / "paper.yaml", home / "config")  # the companion counts its parameters
    status, said = snakemake(home, "reproduce-all")
    assert status == 0, said
    return home


@pytest.fixture
def project(reproduced, tmp_path):
    return Project(shutil.copytree(reproduced, tmp_path / "home"))


def test_everything_is_made(reproduced):
    results = reproduced / RESULTS
    made = made_in(results)
    runs = [f"{EXPERIMENT}/{variant}/seed1/{file}" for variant in ("baseline", "direct-8")
            for file in RUN_FILES]  # fmt: skip
    figures = ("deacon_figure6", "deacon_table3", "deacon_translation_curves")
    assert made == {
        *runs,
        *(f"tables/deacon_translation.{kind}" for kind in ("csv", "md")),
        *(f"figures/{figure}.{kind}" for figure in figures for kind in ("png", "svg")),
        "companions/deacon.ipynb",
        "companions/explore.ipynb",
        "report/index.html",
    }
    assert len(trained(reproduced)) == 2
    assert {path.name for path in reproduced.iterdir()} == {
        *(name.partition("/")[0] for name in NEEDED), "data", "logs", "results", "work", ".snakemake"
    }  # fmt: skip
    report = results / "report"
    assert 'href="../companions/deacon.html"' in (report / "papers" / "deacon.html").read_text()
    assert "Direct-8" in (report / "companions" / "deacon.html").read_text()
    explored = (results / "companions" / "explore.ipynb").read_text()
    assert explored.count('"image/png"') == 3
    assert "log-probability of all heads' translation (nats/token)" in explored
    assert "training loss" in (results / f"{EXPERIMENT}/baseline/seed1/run.ipynb").read_text()


def test_prose_of_a_notebook_trains_nothing(project):
    path = project.home / RUN_NOTEBOOK
    content = json.loads(path.read_text())
    content["cells"][0]["source"] = ["# Other words\n"]
    path.write_text(json.dumps(content))
    assert planned(project.home) == {}


def test_code_of_a_notebook_runs_it_again_without_training(project):
    path, before = project.home / RUN_NOTEBOOK, trained(project.home)
    content = json.loads(path.read_text())
    content["cells"].append({**content["cells"][-1], "id": "another", "source": ["1 + 1"]})
    path.write_text(json.dumps(content))
    assert planned(project.home)["run"] == 2
    status, said = snakemake(project.home, "tables")
    assert status == 0, said
    assert trained(project.home) == before


@pytest.mark.parametrize(
    ("sections", "runs"),
    [
        ({"train": {"checkpoint_seconds": 7.0}}, 0),
        ({"methods": {"deacon": {"xi": 0.5}}}, 1),
        ({"variants": ["baseline", "direct-8", "average-8"]}, 1),
        ({"data": {"examples": 61}}, 2),
    ],
    ids=str,
)
def test_a_change_of_the_profile_runs_what_it_changes(project, sections, runs):
    project.write_profile("tiny", **sections)
    jobs = planned(project.home)
    assert jobs.get("run", 0) == runs
    assert ("report" in jobs) == bool(runs)


def test_a_mistake_in_the_profile_is_one_clear_message(project):
    project.write_profile("tiny", train={"epoch": 3})
    status, said = snakemake(project.home, "reproduce-all")
    assert status != 0
    path = project.home / "config" / "tiny.yaml"
    line = [line.strip() for line in path.read_text().splitlines()].index("epoch: 3") + 1
    message = "experiments.deacon/translation.train.epoch: unknown key; did you mean 'epochs'?"
    assert f"{path}, line {line}: {message}" in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) <= 4, said


def test_ranks_train_a_run_together_and_the_notebook_evaluates_it(project):
    project.write_profile("tiny", {"ranks": 2}, variants=["baseline"], train={"epochs": 3})
    status, said = snakemake(project.home, "tables")
    assert status == 0, said
    metrics = json.loads((project.home / RESULTS / EXPERIMENT / "baseline" / "seed1" / "metrics.json").read_text())
    assert (len(metrics["curve"]), metrics["provenance"]["ranks"]) == (3, 2)
    assert metrics["scores"]


def test_what_is_made_can_be_packed_as_a_report_of_snakemake(project):
    status, said = snakemake(project.home, "reproduce-all", "--report", "report.zip")
    assert status == 0, said
    with zipfile.ZipFile(project.home / "report.zip") as packed:
        names = [Path(name).name for name in packed.namelist()]
    for name in ("report.html", "deacon_figure6.svg", "deacon_translation.md", "deacon.ipynb", "explore.ipynb"):
        assert name in names


def test_a_run_says_where_its_model_lies(reproduced):
    manifest = json.loads((reproduced / RESULTS / EXPERIMENT / "baseline" / "seed1" / "model.json").read_text())
    model = reproduced / manifest["model"]
    assert manifest["bytes"] == model.stat().st_size
    assert manifest["sha256"] == checksum(model)


def test_a_clone_with_stored_results_draws_without_data_and_training(project):
    for name in ("work", "data", "logs", ".snakemake"):
        shutil.rmtree(project.home / name)
    for path in project.home.rglob("*"):  # git sets times in no order that means anything
        moment = 1_700_000_000 + zlib.crc32(path.name.encode()) % 1000
        os.utime(path, (moment, moment))
    assert planned(project.home).keys() <= {"draw_deacon", "companion", "report", "reproduce-all"}
    figure = project.home / RESULTS / "figures" / "deacon_figure6.svg"
    content = figure.read_bytes()
    shutil.rmtree(figure.parent)
    assert planned(project.home, "figures") == {"draw_deacon": 1, "figures": 1}
    status, said = snakemake(project.home, "figures")
    assert status == 0, said
    assert figure.read_bytes() == content
    assert not (project.home / "work").exists()
    assert not (project.home / "data").exists()
    shutil.rmtree(project.home / RESULTS / "deacon" / "translation" / "direct-8")
    assert planned(project.home)["run"] == 1  # the missing one alone


def test_a_failing_run_says_why(project):
    project.write_profile("tiny", train={"learning_rate": 1e30, "warmup_steps": 0})
    status, said = snakemake(project.home, "reproduce-all")
    assert status != 0
    assert "the loss is nan at step 2; nothing was recorded" in said
    log = project.home / "logs" / "tiny" / EXPERIMENT / "baseline" / "seed1" / "run.log"
    assert "the loss is nan at step 2" in log.read_text()


def write_profile(project, name, tasks):
    """A profile of the baseline on each of these tasks, in sizes that train in a second."""
    sections = {"translation": TINY["experiments"][EXPERIMENT]} | SMALL
    experiments = {f"deacon/{task}": sections[task] | {"variants": ["baseline"]} for task in tasks}
    content = {"title": name, "seeds": [1], "experiments": experiments}
    return project.write_config(name, yaml.safe_dump(content, sort_keys=False))


def test_all_tasks_together_and_then_one_of_them_alone(project):
    tasks = ("translation", "summarisation", "qa", "lm")
    four = write_profile(project, "four", tasks)
    assert planned(project.home, profile=four) == {
        "run": 4, "draw_deacon": 1, "companion": 2, "report": 1, "reproduce-all": 1
    }  # fmt: skip
    status, said = snakemake(project.home, "reproduce-all", profile=four)
    assert status == 0, said
    results = project.home / "results" / four
    made = made_in(results)
    assert made == {
        *(f"deacon/{task}/baseline/seed1/{file}" for task in tasks for file in RUN_FILES),
        *(f"tables/deacon_{table}.{kind}" for table in (*tasks, "sources") for kind in ("csv", "md")),
        *(f"figures/deacon_{task}_curves.{kind}" for task in tasks for kind in ("png", "svg")),
        "companions/deacon.ipynb",
        "companions/explore.ipynb",
        "report/index.html",
    }
    assert planned(project.home, profile=four) == {}
    companion = (results / "companions" / "deacon.ipynb").read_text()
    assert "Profile four has none of direct-8, average-8, nonlinear-8 in deacon/translation." in companion
    assert "354818048" in companion
    assert "there are no sources to compare" in companion  # the small run's text is one stream

    alone, before = write_profile(project, "alone", ["lm"]), trained(project.home)
    jobs = planned(project.home, profile=alone)
    assert (jobs["run"], jobs["draw_deacon"]) == (1, 1)
    companion = Path("results") / alone / "companions" / "deacon.ipynb"
    status, said = snakemake(project.home, str(companion), profile=alone)
    assert status == 0, said
    assert trained(project.home) == before
    for task in ("translation", "summarisation", "qa"):
        assert f"Profile alone has no deacon/{task}." in (project.home / companion).read_text()


def test_a_profile_may_be_given_by_path(project):
    """Its folder's name may have spaces."""
    path = project.home / "own profiles" / "my-own.yaml"
    path.parent.mkdir()
    project.write_profile("tiny", variants=["baseline"])
    shutil.copy(project.home / "config" / "tiny.yaml", path)
    status, said = snakemake(project.home, "tables", profile="own profiles/my-own.yaml")
    assert status == 0, said
    table = project.home / "results" / "my-own" / "tables" / "deacon_translation.md"
    assert table.is_file(), said
