"""Commands of headdiv in processes of their own, forked from one that has imported everything: they start at once."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROFILE = Path(__file__).with_name("torture.yaml")
PATIENCE = 30.0  # seconds: what takes longer hangs
MEMORY = 8 << 30  # bytes of address space of a command


@dataclass(frozen=True)
class Outcome:
    """What became of a command."""

    status: int  # below 0: the signal that ended it
    out: str
    err: str
    seconds: float
    hung: bool = False

    @property
    def traceback(self) -> bool:
        """Whether a traceback was shown."""
        return "Traceback (most recent call last)" in self.out + self.err

    @property
    def sentences(self) -> list[str]:
        """What headdiv said of an error."""
        return [line for line in self.err.splitlines() if line.startswith("headdiv: ")]

    @property
    def refused(self) -> bool:
        """Whether it ended with one clear sentence, and with an exit status that says so."""
        return self.status in (1, 2) and len(self.sentences) == 1 and not self.traceback and not self.hung


def run(home: Path, *arguments: str, kill: float = PATIENCE, **environment: str) -> Outcome:
    """A command of headdiv in this home; SIGKILL comes after ``kill`` seconds."""
    return forked(lambda: _main(arguments), home, kill, environment)


def _main(arguments: tuple[str, ...]) -> None:
    from headdiv.companion.command_line import main

    sys.argv = ["headdiv", *arguments]
    main()


def forked(action: Callable[[], None], home: Path, kill: float = PATIENCE, environment: dict[str, str] = {}) -> Outcome:  # noqa: B006
    """Call a function in a forked process, in this home."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.monotonic()
        if not (child := os.fork()):
            _be_child(action, home, environment, out.fileno(), err.fileno())
        status = None
        while time.monotonic() - began < kill:
            found, code = os.waitpid(child, os.WNOHANG)
            if found:
                status = os.waitstatus_to_exitcode(code)
                break
            time.sleep(0.005)
        hung = status is None
        if hung:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        seconds = time.monotonic() - began
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
        return Outcome(status, *texts, seconds, hung and kill == PATIENCE)


def _be_child(action: Callable[[], None], home: Path, environment: dict[str, str], out: int, err: int) -> None:
    status = 1
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(home)
        os.environ.update({"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu"} | environment)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        action()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def snakemake(home: Path, *targets: str, kill: float = 600.0) -> Outcome:
    """The pipeline in a process group of its own; SIGKILL for all of it after ``kill`` seconds."""
    command = [sys.executable, "-m", "snakemake", *targets, "--cores", "1", "--nolock", "--config", "profile=pipeline"]
    environment = os.environ | {"HEADDIV_HOME": str(home), "HEADDIV_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(ROOT)
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            cwd=home,
            env=environment,
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=kill)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            time.sleep(1.5)  # a notebook's kernel ends when it sees that nobody is left who started it
        said.seek(0)
        return Outcome(status, "", said.read(), time.monotonic() - began)


def make_home(folder: Path, profile: str | None = None) -> Path:
    """A project's folder with what the pipeline needs and the profile "torture", or another text."""
    folder.mkdir(parents=True)
    for name in ("Snakefile", "environment.yml", "notebooks", "profiles", "config/report"):
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(ROOT / name)
    (folder / "config" / "torture.yaml").write_text(profile or PROFILE.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for all homes, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="headdiv-torture-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def damage(path: Path, how: str, chance: random.Random) -> None:
    """Change a stored file for the worse."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data)) if data else 0
    if how == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "zeros":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    elif how == "cut":
        del data[at:]
    elif how == "braces":
        data = bytearray(b"{}")
    elif how == "empty":
        data.clear()
    path.unlink()
    if how != "delete":
        path.write_bytes(data)


def small_disk(folder: Path, kibibytes: int) -> None:
    """Mount so much space at a folder, for this process and its children alone; again: change how much there is.

    Raises:
        OSError: this system lets nobody but root do so.
    """
    options = f"size={kibibytes}k"
    if os.path.ismount(folder):
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
        return
    libc, user, mounts = ctypes.CDLL(None, use_errno=True), 0x10000000, 0x00020000
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(mounts if uid == 0 else mounts | user):
        raise OSError(ctypes.get_errno(), "no mounts of one's own")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


@dataclass
class Row:
    """A line of the table: what was tried how often, and what did not end well."""

    what: str
    tried: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    tracebacks: int = 0
    hangs: int = 0
    seconds: float = 0.0

    def see(self, outcome: Outcome) -> Outcome:
        """Count what must never be."""
        self.tracebacks += outcome.traceback
        self.hangs += outcome.hung
        return outcome

    def count(self, ended: str, times: int = 1) -> None:
        """So many tries ended well, in this way."""
        self.tried += times
        self.outcomes[ended] = self.outcomes.get(ended, 0) + times

    def fail(self, what: str, outcome: Outcome | None = None, times: int = 1) -> None:
        """So many tries ended badly."""
        self.tried += times
        said = f": status {outcome.status}, {outcome.seconds:.0f} s, {outcome.err.strip()[-400:]}" if outcome else ""
        self.failures.append(what + said)
        print(f"    FAILED {what}{said}", flush=True)


def import_everything(folder: Path) -> None:
    """Import what every command imports, once: the processes are forked from this one."""
    home, listed = make_home(folder / "imports"), folder / "imports.json"

    def learn() -> None:
        from headdiv.companion.command_line import main

        for command in ("train deacon/translation direct-8", "table deacon/translation"):
            sys.argv = ["headdiv", *command.split(), "--profile", "torture"]
            main()
        listed.write_text(json.dumps([name for name in sys.modules if name != "__main__"]))

    outcome = forked(learn, home, 300)
    if not listed.is_file():
        raise SystemExit(f"the first run failed: {outcome.err}")
    for name in json.loads(listed.read_text()):
        with contextlib.suppress(Exception):  # a name that is no module's
            importlib.import_module(name)
