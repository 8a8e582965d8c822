"""The report: a folder of pages that opens from disk, with nothing from a network or a server.

``index.html`` has the outcomes; a page for each paper its tables and figures, ``claims.html`` the ledger, ``runs.html``
every run, and a page for each run its configuration, curve and scores. The folder may be moved or packed.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import jinja2
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
from headdiv.report.formats import NONE, plural
from headdiv.report.outcomes import outcomes
from headdiv.report.provenance_pages import Grid, RunPage, grid_of, run_pages, shown
from headdiv.report.table_data import TableData
from headdiv.report.tables import table_data

SITE = Path(__file__).with_name("site")
ASSETS = ("headdiv.css", "headdiv.js")  # copied as they are; a folder with the first is a report
LEAD = "headtohead_pareto"  # on the first page where the profile draws it
EXPLORER = "explore"  # the notebook of one sentence and one head, executed


def report_folder(profile: str) -> Path:
    """``results/<profile>/report``."""
    return paths.results(profile) / "report"


def write_report(profile: str, folder: Path) -> Path:
    """Write the report of a profile from its stored metrics, figures and companions.

    An experiment without stored runs is named as such; one with runs must have its figures.

    Args:
        profile: name, or path of a YAML file.
        folder: an earlier report there is replaced whole.

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


