"""Kills, damage and a full disk: does headdiv end with the same bits, or with one clear sentence?

    python tests/torture/torture.py [--seed N] [--slice]
        [--part trainings|preparations|pipeline|damages|disk]...

A table of figures is printed; the exit status is 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path[:0] = [str(Path(__file__).parents[part]) for part in (0, 1, 2)]  # where it is run from is its user's matter

from processes import (  # noqa: E402
    PROFILE,
    Outcome,
    Row,
    damage,
    forked,
    import_everything,
    make_home,
    run,
    scratch,
    small_disk,
    snakemake,
)

PARTS = ("trainings", "preparations", "pipeline", "damages", "disk")
TIMES = ("training_days", "inference_ms")  # scores that are no two times the same
RUNS = (
    ("deacon/translation", "direct-8"),
    ("deacon/translation", "rotation"),
    ("deacon/qa", "baseline"),
    ("deacon/lm", "baseline"),
    ("deacon/summarisation", "baseline"),
)
EXPERIMENTS = tuple(dict.fromkeys(experiment for experiment, _ in RUNS))
# What is damaged, by how a home was left: files, and how.
DAMAGES = {
    "interrupted": (
        [f"work/*/checkpoints/step*/{name}" for name in ("model.safetensors", "optimiser.safetensors", "state.json")],
        ("flip", "cut", "zeros", "empty", "delete", "braces"),
    ),
    "finished": (
        [
            *(f"work/*/{name}" for name in ("model.safetensors", "training.json", "texts-*.json", "SHA256SUMS")),
            *(
                f"data/prepared/*/{name}"
                for name in ("train.safetensors", "test.json", "vocabulary.json", "SHA256SUMS")
            ),
            "data/prepared/*/corpus.json",
        ],
        ("flip", "cut", "zeros", "empty", "delete"),
    ),
    "recorded": (
        [f"results/*/*/*/*/*/{name}" for name in ("metrics.json", "outputs.json.xz")],
        ("cut", "zeros", "empty", "braces"),
    ),
}


def train(home: Path, experiment: str, variant: str, **options: Any) -> Outcome:
    """Train, evaluate and record a run."""
    return run(home, "train", experiment, variant, "--profile", "torture", **options)


def result(home: Path, experiment: str, variant: str) -> dict[str, Any]:
    """What must be equal: the model's bytes, the outputs, all measured numbers but times."""
    folder = home / "results" / "torture" / experiment / variant / "seed1"
    metrics = json.loads((folder / "metrics.json").read_text())
    kept = {key: metrics[key] for key in ("hash", "scores", "curve", "heads", "parameters", "data")}
    model = (home / "work" / metrics["hash"] / "model.safetensors").read_bytes()
    kept["scores"] = {name: score for name, score in kept["scores"].items() if name not in TIMES}
    outputs = (folder / "outputs.json.xz").read_bytes()
    return kept | {"model": hashlib.sha256(model).hexdigest(), "outputs": outputs}


