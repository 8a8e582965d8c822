"""All steps of a profile with Snakemake: how long they will take, one line of progress, and a log of the rest."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tqdm import tqdm

from headdiv.companion import paths
from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.warm import warm_process
from headdiv.core.errors import ConfigError, HeaddivError
from headdiv.core.progress import PLAIN

TOY = "quick"  # the profile whose steps take so many seconds of a core:
SECONDS = {"run": 13.0, "draw": 8.0, "companion": 8.0, "report": 45.0}
FINISHED = re.compile(r"Finished jobid: \d+ \(Rule: (\S+)\)")
COUNTED = re.compile(r"(\w[\w-]*)\s+(\d+)")  # a line of Snakemake's table of steps
FAILED = re.compile(r"Error in rule (\S+?):?$")
LOG = re.compile(r"\s+log: (\S+)")
EVERY = 60.0  # seconds between two lines where there is no terminal


class Steps:
    """What is done and left, and how long that takes; weights are those of `SECONDS`.

    Args:
        counts: by rule.
        cores: that work at the same time.
        known: whether `SECONDS` are this profile's; others have no forecast before steps are done.
    """

    def __init__(self, counts: dict[str, int], cores: int, known: bool) -> None:
        self.total = sum(counts.values())
        self.done = 0
        self.cores, self.known = cores, known
        self._weight = sum(_weight(rule) * count for rule, count in counts.items())
        self._weight_done = 0.0
        self._began = time.monotonic()

    def finish(self, rule: str) -> None:
        """One more is done."""
        self.done += 1
        self._weight_done += _weight(rule)

    def seconds_left(self) -> float | None:
        """A forecast, None where there is nothing to make it from."""
        left = self._weight - self._weight_done
        forecast = left / self.cores if self.known else None
        if not self._weight_done:
            return forecast
        elapsed, share = time.monotonic() - self._began, self._weight_done / self._weight
        measured = elapsed * left / self._weight_done
        return measured if forecast is None else share * measured + (1 - share) * forecast


def _weight(rule: str) -> float:
    return SECONDS.get(rule.partition("_")[0], 0.1)


def reproduce(profile: str, arguments: Iterable[str] = (), say: Callable[[str], None] = print) -> Path:
    """Run ``snakemake reproduce-all`` for a profile; returns the path of the report.

    Args:
        profile: name, or path of a YAML file.
        arguments: more of Snakemake's own.
        say: prints a line.

    Raises:
        HeaddivError: a step failed, or Snakemake did; the sentence names the logs.
    """
    home, name = paths.home(), paths.profile_file(profile).stem
    if not (home / "Snakefile").is_file():
        raise HeaddivError(f"{home}: no Snakefile here; `{headdiv_command('init', home)}` writes the workflow")
    log = home / "logs" / name / "snakemake.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "reproduce-all",
        "--nocolor",
        *_with_profile(profile, arguments),
    ]
    say(f"{name}: starting; the log is {_short(log)}")
    with warm_process() as warm:
        environment = os.environ | warm | {PLAIN: "plain"}
        with (
            log.open("w", encoding="utf-8") as file,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home, env=environment
            ) as process,
        ):
            failed = _follow(process.stdout or (), file.write, name == TOY, say)
        if process.returncode:
            raise HeaddivError(_why(failed, log))
        subprocess.run(
            [sys.executable, "-m", "headdiv", "summary", "--brief", "--profile", profile],
            env=os.environ | warm,
            check=False,
        )
    return paths.results(profile) / "report" / "index.html"


def _with_profile(profile: str, arguments: Iterable[str]) -> list[str]:
    """Snakemake's arguments with the profile among the pairs of ``--config``, of which it reads the last one alone.

    Raises:
        ConfigError: the pairs name a profile too.
    """
    file = paths.profile_file(profile)
    own = file.resolve() if file.name == Path(profile).name else profile
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", "-C", nargs="*", action="extend", default=[])
    given, others = parser.parse_known_args(list(arguments))
    for name, _, value in (pair.partition("=") for pair in given.config):
        if name == "profile":
            raise ConfigError(f"--config profile={value}: expected the profile as --profile {value}")
    return [*others, "--config", f"profile={own}", *given.config]


def _why(failed: list[tuple[str, str]], log: Path) -> str:
    if not failed:
        lines = [line.strip() for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
        return f"{lines[-1] if lines else 'Snakemake stopped'} ({_short(log)})"
    named = "\n".join(f"  {rule}: {where}" for rule, where in failed)
    return f"{len(failed)} steps failed; the same command goes on with what is missing. Their logs:\n{named}"


def _follow(
    lines: Iterable[str], write: Callable[[str], object], known: bool, say: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Log what Snakemake prints and show how far it is; returns the rules that failed with their logs."""
    cores, counts, failed, steps, counting = os.cpu_count() or 1, {}, [], None, False
    shown = last = None
    try:
        for line in lines:
            write(line)
            if found := re.match(r"Provided cores: (\d+)", line):
                cores = int(found[1])
            elif line.startswith("Job stats:"):
                counting = steps is None
            elif counting and (found := COUNTED.fullmatch(line.strip())):
                if found[1] == "total":
                    counting = False
                    counts.pop("reproduce-all", None)
                    steps = Steps(counts, cores, known)
                    say(_forecast(steps))
                    shown = _bar(steps.total)
                    last = time.monotonic()
                else:
                    counts[found[1]] = int(found[2])
            elif steps and shown is not None and (found := FINISHED.search(line)) and found[1] != "reproduce-all":
                steps.finish(found[1])
                left = _left(steps)
                shown.set_postfix_str(left, refresh=False)
                shown.update()
                if shown.disable and last is not None and time.monotonic() - last > EVERY:
                    last = time.monotonic()
                    say(f"{steps.done} of {steps.total} steps, {left}")
            elif found := FAILED.search(line):
                failed.append((found[1], ""))
            elif failed and not failed[-1][1] and (found := LOG.match(line)):
                failed[-1] = (failed[-1][0], found[1])
    finally:
        if shown is not None:
            shown.close()
    return failed


def _bar(total: int) -> tqdm:
    return tqdm(
        total=total,
        desc="steps",
        unit="step",
        bar_format="{desc} {n_fmt}/{total_fmt} |{bar}| {elapsed} gone{postfix}",
        disable=not sys.stderr.isatty(),
        leave=False,
        dynamic_ncols=True,
    )


def _forecast(steps: Steps) -> str:
    what = f"{steps.total} steps on {steps.cores} {'core' if steps.cores == 1 else 'cores'}"
    left = steps.seconds_left()
    return f"{what}: about {_minutes(left)}" if left else what


def _left(steps: Steps) -> str:
    left = steps.seconds_left()
    return "" if left is None else f"about {_minutes(left)} left"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{10 * round(seconds / 10 + 0.5):.0f} s"
    if seconds < 5400:
        return f"{round(seconds / 60):.0f} min"
    return f"{seconds / 3600:.1f} h"


def _short(path: Path) -> str:
    """Relative to the working folder where it lies below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