class _Site:
    """All pages of a profile, which share runs, ledger and figures."""

    def __init__(self, profile: str) -> None:
        self.profile, self.runs = profile, Runs(profile)
        self.pages = {name: [RunPage(profile, run) for run in runs] for name, runs in with_results(profile).items()}
        self.every_page = [page for pages in self.pages.values() for page in pages]
        self.outcomes = {outcome.experiment: outcome for outcome in outcomes(profile)}
        self.lacking = [name for name in self.runs.experiments() if name not in self.pages]
        self.ledger = claims.ledger()
        self.verdicts = claims.summary(self.ledger)
        own = (experiment.partition("/")[0] for experiment in self.runs.experiments())
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
        self.environment.filters |= {"marked": marked, "plural": plural, "slug": slug}
        self.environment.globals |= {
            "profile": self.runs.name,
            "title": self.runs.profile.title,
            "commit": commit(),
            "papers": self.papers,
            "toy": any(outcome.toy for outcome in self.outcomes.values()),
            "verdicts": claims.VERDICTS,
            "run_pages": run_pages,
            "shown": shown,
            "configured": len(self.runs.all()),
        }

    def write(self, folder: Path) -> None:
        """Every page, the assets, and the figures and companions that the pages show."""
        files = [(SITE / name, name) for name in ASSETS]
        files += [(self._file(name), f"figures/{name}.svg") for name in self.figures]
        files += [(path, f"companions/{paper}.html") for paper, path in self.companions.items()]
        for source, name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
        self._page(folder, "index.html", **self._overview())
        for paper in self.papers:
            self._page(folder, f"{paper}.html", "paper.html", **self._paper(paper))
        self._page(folder, "claims.html", rows=self.ledger, kinds=sorted({row.kind for row in self.ledger}))
        self._page(folder, "runs.html", grid=self._grid_of_runs())
        deciding = [page for row in self.ledger for page in run_pages(row)]  # perhaps of another profile
        for page in {page.name: page for page in [*deciding, *self.every_page]}.values():
            own = page.profile == self.profile
            curves = self.figures.get(f"{slug(page.run.experiment)}_curves") if own else None
            self._page(folder, page.name, "run.html", page=page, own=own, curves=curves)

    def _page(self, folder: Path, name: str, template: str | None = None, **values: Any) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        page = self.environment.get_template(template or name)
        path.write_text(page.render(here=name, root="../" * name.count("/"), **values), encoding="utf-8")

    def _file(self, figure: str) -> Path:
        return paths.results(self.profile) / "figures" / f"{figure}.svg"

    def _figures(self) -> dict[str, FigureEntry]:
        """The figures of the experiments that have results, and those drawn on request that there are."""
        figures = figures_of((page.run.experiment, page.run.variant) for page in self.every_page)
        for name in figures:
            if not (path := self._file(name)).is_file():
                raise DataError(
                    f"{path}: no such figure; `headdiv figure {name} {path} --profile {self.profile}` draws it"
                )
        requested = known_figures(on_request=True).items()
        return figures | {
            name: figure for name, figure in requested if figure.experiment in self.pages and self._file(name).is_file()
        }

    def _overview(self) -> dict[str, Any]:
        return {
            "outcomes": list(self.outcomes.values()),
            "grid": self._grid_of_outcomes(),
            "counts": self.verdicts,
            "total": claims.verdict_counts(self.ledger),
            "settings": sum(row.kind == "setting" for row in self.ledger),
            "lead": self.figures.get(LEAD),
            "lacking": self.lacking,
            "explorer": f"companions/{EXPLORER}.html" if EXPLORER in self.companions else None,
            "stored": len(self.every_page),
            "machines": sorted({page.machine for page in self.every_page}),
            "commits": sorted({page.commit for page in self.every_page}),
        }

    def _paper(self, paper: str) -> dict[str, Any]:
        tables = tables_of(name for name in self.pages if name.startswith(f"{paper}/"))
        return {
            "paper": paper,
            "about": load_paper(paper),
            "counts": self.verdicts.get(paper),
            "companion": f"companions/{paper}.html" if paper in self.companions else None,
            "sections": [self._section(table, experiment) for table, experiment in tables.items()],
            "lacking": [name for name in self.lacking if name.startswith(f"{paper}/")],
        }

    def _section(self, table: str, experiment: str) -> dict[str, Any]:
        """A table; with an experiment's results also its outcome, figures and runs."""
        data, pages = table_data(self.profile, table), self.pages[experiment]
        of_results, links = data_table_of(table) is None, []
        if of_results:
            for variant in data.numbers["variant"]:
                links.append([(f"seed {page.run.seed}", page.href) for page in pages if page.run.variant == variant])
        figures = [figure for figure in self.figures.values() if of_results and figure.experiment == experiment]
        return {
            "id": slug(table),
            "table": data,
            "grids": [
                grid_of(f"{data.number}: {caption}", frame, links)
                for caption, frame in zip(_captions(data), data.tables, strict=True)
            ],
            "outcome": self.outcomes[experiment] if of_results else None,
            "figures": figures,
            "runs": pages,
        }

    def _grid_of_outcomes(self) -> Grid:
        columns = ["Experiment", "Score", "Baseline", "Best variant", "Its score", "Difference", "In the paper",
                   "Better than the baseline", "Seeds", "Text"]  # fmt: skip
        rows, links = [], []
        for outcome in self.outcomes.values():
            unit = f" ({outcome.unit})" if outcome.unit else ""
            rows.append([
                outcome.experiment,
                f"{outcome.measure}{unit}{', less is better' if outcome.lower else ''}",
                outcome.shown(outcome.baseline),
                outcome.best.label if outcome.best else NONE,
                outcome.shown(outcome.best),
                outcome.signed(outcome.difference),
                outcome.signed(outcome.papers_difference),
                f"{outcome.better} of {len(outcome.variants)}" if outcome.baseline and outcome.best else NONE,
                str(len(outcome.shared or outcome.seeds)),
                self.pages[outcome.experiment][0].run.data_name,
            ])  # fmt: skip
            paper = outcome.experiment.partition("/")[0]
            links.append([(outcome.table, f"{paper}.html#{slug(outcome.experiment)}")])
        return Grid("The best variant of every experiment and its baseline", columns, rows, links)

    def _grid_of_runs(self) -> Grid:
        columns = ["Run", "Experiment", "Seed", "Hash", "Commit", "Machine", "Training (s)", "Peak memory (MiB)"]
        rows = [
            [page.label, page.run.experiment, str(page.run.seed), page.run.hash, page.commit, page.machine,
             f"{page.run.cost.training_seconds:,.0f}", f"{page.run.cost.peak_memory_mib:,.0f}"]
            for page in self.every_page
        ]  # fmt: skip
        return Grid("All stored runs", columns, rows, [[(page.run.variant, page.href)] for page in self.every_page])


def _captions(table: TableData) -> list[str]:
    if table.captions:
        return table.captions
    beside = (any(name.endswith(", paper") or ", paper (" in name for name in frame.columns) for frame in table.tables)
    return ["ours beside the paper's" if there else "further measurements" for there in beside]


def slug(table: str) -> str:
    """The anchor of a table: ``deacon/qa`` is ``deacon_qa``."""
    return table.replace("/", "_")


def marked(text: str) -> Markup:
    """Text with **bold** and `code` as HTML; everything else is escaped."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text)))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))
