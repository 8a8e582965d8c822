"""A warm process: it has imported what the pipeline's steps need, and each step is a fork of it.

Importing takes a step longer than a small training. Where the environment variable `SOCKET` names a warm process,
``python -m headdiv …`` hands it its arguments, folder, environment and open files, and waits for the status; what runs
and what it writes are the same. Without it, as on a cluster, every step imports for itself.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOCKET = "HEADDIV_WARM"  # the path of its socket
SERVE = "serve"  # the first argument of the warm process itself
FILES = (0, 1, 2)  # stdin, stdout, stderr
LOST = 137  # a step that was killed, as the shell says it
# Not pyplot: a kernel chooses where its figures go when that is imported.
IMPORTED = (
    "torch._dynamo",
    "headdiv.companion.command_line",
    "headdiv.companion.experiments.evaluation",
    "headdiv.companion.experiments.running",
    "headdiv.companion.report.draw",
    "headdiv.companion.report.explorer_panels",
    "headdiv.companion.report.run_views",
    "headdiv.companion.report.show",
    "headdiv.companion.report.widgets",
    "headdiv.companion.report.outcomes",
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "matplotlib.backends.backend_agg",
    "papermill",
    "papermill.engines",
    "sacremoses",
    "scipy.stats",
    "torchtext.data",
)


@contextlib.contextmanager
def warm_process(modules: tuple[str, ...] = IMPORTED) -> Iterator[dict[str, str]]:
    """Start a warm process, which ends with the block; yields what the environment of its steps must have.

    Nothing where a process with threads of the system's own cannot be forked (macOS).
    """
    if sys.platform != "linux":
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="headdiv-") as folder:  # for this user alone
        path = f"{folder}/socket"
        command = [sys.executable, "-m", "headdiv", SERVE, path, *modules]
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
            while not Path(path).exists() and process.poll() is None:
                select.select([], [], [], 0.02)
            try:
                yield {SOCKET: path}
            finally:
                process.communicate()  # closes its stdin


def serve(run: Callable[[], Any]) -> None:
    """Listen at the path ``sys.argv[2]``, import the modules after it, fork for each caller; until stdin is closed.

    ``run``: the command line, which a fork runs with its caller's arguments.
    """
    _, _, path, *modules = sys.argv
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(256)  # callers wait while modules are imported
        for name in modules:
            importlib.import_module(name)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the steps here
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            caller, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _step(caller, run)
            caller.close()


def _step(caller: socket.socket, run: Callable[[], Any]) -> None:
    """What a fork does: it becomes the caller's process in all that a command can notice, and ends with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 1
    try:
        os.setpgid(0, 0)
        size, files, *_ = socket.recv_fds(caller, 8, len(FILES))
        content = json.loads(caller.recv(int.from_bytes(size), socket.MSG_WAITALL))
        for mine, given in zip(FILES, files, strict=True):
            os.dup2(given, mine)
            os.close(given)
        # Anew, since what was opened before may believe that it is a file in which one can seek.
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for the whole process)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(content["environment"])
        os.chdir(content["folder"])
        sys.argv = content["arguments"]
        threading.Thread(target=_end_with, args=(caller,), daemon=True).start()
        kernel = sys.argv[1:2] == ["kernel"]
        status = _status((lambda: run_kernel(sys.argv[2:])) if kernel else run)
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            caller.sendall(bytes([status & 255]))
        os._exit(status)


def _end_with(caller: socket.socket) -> None:
    """Wait for the caller's signals, or for its end, which ends the step and the processes that it started."""
    while said := caller.recv(1):
        os.kill(os.getpid(), said[0])
    os.killpg(0, signal.SIGKILL)


def run_kernel(arguments: list[str]) -> None:
    """Be a notebook's kernel, as ``python -m ipykernel_launcher`` is one."""
    import matplotlib
    import pandas
    from ipykernel.kernelapp import IPKernelApp

    # Both look for a kernel when they are imported, which was before this process became one.
    matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
    pandas.set_option("display.max_columns", 20)
    IPKernelApp.launch_instance(argv=arguments)


def _status(command: Callable[[], Any]) -> int:
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def ask() -> int | None:
    """Have the warm process run this process's command; its status, or None where there is no warm process."""
    path = os.environ.get(SOCKET)
    if not path:
        return None
    with socket.socket(socket.AF_UNIX) as warm:
        try:
            warm.connect(path)
        except OSError as error:
            print(f"headdiv: {SOCKET}={path}: {error.strerror}; this step imports for itself", file=sys.stderr)
            return None
        content = {"arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}
        sent = json.dumps(content).encode()
        socket.send_fds(warm, [len(sent).to_bytes(8)], FILES)
        warm.sendall(sent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: warm.sendall(bytes([number])))
        try:
            status = warm.recv(1)
        except ConnectionError:
            status = b""
        return status[0] if status else LOST