def content(folder: Path) -> dict[str, bytes]:
    """Every file's content; lock files left out."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@dataclass
class Torture:
    """All that is tried, in homes below one folder.

    Attributes:
        share: of the full number of tries.
    """

    folder: Path
    chance: random.Random
    share: float
    rows: list[Row] = field(default_factory=list)
    expected: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    durations: dict[tuple[str, str], float] = field(default_factory=dict)

    def reference(self) -> None:
        """Every run without a kill: what the others must be equal to."""
        home = make_home(self.folder / "reference")
        for one in RUNS:
            outcome = run(home, "prepare", one[0], "--profile", "torture", kill=300)
            self.durations[one[0], "prepare"] = max(outcome.seconds, self.durations.get((one[0], "prepare"), 0.0))
            outcome = train(home, *one, kill=300)
            if outcome.status:
                raise SystemExit(f"the undisturbed run failed: {outcome.err}")
            self.durations[one], self.expected[one] = outcome.seconds, result(home, *one)

    def attempt(self, what: str, part: Callable[[Row], None]) -> None:
        """A row of the table."""
        row, began = Row(what), time.monotonic()
        print(f"{what} …", flush=True)
        self.rows.append(row)
        part(row)
        row.seconds = time.monotonic() - began
        print(f"    {row.tried} tried, {len(row.failures)} failed, {row.seconds:.0f} s", flush=True)

    def times(self, full: int) -> int:
        """So many tries in this run."""
        return max(1, round(full * self.share))

    # ---- kills

    def killed_trainings(self, row: Row) -> None:
        """Runs that are killed at random moments, again and again, end as if nothing had happened."""
        home = make_home(self.folder / "trainings")
        shutil.copytree(self.folder / "reference" / "data", home / "data")
        for number, one in enumerate(RUNS[: self.times(len(RUNS))]):
            kills = 0
            while kills < 5:
                outcome = row.see(train(home, *one, kill=self.chance.uniform(0.05, 0.5) * self.durations[one]))
                if outcome.status == -9:
                    kills += 1
                elif outcome.status:
                    row.fail(f"{one} after {kills} kills", outcome)
                    break
                else:  # it was done before the blow: from the beginning
                    shutil.rmtree(home / "work")
            outcome = row.see(train(home, *one, kill=300))
            if outcome.status == 0 and result(home, *one) == self.expected[one]:
                row.count("identical", kills)
            else:
                row.fail(f"{one}, killed {kills} times, is another run ({number})", outcome, kills)
            shutil.rmtree(home / "work", ignore_errors=True)

    def killed_preparations(self, row: Row) -> None:
        """Corpora whose preparation is killed are prepared to the same bytes, and nothing is left of the tries."""
        home, kills = make_home(self.folder / "preparations"), 0
        wanted = self.times(15)
        for number in range(wanted):
            experiment = EXPERIMENTS[number % len(EXPERIMENTS)]
            for _ in range(50):
                moment = self.chance.uniform(0.02, 1.0) * self.durations[experiment, "prepare"]
                outcome = row.see(run(home, "prepare", experiment, "--profile", "torture", kill=moment))
                if outcome.status == -9:
                    kills += 1
                    break
                for prepared in (home / "data" / "prepared").iterdir():
                    shutil.rmtree(prepared) if prepared.is_dir() and not prepared.name.startswith(".") else None
        for experiment in EXPERIMENTS:
            outcome = row.see(run(home, "prepare", experiment, "--profile", "torture", kill=300))
            if outcome.status:
                row.fail(f"preparation of {experiment}", outcome)
        if content(home / "data") == content(self.folder / "reference" / "data"):
            row.count("identical", kills)
        else:
            row.fail("what was prepared is not what it should be, or something was left", times=kills)

    def killed_pipelines(self, row: Row) -> None:
        """The same for the pipeline, whose processes are all killed at once."""
        whole = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))
        experiment = whole["experiments"]["deacon/translation"] | {"variants": ["direct-8"], "define": {}}
        text = yaml.safe_dump(whole | {"experiments": {"deacon/translation": experiment}})
        homes = [make_home(self.folder / name, text) for name in ("pipeline", "killed")]
        for home in homes:
            (home / "config" / "torture.yaml").rename(home / "config" / "pipeline.yaml")
        outcome = row.see(snakemake(homes[0], "tables"))
        if outcome.status:
            row.fail("the undisturbed pipeline", outcome)
            return
        kills = 0
        while kills < self.times(10):
            killed = row.see(snakemake(homes[1], "tables", kill=self.chance.uniform(0.1, 0.6) * outcome.seconds))
            if killed.status == -9:
                kills += 1
            else:
                for name in ("work", "results", "data"):
                    shutil.rmtree(homes[1] / name, ignore_errors=True)
        last = row.see(snakemake(homes[1], "tables"))
        tables = [_table(home) for home in homes] if last.status == 0 else []
        if len(tables) == 2 and tables[0] == tables[1] and not list(homes[1].glob("data/prepared/.*.tmp")):
            row.count("identical", kills)
        else:
            row.fail("the pipeline after its kills", last, kills)

    # ---- damage

    def damages(self, row: Row) -> None:
        """A damaged file is healed, to the same result, or named."""
        one = RUNS[0]
        homes = {kind: self.folder / kind for kind in DAMAGES}
        make_home(homes["interrupted"])
        shutil.copytree(self.folder / "reference" / "data", homes["interrupted"] / "data")
        while len(list(homes["interrupted"].glob("work/*/checkpoints/step*"))) < 2:
            train(homes["interrupted"], *one, kill=self.chance.uniform(0.1, 0.7) * self.durations[one])
            if list(homes["interrupted"].glob("work/*/training.json")):  # done already: checkpoints are not read again
                shutil.rmtree(homes["interrupted"] / "work")
        for kind in ("finished", "recorded"):
            make_home(homes[kind])
            shutil.copytree(homes["interrupted"] / "data", homes[kind] / "data")
            train(homes[kind], *one, kill=300)
        cases = [
            (kind, pattern, how) for kind, (patterns, hows) in DAMAGES.items() for pattern in patterns for how in hows
        ]
        for kind, pattern, how in self.chance.sample(cases, self.times(30)):
            home = self.folder / "damaged"
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(homes[kind], home, symlinks=True)
            path = max(home.glob(pattern), key=_step)
            if pattern.startswith("data/"):
                path = next(p for p in home.glob(pattern) if "references" in p.name or _is_of(home, p, one[0]))
            damage(path, how, self.chance)
            name = f"{how} {path.relative_to(home)}"
            if kind == "recorded":
                outcome = row.see(run(home, "check", "--profile", "torture"))
                healed = outcome.refused and "makes it anew" in outcome.err and train(home, *one, kill=300).status == 0
                row.count("named") if healed else row.fail(name, outcome)
                continue
            shutil.rmtree(home / "results", ignore_errors=True)
            outcome = row.see(train(home, *one, kill=300))
            if outcome.status == 0 and result(home, *one) == self.expected[one]:
                said = any(word in outcome.err for word in ("again", "goes on from", "begins anew"))
                whole = how == "delete" or path.name in ("SHA256SUMS", "corpus.json")
                row.count("healed") if said or whole else row.fail(f"{name}: healed without a word", outcome)
            elif outcome.refused and path.name in outcome.err:
                row.count("named")
            else:
                row.fail(name, outcome)

    # ---- a full disk

    def full_disk(self, row: Row) -> None:
        """No space left, wherever: one sentence; with space again the command goes on to the same result."""
        one = RUNS[0]
        for number, (name, kibibytes) in enumerate(
            [("work", 8), ("work", 300), ("data", 8), ("data", 40), ("results", 4), ("results", 16)][: self.times(6)]
        ):
            home, report = make_home(self.folder / f"disk{number}"), self.folder / f"disk{number}.json"

            def attempt(name: str = name, kibibytes: int = kibibytes, home: Path = home, report: Path = report) -> None:
                small_disk(home / name, kibibytes)
                first = train(home, *one, kill=120)
                small_disk(home / name, 100_000)
                second = train(home, *one, kill=120)
                same = second.status == 0 and result(home, *one) == self.expected[one]
                report.write_text(json.dumps([vars(first), vars(second), same]))

            outcome = row.see(forked(attempt, home, 300))
            if not report.is_file():
                row.fail(f"{name} of {kibibytes} KiB", outcome)
                continue
            first, second, same = json.loads(report.read_text())
            first, second = row.see(Outcome(**first)), row.see(Outcome(**second))
            named = first.refused and "No space left on device" in first.err
            if named and same:
                row.count("named, then identical")
            else:
                row.fail(f"{name} of {kibibytes} KiB", first if not named else second)

    def table(self) -> str:
        """The figures."""
        lines = [
            "| tried | number | ended well | tracebacks | hangs over 30 s | seconds |",
            "|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            ended = ", ".join(f"{count} {how}" for how, count in row.outcomes.items()) or "none"
            well = f"{sum(row.outcomes.values())} of {row.tried}: {ended}"
            lines.append(f"| {row.what} | {row.tried} | {well} | {row.tracebacks} | {row.hangs} | {row.seconds:.0f} |")
        return "\n".join(lines)


def _table(home: Path) -> list[str]:
    """The pipeline's table without times."""
    path = home / "results" / "pipeline" / "tables" / "deacon_translation.csv"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    kept = [i for i, name in enumerate(rows[0]) if "second" not in name]
    return [",".join(row[i] for i in kept) for row in rows]


