"""What is fuzzed through the command line: stored files and arguments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click
import yaml
from fuzz_files import CONFIGS, command
from hypothesis import strategies as st
from mutations import SCALARS, Kind, damaged, several
from processes import make_home, run

from headdiv.companion.command_line import cli

# ---- stored files, of a project with finished runs

RUNS = (
    ("deacon/translation", "baseline"),
    ("deacon/translation", "direct-8"),
    ("deacon/qa", "baseline"),
    ("deacon/lm", "baseline"),
)


def finished(home: Path) -> None:
    """A project whose runs are trained, scored and recorded, with a figure and the heads' importance."""
    text = yaml.safe_load(CONFIGS["torture"])
    del text["experiments"]["deacon/summarisation"]
    text["experiments"]["deacon/translation"]["variants"] = ["baseline", "direct-8"]
    make_home(home, yaml.safe_dump(text))
    for each in RUNS:
        outcome = run(home, "train", *each, "--profile", "torture", kill=300)
        if outcome.status:
            raise SystemExit(f"the undisturbed run failed: {outcome.err}")
    run(home, "importance", "deacon/translation", "baseline", "--profile", "torture", "--steps", "2", kill=300)
    (home / "results" / "torture" / "profile.txt").write_text("config/torture.yaml\n")
    shutil.rmtree(home / "data" / "raw", ignore_errors=True)


STORED_COMMANDS = (
    "check",
    "summary",
    "claims",
    "claims --json",
    "table deacon/translation",
    "table deacon/qa",
    "table deacon/lm a.csv",
    "table deacon/translation a.tex",
    "figure deacon_figure6 a.svg",
    "figure deacon_translation_curves a.svg",
    "draw deacon",
    "figure deacon_pruning a.svg",
    "rescore",
    "report",
    "crate out",
    "train deacon/translation direct-8",
    "train deacon/qa baseline",
    "train deacon/lm baseline",
    "importance deacon/translation baseline --steps 1",
    "prepare deacon/translation",
    "plan",
    "export deacon/translation baseline out --to huggingface",
    "tune deacon/translation",
)
WAYS = ("change", "change", "change", "change", "change", "delete", "folder", "loop", "swap", "empty")


def stored_files(home: Path) -> list[Path]:
    """All that is read again, the results first and three times as often."""
    found = {
        name: sorted(path for path in (home / name).rglob("*") if path.is_file() and path.suffix != ".lock")
        for name in ("results", "work", "data")
    }
    return [*found["results"] * 3, *found["work"], *found["data"]]


def run_stored(home: Path, case: dict[str, Any]) -> None:
    """Damage a stored file, and ask for what is read of it."""
    every = stored_files(home)
    named = [path for path in every if path.name == case.get("name")] or every
    path, other = named[case["file"] % len(named)], every[case["other"] % len(every)]
    if case["other_name"]:  # the file of this name of another run
        same = [each for each in every if each.name == path.name and each != path]
        other = same[case["other"] % len(same)] if same else other
    content = path.read_bytes()
    match case["way"]:
        case "change":
            for each in case["changes"]:
                content = damaged(content, each)
        case "swap":
            content = other.read_bytes()
        case "empty":
            content = b""
    path.unlink()
    if case["way"] == "folder":
        path.mkdir()
    elif case["way"] == "loop":
        path.symlink_to(path.name)
    elif case["way"] != "delete":
        path.write_bytes(content)
    command(
        [*case["command"].split(), "--profile", "torture"]
        if not case["command"].startswith("claims")
        else case["command"].split()
    )


STORED = Kind(
    "stored",
    st.fixed_dictionaries(
        {
            "file": st.integers(0, 999),
            "way": st.sampled_from(WAYS),
            "changes": several(),
            "other": st.integers(0, 999),
            "other_name": st.booleans(),
            "command": st.sampled_from(STORED_COMMANDS),
        }
    ),
    run_stored,
    finished,
)


# ---- command lines

