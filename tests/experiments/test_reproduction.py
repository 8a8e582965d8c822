"""The warm process whose forks are the pipeline's steps, and what is said while Snakemake runs."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from headdiv.companion.experiments import reproduction
from headdiv.companion.experiments.warm import SOCKET, warm_process
from headdiv.core.errors import ConfigError

linux = pytest.mark.skipif(sys.platform != "linux", reason="a warm process is forked on Linux alone")


def start(environment, *arguments, **options):
    command = [sys.executable, "-m", "headdiv", *arguments]
    return subprocess.Popen(command, env=os.environ | environment, stdout=-1, stderr=-1, text=True, **options)


@pytest.fixture(scope="module")
def warm():
    """The warm process; tests that run in the background ignore SIGINT, and whoever they start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with warm_process(("headdiv.companion.command_line",)) as environment:
        yield environment


@linux
def test_a_step_has_its_callers_arguments_folder_environment_files_and_status(warm, project):
    log = project.home / "a.log"
    step = start(warm, "--log", "a.log", "fetch", "multi40k", cwd=project.home)
    out, err = step.communicate(timeout=60)
    sentence = "headdiv: data set 'multi40k' is not known; did you mean 'multi30k'?\n"
    assert (step.returncode, out, err) == (2, "", sentence)
    assert log.read_text() == sentence
    assert start(warm, "--version").communicate(timeout=60)[0].startswith("headdiv, version ")


def read_by_anybody(writer):
    try:
        os.write(writer, b" ")
    except BrokenPipeError:
        return False
    return True


def wait_until(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.02)
    return False


@linux
def test_a_step_ends_with_its_caller(warm, project):
    fifo = project.home / "config" / "waits.yaml"
    os.mkfifo(fifo)  # whoever reads it waits
    step = start(warm, "plan", "--profile", "waits", cwd=project.home)
    writer = os.open(fifo, os.O_WRONLY)  # returns when the step reads
    step.kill()
    step.wait(timeout=60)
    assert wait_until(lambda: not read_by_anybody(writer))


@linux
def test_signals_are_passed_on(warm, project):
    fifo = project.home / "config" / "waits.yaml"
    os.mkfifo(fifo)
    step = start(warm, "plan", "--profile", "waits", cwd=project.home)
    os.open(fifo, os.O_WRONLY)
    for _ in range(12):  # a signal between opening and reading waits for the end of the read: then another one
        step.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            step.wait(timeout=5)
            break
    _, err = step.communicate(timeout=5)
    assert (step.returncode, err.lstrip("\n")) == (130, "headdiv: interrupted\n")


def test_without_a_warm_process_a_step_says_so_and_runs(tmp_path):
    step = start({SOCKET: str(tmp_path / "none")}, "--version")
    out, err = step.communicate(timeout=60)
    assert (step.returncode, "imports for itself" in err) == (0, True)
    assert "version" in out


SNAKEMAKE = """\
Provided cores: 2
Job stats:
job              count
-------------  -------
draw_deacon          1
reproduce-all        1
run                  4
total                6

Finished jobid: 3 (Rule: run)
1 of 6 steps (17%) done
Error in rule run:
    jobid: 5
    log: logs/a.log (check log file(s) for error details)
Finished jobid: 4 (Rule: draw_deacon)
"""


def test_what_is_said_of_snakemake_is_a_forecast_and_the_logs_of_what_failed():
    said, logged = [], []
    failed = reproduction._follow(SNAKEMAKE.splitlines(keepends=True), logged.append, True, said.append)
    assert failed == [("run", "logs/a.log")]
    assert "".join(logged) == SNAKEMAKE
    assert [line.split(":")[0] for line in said] == ["5 steps on 2 cores"]
    assert "logs/a.log" in reproduction._why(failed, reproduction.Path("snakemake.log"))


def test_the_time_left_is_forecast_then_measured(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(reproduction.time, "monotonic", lambda: now[0])
    steps = reproduction.Steps({"run": 4}, cores=2, known=False)
    assert steps.seconds_left() is None
    assert reproduction.Steps({}, cores=2, known=False).seconds_left() is None  # nothing is left to make
    now[0] = 30.0
    steps.finish("run")
    assert steps.seconds_left() == pytest.approx(90.0)
    known = reproduction.Steps({"run": 4}, cores=2, known=True)
    assert known.seconds_left() == pytest.approx(4 * reproduction.SECONDS["run"] / 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["--config", "profile=quick"]),
        (["--cores", "1", "--config", "gpu=1", "-n"], ["--cores", "1", "-n", "--config", "profile=quick", "gpu=1"]),
        (["--config=gpu=1"], ["--config", "profile=quick", "gpu=1"]),
        (["-Cgpu=1", "-n"], ["-n", "--config", "profile=quick", "gpu=1"]),
    ],
)
def test_the_profile_joins_the_pairs_of_config(project, given, expected):
    assert reproduction._with_profile("quick", given) == expected


def test_a_second_profile_is_refused_and_a_path_is_found_from_any_folder(project, monkeypatch):
    with pytest.raises(ConfigError, match="--config profile=samples: expected the profile as --profile samples"):
        reproduction._with_profile("quick", ["--config", "profile=samples"])
    (project.home / "sub").mkdir()
    monkeypatch.chdir(project.home / "sub")
    assert reproduction._with_profile("own.yaml", []) == ["--config", f"profile={project.home / 'sub' / 'own.yaml'}"]
