"""A fuzzer: headdiv answers whatever it is given with a result, one clear sentence, or a documented refusal.

    python tests/torture/fuzz.py [--kind profiles|data|commands|stored|library]... [--cases 2000] [--seed 1] [--only N]

The cases are plain data that hypothesis draws: the same ones for a seed. Each runs in a process and a project of its
own, for 10 seconds of a core at most. Cases that once ended otherwise are in fuzz.yaml and are tried first.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]  # where it is run from is its user's matter

from mutations import Kind  # noqa: E402
from processes import Outcome, forked, scratch  # noqa: E402

KNOWN = Path(__file__).with_name("fuzz.yaml")
SECONDS = 10  # of a core, for a case
CASES = 2000  # of each kind
RESULT, SENTENCE, REFUSAL = "result", "one sentence", "documented refusal"
REFUSALS = (  # what is no mistake, and what the documentation says is not done
    "the fuzzer starts no other process",
    "the fuzzer trains nothing",
    "not trained yet",
    "is not installed",
    "no stored results",
    "not enough memory",
    "cannot be masked",
    "cannot be edited",
    "makes it anew",
    "trains it again",
    "the model itself: ",
)


@dataclass
class Count:
    """A line of the table."""

    name: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def drawn(cases: SearchStrategy[Any], count: int, seed: int) -> list[Any]:
    """So many cases, no two alike, always the same ones for a seed."""
    found: dict[str, Any] = {}

    @seeded(seed)
    @settings(
        max_examples=3 * count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(cases)
    def collect(case: Any) -> None:
        found.setdefault(repr(case), case)

    collect()
    return list(found.values())[:count]


def known(name: str) -> list[Any]:
    """The cases of a kind that once ended badly."""
    return (yaml.safe_load(KNOWN.read_text(encoding="utf-8")) or {}).get(name, [])


def ended(outcome: Outcome) -> str | None:
    """Which of the three it is; None: none of them."""
    if outcome.traceback or outcome.status not in (0, 1, 2):
        return None
    if outcome.status == 0:
        return RESULT
    said = outcome.sentences
    if len(said) != 1 or not outcome.refused or "which was not expected" in said[0] or not clear(said[0]):
        return None
    return REFUSAL if any(words in said[0] for words in REFUSALS) else SENTENCE


def clear(sentence: str) -> bool:
    """Whether a sentence can be read: of some length, and without control characters."""
    return 15 < len(sentence) < 3000 and not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", sentence)


def limited(action: Callable[[], None]) -> None:
    """Call it with a limit on a core's time."""
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, used + SECONDS))
    action()


def why(outcome: Outcome) -> str:
    """What went wrong, in a line or two."""
    if outcome.hung or outcome.status == -signal.SIGKILL or outcome.status == -signal.SIGXCPU:
        return f"took more than {SECONDS} s of a core"
    where = [line.strip() for line in outcome.err.splitlines() if line.strip().startswith("File ")][-1:]
    return " | ".join([f"status {outcome.status}", *where, *outcome.err.strip().splitlines()[-1:]])[:700]


class Fuzzer:
    """Runs cases, each in a copy of its kind's template."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def count(self, kind: Kind, cases: list[Any], first: int = 0) -> Count:
        """Run cases of a kind."""
        row, began = Count(kind.name), time.monotonic()
        template, home = self.folder / kind.template.__name__, self.folder / f"{kind.name}-case"
        if not template.exists():
            kind.template(template)
        before = None
        for number, case in enumerate(cases, first):
            if before is None or listed(home) != before:
                shutil.rmtree(home, ignore_errors=True)
                shutil.copytree(template, home, symlinks=True)
                before = listed(home)
            outcome = forked(lambda case=case: limited(lambda: kind.run(home, case)), home)
            row.cases += 1
            if (how := ended(outcome)) is not None:
                row.outcomes[how] += 1
            else:
                row.failures.append(f"{kind.name} {number}: {shown(case)}\n        {why(outcome)}")
                print(f"    FAILED {row.failures[-1]}", flush=True)
        row.seconds = time.monotonic() - began
        return row


def shown_in_full(kind: Kind, case: Any, home: Path) -> str:
    """All that a case says."""
    kind.template(home)
    outcome = forked(lambda: limited(lambda: kind.run(home, case)), home)
    return f"{case!r}\n{outcome.out}\n{outcome.err}\nstatus {outcome.status}, {outcome.seconds:.1f} s"


def shown(case: Any) -> str:
    """A case in a line."""
    text = repr(case)
    return text if len(text) < 600 else f"{text[:600]}…"


def listed(folder: Path) -> list[tuple[str, int, int]]:
    """What changes when something in a folder does."""
    found = []
    for path in folder.rglob("*"):
        status = path.lstat()
        found.append((str(path), status.st_size, status.st_mtime_ns))
    return sorted(found)


def table(rows: list[Count]) -> str:
    """The figures."""
    outcomes = (RESULT, SENTENCE, REFUSAL)
    lines = [f"| kind | cases | {' | '.join(outcomes)} | otherwise | seconds |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        counts = " | ".join(f"{row.outcomes[name]:,}" for name in outcomes)
        lines.append(f"| {row.name} | {row.cases:,} | {counts} | {len(row.failures)} | {row.seconds:.0f} |")
    return "\n".join(lines)


def kinds() -> dict[str, Kind]:
    """All of them by name."""
    from fuzz_commands import COMMANDS, STORED
    from fuzz_files import DATA, PROFILES
    from fuzz_library import LIBRARY

    return {kind.name: kind for kind in (PROFILES, DATA, COMMANDS, STORED, LIBRARY)}


def attempt(torture: Any, seed: int) -> None:
    """A row of the torture's table for each kind; a hundredth of the cases in a slice."""
    every = kinds()
    import_everything()
    for kind in every.values():
        cases = [*known(kind.name), *drawn(kind.cases, CASES if torture.share == 1 else CASES // 100, seed)]

        def part(row: Any, kind: Kind = kind, cases: list[Any] = cases) -> None:
            found = Fuzzer(torture.folder).count(kind, cases)
            for how, times in found.outcomes.items():
                row.count(how, times)
            for failure in found.failures:
                row.fail(failure)

        torture.attempt(f"fuzzed: {kind.name}", part)


def import_everything() -> None:
    """All of headdiv and what it imports late: the processes are forked from this one."""
    import headdiv

    for module in pkgutil.walk_packages(headdiv.__path__, "headdiv."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("pandas", "scipy.stats", "transformers", "matplotlib.backends.backend_svg", "tabulate", "nbformat"):
        importlib.import_module(name)
    for kind in ("bert", "gpt2", "t5"):
        headdiv.pretrained.small_model(kind)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = kinds()
    parser.add_argument("--kind", action="append", choices=list(every))
    parser.add_argument("--cases", type=int, default=CASES, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the case with this number alone, and all that it prints")
    chosen = parser.parse_args()
    import_everything()
    rows = []
    with scratch() as folder:
        fuzzer = Fuzzer(folder)
        for name in chosen.kind or list(every):
            kind = every[name]
            cases = [*known(name), *drawn(kind.cases, chosen.cases, chosen.seed)]
            if chosen.only is not None:
                print(shown_in_full(kind, cases[chosen.only], folder / name))
                continue
            rows.append(fuzzer.count(kind, cases))
    print(f"\n{table(rows)}\n\nseed {chosen.seed}")
    sys.exit(1 if any(row.failures for row in rows) else 0)


if __name__ == "__main__":
    main()
