"""The page of a run: what it was made with and its scores as tables; its curves, heads and outputs as data.

Sphinx makes one page for all runs, `SHELL`, with a mark for each part of a run: a page costs milliseconds,
and the site's search does not drown in them. The data is a script, ``runs/<name>.js``, since a page that is opened from
disk can load scripts but no JSON. ``headdiv.js`` draws it: on the run's own page, and of two runs side by side on the
page that compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from headdiv.companion import paths
from headdiv.companion.commands import run_command
from headdiv.companion.experiments.papers import task_of
from headdiv.companion.experiments.run_result import RunResult, metrics_path
from headdiv.companion.experiments.stored_outputs import read_outputs
from headdiv.companion.report.formats import NONE, shortened, significant, with_unit
from headdiv.companion.report.groups import place_name, score_label
from headdiv.companion.report.measures import PAIRS
from headdiv.companion.report.scale import machine
from headdiv.companion.report.site.markup import html, link, plain_rows
from headdiv.companion.tasks import TASKS

EXAMPLES = 5  # outputs that a page shows
SHELL = "runs/shell"
_PLACE = re.compile("headdiv-run-([a-z]+)")  # of a run's part in the shell


@dataclass(frozen=True)
class RunPage:
    """A run of a profile, and its page.

    Attributes:
        profile: name, or path of a YAML file, as it was given.
    """

    profile: str
    run: RunResult

    @property
    def profile_name(self) -> str:
        """The profile's name, which is that of its folder of results."""
        return paths.profile_file(self.profile).stem

    @property
    def name(self) -> str:
        """Of the page and of its data, without folder and ending."""
        run = self.run
        return f"{self.profile_name}_{run.experiment.replace('/', '_')}_{run.variant}_seed{run.seed}"

    @property
    def address(self) -> str:
        """Of the page, from the site's folder."""
        return f"runs/{quote(self.name)}.html"

    @property
    def label(self) -> str:
        """The variant, as the paper's table names it, and the seed."""
        return f"{task_of(self.run.experiment).label(self.run.variant)}, seed {self.run.seed}"

    @property
    def commit(self) -> str:
        """The commit that the run was made at."""
        return self.run.provenance.commit or "outside git"

    @property
    def main_score(self) -> tuple[str, float | None]:
        """The task's main score: its label and its value."""
        name = TASKS[self.run.kind].main_score.name
        return score_label(self.run, name), self.run.value(name)

    def facts(self) -> dict[str, str]:
        """What the run was made with."""
        run, made = self.run, self.run.provenance
        path = metrics_path(self.profile, run.experiment, run.variant, run.seed)
        return {
            "Run": run.hash,
            "Profile": self.profile_name,
            "Seed": str(run.seed),
            "Commit": self.commit,
            "Scored at commit": made.evaluated_at_commit or self.commit,
            "Machine": machine(run),
            "Processor": ", ".join(filter(None, (made.cpu, made.instruction_set))) or NONE,
            "System": made.system or NONE,
            "Python": made.python or NONE,
            "Packages": ", ".join(f"{name} {version}" for name, version in made.packages.items()),
            "Parameters": f"{run.parameters:,}",
            "Training": f"{run.cost.training_seconds:,.1f} s",
            "Peak memory": f"{run.cost.peak_memory_mib:,.0f} MiB",
            "Stored in": str(path.relative_to(paths.home())),
            "Command": run_command("train", run.experiment, run.variant, run.seed, self.profile),
        }

    def scores(self) -> Markup:
        """Every score with unit and definition, as a table."""
        rows = [
            [score_label(self.run, name), significant(score.value), score.unit or NONE, score.signature]
            for name, score in self.run.scores.items()
        ]
        return plain_rows(["Score", "Value", "Unit", "Definition"], rows)

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every setting, defaults included, by its dotted name."""
        return dict(_flat({name: section for name, section in self.run.config.sections().items() if section}))

    @cached_property
    def examples(self) -> tuple[list[str], list[list[str]]]:
        """The outputs for the first examples of the test set: names of the columns, and rows."""
        return ["output"], [[shortened(text)] for text in self._outputs()]

    @staticmethod
    def pairs(values: dict[str, str]) -> Markup:
        """Names and values as a table."""
        return plain_rows(["Name", "Value"], values.items())

    def _outputs(self) -> list[str]:
        path = metrics_path(self.profile, self.run.experiment, self.run.variant, self.run.seed)
        found = read_outputs(path, self.profile).test
        texts = list(found.values()) if isinstance(found, dict) else found
        return [text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in texts[:EXAMPLES]]

    def script(self) -> str:
        """The run's data, as a script that hands it to ``headdiv.js``."""
        data = {
            "label": self.label,
            "experiment": self.run.experiment,
            "settings": self.settings,
            "scores": {
                with_unit(score_label(self.run, name), score.unit): significant(score.value)
                for name, score in self.run.scores.items()
            },
            "curves": {score_label(self.run, name): values for name, values in self._curves.items()},
            "examples": dict(zip(("columns", "data"), self.examples, strict=True)),
            "heads": self._heads(),
        }
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
        return f"headdivRun({json.dumps(self.name)}, {text});\n"

    def curves(self) -> Markup:
        """Every number by epoch, as a table for readers without scripts."""
        rows = [
            [point.epoch, *(significant(values[at]) for values in self._curves.values())]
            for at, point in enumerate(self.run.curve)
        ]
        return plain_rows(["Epoch", *(score_label(self.run, name) for name in self._curves)], rows)

    @cached_property
    def _curves(self) -> dict[str, list[Any]]:
        """Every number's values by epoch; None where an epoch has none."""
        points = [point.numbers() for point in self.run.curve]
        names = dict.fromkeys(name for point in points for name in point if name not in ("epoch", "steps"))
        return {name: [point.get(name) for point in points] for name in names}

    def parts(self, own: bool, outdated: str | None) -> dict[str, Markup]:
        """Each part of the page by its name in the shell, as HTML.

        Args:
            own: whether the run is of the profile that the site is about.
            outdated: how its settings differ from the profile's, in a sentence; None where they do not.
        """
        run, warnings = self.run, []
        if own:
            paper = link(f"../papers/{run.paper}.html", run.experiment)
            where = Markup("Profile {}, {}; {}").format(
                self.profile_name, paper, link(f"../compare.html?{quote(self.name)}", "beside another run")
            )
        else:
            where = Markup("{}, a run of the profile {} that decides {}").format(
                run.experiment, self.profile_name, link("../claims.html", "claims")
            )
        warnings += [("This run has not learnt:", failure) for failure in run.failures()]
        warnings += [("No longer with the profile's settings:", outdated)] if outdated else []
        said = Markup("").join(Markup("<p><strong>{}</strong> {}.</p>").format(*one) for one in warnings)
        data = Markup('<div id="run-data" data-run="{}">{}</div>').format(self.name, self.curves())
        return {
            "title": html(self.label),
            "about": Markup("<p>{}</p>{}").format(where, said),
            "scores": self.scores(),
            "data": data,
            "examples": plain_rows(*self.examples) if self.examples[1] else Markup("<p>None are stored.</p>"),
            "origin": self.pairs(self.facts()),
            "settings": self.pairs(self.settings),
            "corpus": self.pairs(dict(_flat(run.data.model_dump(exclude_unset=True)))),
        }

    def _heads(self) -> dict[str, Any]:
        """Maps to draw as panels, by what they show: similarity by module."""
        maps = {}
        measures = self.run.heads.measures
        for key, (label, low) in PAIRS.items():
            panels = {place_name(place): _rounded(found[key]) for place, found in measures.items() if key in found}
            if panels:
                maps[label] = {"low": low, "high": 1, "panels": panels}
        return maps


def write_run_pages(built: Path, pages: Iterator[tuple[RunPage, dict[str, Markup]]]) -> None:
    """A page for each run beside the shell that Sphinx has made, which is removed, and its data as a script.

    Args:
        built: the site's folder.
        pages: each page with its parts.
    """
    scripts = built / "_static" / "runs"
    scripts.mkdir(parents=True, exist_ok=True)
    shell = built / f"{SHELL}.html"
    pieces = _PLACE.split(shell.read_text(encoding="utf-8"))  # text, and at every odd position the name of a part
    shell.unlink()
    for page, parts in pages:
        filled = [parts[piece] if odd % 2 else piece for odd, piece in enumerate(pieces)]
        (built / "runs" / f"{page.name}.html").write_text("".join(filled), encoding="utf-8")
        (scripts / f"{page.name}.js").write_text(page.script(), encoding="utf-8")


def _rounded(matrix: list[list[float | None]]) -> list[list[float | None]]:
    return [[None if value is None else round(value, 3) for value in row] for row in matrix]


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Keys joined by dots, with values as JSON; a list is a value."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{at}.{key}" if at else str(key))
    else:
        yield at, json.dumps(value, ensure_ascii=False)
