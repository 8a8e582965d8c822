"""The pipeline on a cluster of one host: what is made is what a machine of one's own makes, a killed job included.

Debian's slurm-wlm and munge make the cluster; it listens on 127.0.0.1 alone. They are installed where this runs as root
in a container, which has no systemd to start them.
"""

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import EXPERIMENT, Project
from surroundings import enter

from headdiv.companion.experiments.evaluation import evaluate
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import train

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
CONFIG = """
ClusterName=one
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmdParameters=config_overrides
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_interval=2
KillWait=2
NodeName={node} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=main Nodes={node} Default=YES MaxTime=60 State=UP
"""


def missing_programs():
    """The programs that are not here, after an attempt to install them where that disturbs nobody."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    own_container = os.geteuid() == 0 and shutil.which("apt-get") and not Path("/run/systemd/system").exists()
    if missing and own_container:
        command = ["apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm", "munge"]
        subprocess.run(
            command, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, check=False
        )
        missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    return missing


def free_ports(number):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]


def wait_for(look, seconds=60.0):
    end = time.monotonic() + seconds
    while not (result := look()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    return result


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Runs a command with the cluster's settings."""
    if missing := missing_programs():
        pytest.skip(f"without {', '.join(missing)}: needs Debian's slurm-wlm and munge")
    home, node = tmp_path / "cluster", socket.gethostname().partition(".")[0]
    for folder in (home, home / "state", home / "spool"):
        folder.mkdir(mode=0o700)
    key = home / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    text = CONFIG.format(node=node, home=home, user=getpass.getuser(), ports=free_ports(2))
    (home / "slurm.conf").write_text(text)
    # The plugin's step inside a job drops SLURM_CONF, which a cluster has in /etc/slurm.
    (home / "srun").write_text(f'#!/bin/sh\nSLURM_CONF={home}/slurm.conf exec {shutil.which("srun", path=PATH)} "$@"\n')
    (home / "srun").chmod(0o700)
    monkeypatch.setenv("SLURM_CONF", str(home / "slurm.conf"))
    monkeypatch.setenv("PATH", f"{home}:{PATH}")
    files = [f"--{name}-file={home}/munged.{name}" for name in ("pid", "seed", "log")]
    munged = ["munged", "--foreground", "--force", f"--socket={home}/munge.socket", f"--key-file={key}", *files]

    def run(*command):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    with contextlib.ExitStack() as stack:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            log = stack.enter_context((home / f"{command[0]}.out").open("w"))
            daemon = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=log))
            stack.callback(daemon.terminate)
            if daemon.args is munged:
                wait_for((home / "munge.socket").exists)
        wait_for(lambda: "idle" in run("sinfo", "--noheader"))
        yield run
        run("scancel", "--user", getpass.getuser())


def test_a_killed_job_is_submitted_again_and_all_metrics_are_those_of_one_machine(cluster, tmp_path, monkeypatch):
    home = tmp_path / "home"
    for name in ("notebooks", "profiles"):
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, home / name)
    project = Project(home)
    long = {"epochs": 40, "checkpoint_seconds": 0.2}
    project.write_profile("tiny", train=long, variants=["direct-8"])
    environment = os.environ | {"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu"}
    command = [sys.executable, "-m", "snakemake", "tables", "--workflow-profile", "profiles/slurm"]
    quick = ["--slurm-init-seconds-before-status-checks", "3", "--latency-wait", "5"]
    quick += ["--default-resources", "runtime=10", "mem_mb=2000", "--config", "profile=tiny"]
    log = tmp_path / "snakemake.log"
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("w"))
        begun = subprocess.Popen([*command, *quick], cwd=home, env=environment, stdout=output, stderr=output)
        stack.callback(begun.kill)
        checkpoint = wait_for(lambda: next(home.glob("work/*/checkpoints/*"), None), 300)
        config = json.loads((checkpoint.parents[1] / "config.json").read_text())
        queue = cluster("squeue", "--noheader", "--states=RUNNING", "--format=%i %k").splitlines()
        killed = next(line.split()[0] for line in queue if config["variant"] in line)
        cluster("scancel", "--full", "--signal=KILL", killed)
        assert not (checkpoint.parents[1] / "training.json").is_file()
        status = begun.wait(timeout=400)
    said = log.read_text()
    assert status == 0, said
    assert f"SLURM-job '{killed}' failed" in said
    assert "Trying to restart job" in said
    print(said)  # kept by --capture=no: the log of the cluster
    (tmp_path / "local").mkdir()
    enter(monkeypatch, tmp_path / "local")
    Project(tmp_path / "local").write_profile("tiny", train=long, variants=["direct-8"])
    for run in Runs("tiny").configs():
        local = evaluate(train(run))
        path = home / "results" / "tiny" / EXPERIMENT / run.variant / "seed1" / "metrics.json"
        found = json.loads(path.read_text())
        assert {name: score["value"] for name, score in found["scores"].items()} == {
            name: score["value"] for name, score in local["scores"].items()
        }
        assert [epoch["validation_nll"] for epoch in found["curve"]] == [
            epoch["validation_nll"] for epoch in local["curve"]
        ]
    assert (home / "results" / "tiny" / "tables" / "deacon_translation.md").is_file()
