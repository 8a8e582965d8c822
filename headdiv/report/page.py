"""The report: a folder of pages that opens from disk, with nothing from a network or a server.

``index.html`` says what came out; a page a paper has its tables and figures, ``claims.html`` the ledger, ``runs.html``
every run, and a page a run what its numbers were made with. The folder is whole in itself and may be moved or packed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from headdiv.core import paths
from headdiv.core.errors import DataError
from headdiv.core.files import replacing
from headdiv.core.provenance import commit
from headdiv.experiments.catalogue import FigureEntry, figures_of, known_figures, tables_of
from headdiv.experiments.claims import ledger as claims
from headdiv.experiments.claims.files import papers_with_claims
from headdiv.experiments.papers import data_table_of, load_paper
from headdiv.experiments.profiles import Runs
from headdiv.experiments.results import with_results
from headdiv.report.findings import Finding, findings
from headdiv.report.formats import NONE, plural
from headdiv.report.ledger import run_pages, shown
from headdiv.report.provenance_pages import RunPage
from headdiv.report.reading import TableData
from headdiv.report.tables import reading

SITE = Path(__file__).with_name("site")
ASSETS = ("headdiv.css", "headdiv.js")  # copied as they are; the first marks a folder as a report
LEAD = "headtohead_pareto"  # stands on the first page where the profile draws it
EXPLORER = "explore"  # the notebook of one sentence and one head, executed
SIZE = re.compile(r'<svg\b[^>]*?\b(width|height)="([\d.]+)pt"[^>]*?\b(width|height)="([\d.]+)pt"')


def report_folder(profile: str) -> Path:
    """``results/<profile>/report``."""
    return paths.results(profile) / "report"


def write_report(profile: str, folder: Path) -> Path:
    """Put the report together from the metrics, tables, figures and companions that are there.

    An experiment without stored runs is named as such; one with runs must have its figures.

    Args:
        profile: name, or path of a YAML file.
        folder: where to; an earlier report there is replaced whole.

    Returns:
        Its first page.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored, a figure is missing, or ``folder`` holds something that is no report.
    """
    if folder.exists() and not _may_be_replaced(folder):
        raise DataError(f"{folder}: holds something that is no report; expected an empty folder, a report, or none")
    site = _Site(profile)
    with replacing(folder) as temporary:
        site.write(temporary)
    return folder / "index.html"


def _may_be_replaced(folder: Path) -> bool:
    return folder.is_dir() and ((folder / ASSETS[0]).is_file() or not any(folder.iterdir()))


@dataclass(frozen=True)
class Grid:
    """A table of text: the first cell of a row is its name.

    Attributes:
        links: by row, what stands under its name: (text, address).
    """

    caption: str
    columns: list[str]
    rows: list[list[str]]
    links: list[list[tuple[str, str]]] = field(default_factory=list)
    numeric: bool = True  # all columns but the first are aligned right


class _Site:
    """All pages of a profile; a class because they share runs, ledger and figures."""

    def __init__(self, profile: str) -> None:
        self.profile, self.runs = profile, Runs(profile)
        self.experiments = with_results(profile)
        self.findings = {finding.experiment: finding for finding in findings(profile)}
        self.pages = {
            experiment: [RunPage(profile, run) for run in told] for experiment, told in self.experiments.items()
        }
        self.ledger = claims.ledger()
        self.verdicts = claims.summary(self.ledger)
        own = dict.fromkeys(experiment.partition("/")[0] for experiment in self.runs.experiments())
        self.papers = list(dict.fromkeys([*own, *papers_with_claims()]))
        self.figures = self._figures()
        self.companions = {
            paper: path
            for paper in [*self.papers, EXPLORER]
            if (path := paths.results(profile) / "companions" / f"{paper}.html").is_file()
        }
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(SITE),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters |= {"marked": marked, "plural": plural}
        self.environment.globals |= {
            "profile": self.runs.name,
            "title": self.runs.profile.title,
            "commit": commit(),
            "papers": self.papers,
            "toy": any(finding.toy for finding in self.findings.values()),
            "verdicts": claims.VERDICTS,
            "run_pages": run_pages,
            "shown": shown,
            "slug": slug,
        }

    def write(self, folder: Path) -> None:
        """Every page, what they look like, and the figures and companions that they show."""
        folder.mkdir()
        for name in ASSETS:
            shutil.copy(SITE / name, folder / name)
        for name, path in self.figures.items():
            _copy(path, folder / "figures" / f"{name}.svg")
        for paper, path in self.companions.items():
            _copy(path, folder / "companions" / f"{paper}.html")
        self._page(folder, "index.html", **self._overview())
        for paper in self.papers:
            self._page(folder, f"{paper}.html", "paper.html", **self._paper(paper))
        self._page(folder, "claims.html", rows=self.ledger, kinds=sorted({row.kind for row in self.ledger}))
        self._page(folder, "runs.html", grid=self._grid_of_runs(), configured=len(self.runs.all()))
        for page in self._every_run():
            self._page(folder, page.name, "run.html", page=page, own=page.profile == self.profile)

    def _page(self, folder: Path, name: str, template: str | None = None, **told: Any) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        page = self.environment.get_template(template or name)
        path.write_text(page.render(here=name, root="../" * name.count("/"), **told), encoding="utf-8")

    def _every_run(self) -> list[RunPage]:
        """The profile's runs, and those of other profiles that decided a claim."""
        deciding = [page for row in self.ledger for page in run_pages(row)]
        every = [page for pages in self.pages.values() for page in pages] + deciding
        return list({page.name: page for page in reversed(every)}.values())

    # ---- figures

    def _figures(self) -> dict[str, Path]:
        """The drawings of the experiments that have results."""
        folder = paths.results(self.profile) / "figures"
        found = {}
        for name in self._drawings():
            path = folder / f"{name}.svg"
            if not path.is_file():
                raise DataError(
                    f"{path}: no such figure; `headdiv figure {name} {path} --profile {self.profile}` draws it"
                )
            found[name] = path
        return found

    def _drawings(self) -> dict[str, FigureEntry]:
        runs = [(experiment, run["variant"]) for experiment, told in self.experiments.items() for run in told]
        own = figures_of(runs)
        folder = paths.results(self.profile) / "figures"
        asked = {
            name: entry for name, entry in known_figures(on_request=True).items() if (folder / f"{name}.svg").is_file()
        }
        return own | {name: told for name, told in asked.items() if told.experiment in self.experiments}

    def _figure(self, name: str, drawing: FigureEntry) -> dict[str, Any]:
        width, height = size(self.figures[name])
        return {"name": name, "caption": drawing.caption, "width": width, "height": height}

    # ---- pages

    def _overview(self) -> dict[str, Any]:
        drawings = self._drawings()
        return {
            "findings": list(self.findings.values()),
            "grid": self._grid_of_findings(),
            "counts": self.verdicts,
            "total": claims.verdict_counts(self.ledger),
            "settings": sum(row.kind == "setting" for row in self.ledger),
            "lead": self._figure(LEAD, drawings[LEAD]) if LEAD in drawings else None,
            "lacking": [name for name in self.runs.experiments() if name not in self.experiments],
            "explorer": f"companions/{EXPLORER}.html" if EXPLORER in self.companions else None,
            "stored": sum(map(len, self.pages.values())),
            "configured": len(self.runs.all()),
            "machines": sorted({page.machine for pages in self.pages.values() for page in pages}),
            "commits": sorted(
                {
                    page.metrics["provenance"]["commit"] or "outside git"
                    for pages in self.pages.values()
                    for page in pages
                }
            ),
        }

    def _paper(self, paper: str) -> dict[str, Any]:
        tables = tables_of(name for name in self.experiments if name.startswith(f"{paper}/"))
        return {
            "paper": paper,
            "told": load_paper(paper),
            "counts": self.verdicts.get(paper),
            "companion": f"companions/{paper}.html" if paper in self.companions else None,
            "sections": [self._section(table, experiment) for table, experiment in tables.items()],
            "lacking": [
                name
                for name in self.runs.experiments()
                if name.startswith(f"{paper}/") and name not in self.experiments
            ],
        }

    def _section(self, table: str, experiment: str) -> dict[str, Any]:
        """A table; under an experiment's results its outcome, figures and runs as well."""
        read, of_results = reading(self.profile, table), data_table_of(table) is None
        links = self._links(table, read.numbers["variant"]) if of_results else []
        return {
            "id": slug(table),
            "experiment": experiment,
            "reading": read,
            "grids": [
                _grid(f"{read.number}: {caption}", shown, links)
                for caption, shown in zip(_captions(read), read.tables, strict=True)
            ],
            "finding": self.findings[experiment] if of_results else None,
            "figures": [
                self._figure(name, drawing)
                for name, drawing in self._drawings().items()
                if of_results and drawing.experiment == experiment
            ],
            "runs": self.pages[experiment],
        }

    def _links(self, experiment: str, variants: Iterable[str]) -> list[list[tuple[str, str]]]:
        """By row of an experiment's table, which is a variant, the pages of its runs."""
        pages = self.pages[experiment]
        return [
            [(f"seed {page.metrics['seed']}", page.href) for page in pages if page.metrics["variant"] == variant]
            for variant in variants
        ]

    def _grid_of_findings(self) -> Grid:
        columns = ["Experiment", "Score", "Baseline", "Best variant", "Its score", "Difference", "In the paper",
                   "Better than the baseline", "Seeds", "Text"]  # fmt: skip
        rows = [self._finding_row(finding) for finding in self.findings.values()]
        links = [
            [(f"{finding.table}", f"{finding.experiment.partition('/')[0]}.html#{slug(finding.experiment)}")]
            for finding in self.findings.values()
        ]
        return Grid("The best variant of every experiment beside its baseline", columns, rows, links)

    def _finding_row(self, finding: Finding) -> list[str]:
        unit = f" ({finding.unit})" if finding.unit else ""
        return [
            finding.experiment,
            f"{finding.measure}{unit}{', less is better' if finding.lower else ''}",
            finding.shown(finding.baseline),
            finding.best.label if finding.best else NONE,
            finding.shown(finding.best),
            finding.signed(finding.difference),
            finding.signed(finding.papers_difference),
            f"{finding.better} of {len(finding.variants)}" if finding.baseline and finding.best else NONE,
            str(len(finding.shared or finding.seeds)),
            self.experiments[finding.experiment][0]["config"]["data"]["name"],
        ]

    def _grid_of_runs(self) -> Grid:
        pages = [page for pages in self.pages.values() for page in pages]
        columns = ["Run", "Experiment", "Seed", "Hash", "Commit", "Machine", "Training (s)", "Peak memory (MiB)"]
        rows = [
            [
                page.label,
                page.experiment,
                str(page.metrics["seed"]),
                page.metrics["hash"],
                page.metrics["provenance"]["commit"] or "outside git",
                page.machine,
                f"{page.metrics['cost']['training_seconds']:,.0f}",
                f"{page.metrics['cost']['peak_memory_mib']:,.0f}",
            ]
            for page in pages
        ]
        return Grid("All stored runs", columns, rows, [[(page.metrics["variant"], page.href)] for page in pages])


