"""What tests change around the code: the project's folder, an interruption, the number of ranks."""

import os
import socket
import subprocess
import sys

from headdiv.training.learner import Learner


def enter(patch, folder):
    """Make ``folder`` the project's."""
    (folder / "Snakefile").touch()
    patch.setenv("HEADDIV_HOME", str(folder))
    patch.setenv("HEADDIV_DEVICE", "cpu")
    patch.delenv("HEADDIV_MIRROR", raising=False)
    return folder


class Power(Exception):
    """It fails."""


def fail_after(patch, steps):
    """The learner's step raises once this many are done; returns their count."""
    done, real = [0], Learner.step

    def step(self, *args):
        if done[0] == steps:
            raise Power
        done[0] += 1
        return real(self, *args)

    patch.setattr(Learner, "step", step)
    return done


def as_rank(patch, rank, world):
    """Be one of several ranks, as far as the shares of the data go."""
    patch.setattr("headdiv.core.distributed.rank", lambda: rank)
    patch.setattr("headdiv.core.distributed.world", lambda: world)


def launch(ranks, *arguments, home):
    """Run Python with these arguments in so many ranks at once; the outputs, after all ended well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu"}
    started = []
    for rank in range(ranks):
        environment = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=environment, text=True, **pipes))
    outputs = [process.communicate(timeout=600)[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks, "\n".join(outputs)
    return outputs
