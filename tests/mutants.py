"""Put each small fault of mutants.yaml into a copy of the code: the test file that it names must fail.

`make mutants` runs all, `python tests/mutants.py WORD ...` those whose file or lines have one of these words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SECONDS = 600  # for one test file; a fault that hangs is caught


def is_caught(copy: Path, fault: dict[str, str]) -> bool:
    """Whether the test fails with the fault, in a copy of the code that is as before afterwards.

    Raises:
        SystemExit: the lines are not in the file exactly once.
    """
    path = copy / fault["file"]
    code = path.read_text(encoding="utf-8")
    if code.count(fault["is"]) != 1:
        raise SystemExit(f"{fault['file']}: expected once, found {code.count(fault['is'])} times:\n{fault['is']}")
    path.write_text(code.replace(fault["is"], fault["becomes"]), encoding="utf-8")
    try:
        return not passes(copy, fault["test"])
    finally:
        path.write_text(code, encoding="utf-8")


def passes(copy: Path, test: str) -> bool:
    """Whether a test file passes with the copy's code."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *test.split()]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main(words: list[str]) -> None:
    """Try the faults and say which go unnoticed; exit status 1 where one does."""
    faults = yaml.safe_load((ROOT / "tests" / "mutants.yaml").read_text(encoding="utf-8"))
    faults = [fault for fault in faults if not words or any(word in str(fault) for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("headdiv", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for fault in faults:
            caught = is_caught(copy, fault)
            missed += not caught
            print("caught " if caught else "MISSED ", fault["file"], "|", fault["becomes"].strip(), flush=True)
    raise SystemExit(f"{missed} of {len(faults)} faults go unnoticed" if missed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