GOOD = {
    "experiment": ["deacon/translation", "deacon/qa", "deacon/lm", "deacon/summarisation", "mhr/translation"],
    "variant": ["baseline", "direct-8", "nonlinear-8", "average-3"],
    "profile": ["torture", "torture", "torture", "config/torture.yaml", "quick", "paper"],
    "name": [
        "deacon/translation",
        "deacon/qa",
        "deacon/sources",
        "deacon_figure6",
        "deacon_pruning",
        "multi30k",
        "xsum",
    ],
    "paper": ["deacon", "mhr", "dpp"],
    "paths": ["a.csv", "a.md", "a.tex", "a.svg", "b.png", "a.pdf"],
    "folder": ["out", "work", "results/torture/report", "deep/er/out"],
    "notebook": ["notebooks/explore.ipynb", "notebooks/runs/deacon_qa.ipynb", "Snakefile"],
    "output": ["out.ipynb", "out"],
    "model": ["./model", "gpt2", "a/b", "work"],
    "to": ["ctranslate2", "huggingface"],
    "quantization": ["int8", "float16"],
    "device": ["a100", "h100", "h200"],
    "verdict": ["contradicted", "supported"],
    "parameters": ["{}", '{"profile": "torture"}', '{"x": 1}', '{"import os": 1}', "[1]", '{"seed": 1e999}'],
    "options": ["limit 1", "limit nan", "distance l2", "split training", "x y"],
    "arm": ["baseline"],
    "text": ["a.txt", "Snakefile"],
}
NUMBERS = ["0", "1", "2", "-1", "7", "1e9", "nan", "inf", "0.5", "99999999999999999999", "x", "", "1_0", "٣", "1.0"]
ODD = [str(value) for value in SCALARS if isinstance(value, str) and "\x00" not in value and "\ud800" not in value] + [
    "-",
    "--",
    "--help",
    "-v",
    "--version",
    "a\nb",
    "*",
    "~",
    "$HOME",
    "`ls`",
    "x" * 300,
    "deacon/",
    "/deacon",
    "deacon//qa",
    "deacon/translation/seed1",
    ".yaml",
    "config",
    "results",
    "work",
    "none.yaml",
    "Snakefile",
    "é/è",
    "\udcff",
    "a.jpeg",
    "results/torture",
    "baseline\t",
    "BASELINE",
    "torture.yaml",
    "[bold]x[/bold]",
    "\x1b]0;title\x07",
    "a.svg/b.svg",
]
odd = st.sampled_from(ODD)


def values_of(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Mostly what fits a parameter."""
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
        return st.sampled_from(NUMBERS)
    good = GOOD.get(parameter.name or "")
    return st.one_of(st.sampled_from(good), st.sampled_from(good), odd) if good else odd


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Arguments of headdiv."""
    name = draw(st.sampled_from(sorted(cli.commands)))
    words = [name] if draw(st.integers(0, 30)) else [draw(odd)]
    before = draw(st.sampled_from([[]] * 12 + [["-v"], ["--traceback"], ["--log", "log.txt"], ["--log", "work"]]))
    for parameter in cli.commands[name].params:
        values = values_of(parameter)
        if isinstance(parameter, click.Argument):
            count = draw(st.integers(0, 3)) if parameter.nargs == -1 else 1
            if draw(st.integers(0, 15)):
                words += [draw(values) for _ in range(count)]
        elif parameter.name == "profile":
            words += ["--profile", draw(values)] if draw(st.integers(0, 9)) else []
        elif getattr(parameter, "required", False) or not draw(st.integers(0, 3)):
            words.append(draw(st.sampled_from(parameter.opts)))
            if not parameter.is_flag:  # type: ignore[attr-defined]
                words += draw(values).split() if parameter.name == "options" else [draw(values)]
    words += draw(st.sampled_from([[]] * 9)) if draw(st.integers(0, 9)) else draw(st.lists(odd, max_size=2))
    return [*before, *words]


def run_line(home: Path, case: list[str]) -> None:
    """A command line; an answer with tracebacks is what --traceback asks for."""
    (home / "a.txt").write_text("A dog runs.\nTwo cats sleep.\n")
    command([word for word in case if word != "--traceback"])


COMMANDS = Kind("commands", lines(), run_line, finished)