def _captions(read: TableData) -> list[str]:
    if read.captions:
        return read.captions
    beside = (any(name.endswith(", paper") or ", paper (" in name for name in table.columns) for table in read.tables)
    return ["ours beside the paper's" if there else "what was measured beside it" for there in beside]


def _grid(caption: str, table: pd.DataFrame, links: list[list[tuple[str, str]]]) -> Grid:
    return Grid(caption, list(table.columns), [[str(cell) for cell in row] for row in table.to_numpy()], links)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    shutil.copy(source, target)


# ---- text


def slug(table: str) -> str:
    """The anchor of a table: ``deacon/qa`` is ``deacon_qa``."""
    return table.replace("/", "_")


def marked(text: str) -> Markup:
    """Text with its two marks, **bold** and `code`, as HTML; everything else is escaped."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text)))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))


def size(drawing: Path) -> tuple[int, int]:
    """Width and height of a drawing in CSS pixels, of which four are three points.

    Raises:
        DataError: the file does not say.
    """
    found = SIZE.search(drawing.read_text(encoding="utf-8"))
    if found is None:
        raise DataError(f"{drawing}: expected an <svg> with width and height in pt")
    told = dict([found.group(1, 2), found.group(3, 4)])
    return round(float(told["width"]) * 4 / 3), round(float(told["height"]) * 4 / 3)