def _step(path: Path) -> int:
    number = path.parent.name.removeprefix("step")
    return int(number) if number.isdecimal() else 0


def _is_of(home: Path, path: Path, experiment: str) -> bool:
    """Whether a file is of the experiment's prepared corpus: translation alone has two vocabularies."""
    vocabulary = path.with_name("vocabulary.json")
    return vocabulary.is_file() and '"target"' in vocabulary.read_text()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the random moments and places")
    parser.add_argument("--slice", action="store_true", help="a tenth of it")
    parser.add_argument("--part", action="append", choices=PARTS)
    chosen = parser.parse_args()
    began = time.monotonic()
    with scratch() as folder:
        import_everything(folder)
        torture = Torture(folder, random.Random(chosen.seed), 0.1 if chosen.slice else 1.0)
        parts = {
            "trainings": ("kills of trainings", torture.killed_trainings),
            "preparations": ("kills of preparations", torture.killed_preparations),
            "pipeline": ("kills of the pipeline", torture.killed_pipelines),
            "damages": ("damaged files", torture.damages),
            "disk": ("full disk", torture.full_disk),
        }
        if chosen.part != ["pipeline"]:
            torture.reference()
        for part in chosen.part or PARTS:
            torture.attempt(*parts[part])
    failures = [failure for row in torture.rows for failure in row.failures]
    print(f"\n{torture.table()}\n\nseed {chosen.seed}, {time.monotonic() - began:.0f} s, {len(failures)} failures")
    wrong = failures or any(row.tracebacks or row.hangs for row in torture.rows)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
