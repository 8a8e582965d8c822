"""The pages of a report, as the sources that Sphinx reads: templates filled from stored results.

``index`` says what the runs show; each paper has a page with its tables and figures, and its companion as a page of
its own; ``claims`` is the ledger, ``runs`` lists every run, each run has a page, ``compare`` shows two side by side.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import shutil
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from headdiv.companion import paths
from headdiv.companion.experiments.catalogue import FigureEntry, figures_of, figures_of_paper, tables_of
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.claims.calls import show
from headdiv.companion.experiments.claims.files import papers_with_claims
from headdiv.companion.experiments.claims.records import RELATION
from headdiv.companion.experiments.claims.verdicts import CONFIRMED
from headdiv.companion.experiments.outdated import outdated_among
from headdiv.companion.experiments.papers import BASELINE, load_paper
from headdiv.companion.experiments.pipeline import EXPLORER
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import with_results
from headdiv.companion.report.figures import write_figure
from headdiv.companion.report.formats import NONE, plural, signed, significant
from headdiv.companion.report.outcomes import Outcome, outcomes
from headdiv.companion.report.site.runs import RunPage
from headdiv.companion.report.table_data import MINUS_BASELINE, TableData
from headdiv.companion.report.tables import table_data
from headdiv.core.errors import HeaddivError
from headdiv.core.files import write_text

HERE = Path(__file__).resolve().parent
LEADS = ("headtohead_forest",)  # the figure of the first page: the first of these that is drawn
REPOSITORY = HERE.parents[3]
# Documents of the repository, in the order of the menu; not there where headdiv is installed without its repository.
DOCUMENTS = ("docs/*.md", "CONTRIBUTING.md", "config/README.md", "data/README.md")

OPENS = (claims.CONTRADICTED, claims.REFUTED, CONFIRMED)  # verdicts that the ledger opens on
FOLDED = 160  # characters from which how a claim was computed is folded


class Site:
    """All pages of a profile, which share runs, ledger and figures."""

    def __init__(self, profile: str) -> None:
        self.profile, self.runs = profile, Runs(profile)
        self.title = f"headdiv: {self.runs.profile.title}"
        stored = with_results(profile)
        self.pages = {name: [RunPage(profile, run) for run in runs] for name, runs in stored.items()}
        self.own_pages = [page for pages in self.pages.values() for page in pages]
        self.outdated = outdated_among(profile, [page.run for page in self.own_pages])
        self.own_outcomes = [(self.runs.name, outcome) for outcome in outcomes(profile, stored)]
        self.toy = any(outcome.toy for _, outcome in self.own_outcomes)
        self.lacking = [name for name in self.runs.experiments() if name not in self.pages]
        self.ledger = claims.ledger()
        deciding = {page.name: page for row in self.ledger for page in run_pages(row)}  # perhaps of another profile
        own_pages = {page.name: page for page in self.own_pages}
        self.all_pages = own_pages | deciding | own_pages  # the profile's own first, as it was named
        own = (experiment.partition("/")[0] for experiment in self.runs.experiments())
        self.papers = list(dict.fromkeys([*own, *papers_with_claims()]))
        self.figures = self._figures()
        self.documents = documents()
        self.companions = [name for name in [*self.papers, EXPLORER] if self._companion(name).is_file()]
        self.templates = templates()
        self.templates.globals |= {"site": self}

    def write(self, source: Path) -> str:
        """Every page, and the files that pages show, into a folder for Sphinx: the site's title."""
        plotly = Path(str(distribution("plotly").locate_file("plotly/package_data/plotly.min.js")))
        _copy(plotly, source / "_static" / "plotly.js")
        for name in self.figures:
            if self._figure(name).is_file():
                _copy(self._figure(name), source / f"figures/{name}.svg")
            else:  # results from before there was this figure
                write_figure(name, self.profile, source / f"figures/{name}.svg")
        files = [(self._companion(name), f"companions/{name}.ipynb") for name in self.companions]
        for path, name in [*files, *((path, name) for name, path in self.documents.items())]:
            _copy(path, source / name)
        evidence = self._evidence()
        lead = self._lead(source, *evidence[0]) if evidence else None
        self._page(source, "index", evidence=evidence, lead=lead)
        for paper in self.papers:
            self._page(source, f"papers/{paper}", "paper", **self._paper(paper))
        self._page(source, "claims", terms=self._verdicts(), table=self._ledger_table())
        self._page(source, "runs", table=self._runs_table())
        self._page(
            source,
            "compare",
            labels={
                name: f"{page.profile_name}: {page.run.experiment}, {page.label}"
                for name, page in self.all_pages.items()
            },
            chosen=self._compared_first(),
        )
        self._page(source, "api", groups=public_names())
        for page in self.all_pages.values():
            self._page(source, f"runs/{page.name}", "run", page=page, own=page.profile == self.profile)
            write_text(source / "_static" / "runs" / f"{page.name}.js", page.script())
        return self.title

    def _compared_first(self) -> list[str]:
        """The runs that are compared before any are chosen: the first one, and another variant with its seed."""
        first, *others = self.all_pages.values()
        second = min(
            others,
            key=lambda page: (page.run.variant == first.run.variant, page.run.seed != first.run.seed),
            default=first,
        )
        return [first.name, second.name]

    def _page(self, source: Path, name: str, template: str | None = None, **values: Any) -> None:
        path = source / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        page = self.templates.get_template(f"{template or name}.md")
        path.write_text(page.render(root="../" * name.count("/"), **values), encoding="utf-8")

    def _figure(self, name: str) -> Path:
        return paths.results(self.profile) / "figures" / f"{name}.svg"

    def _companion(self, paper: str) -> Path:
        return paths.results(self.profile) / "companions" / f"{paper}.ipynb"

    def _figures(self) -> dict[str, FigureEntry]:
        """The figures of the experiments that have results, and those drawn on request that there are."""
        papers = dict.fromkeys(experiment.partition("/")[0] for experiment in self.pages)
        known = {name: entry for paper in papers for name, entry in figures_of_paper(paper).items()}
        runs = [page.run for page in self.own_pages]
        by_epoch = {run.experiment for run in runs if run.config.train.get("epoch_heads")}
        return figures_of(((run.experiment, run.variant) for run in runs), by_epoch, self.runs.arms) | {
            name: entry
            for name, entry in known.items()
            if entry.on_request and entry.experiment in self.pages and self._figure(name).is_file()
        }

    # ---- the first page

    def _evidence(self) -> list[tuple[str, Outcome]]:
        """The outcomes on real text of all profiles, by profile, the strongest first: most seeds, then most updates.

        A profile whose results cannot be read is left out: its own report says why.
        """
        found = list(self.own_outcomes)
        for name in sorted(folder.name for folder in (paths.home() / "results").glob("*/")):
            with contextlib.suppress(HeaddivError):
                found += [(name, one) for one in outcomes(name, with_results(name))] if name != self.runs.name else []
        found = [(profile, outcome) for profile, outcome in found if not outcome.toy]
        return sorted(found, key=lambda one: (len(one[1].seeds), one[1].steps), reverse=True)

    @staticmethod
    def _lead(source: Path, profile: str, outcome: Outcome) -> str | None:
        """The figure of an outcome, copied into the site; None where none is drawn."""
        of_experiment = slug(outcome.experiment)
        for name in (*LEADS, of_experiment, f"{of_experiment}_curves"):
            path = paths.results(profile) / "figures" / f"{name}.svg"
            if path.is_file() and name.startswith(outcome.experiment.partition("/")[0]):
                _copy(path, source / "figures" / f"{profile}_{path.name}")
                return f"figures/{profile}_{path.name}"
        return None

    @staticmethod
    def outcome_table(name: str, found: list[tuple[str, Outcome]], own: bool) -> Markup:
        """A line an experiment; where a text is generated no differences, which would say nothing."""
        toy, rows = any(outcome.toy for _, outcome in found), []
        for profile, outcome in found:
            at = f"papers/{outcome.experiment.partition('/')[0]}.html#{slug(outcome.experiment).replace('_', '-')}"
            what = _link(at, outcome.experiment) if own else f"{outcome.experiment} ({profile})"
            unit = f"{outcome.measure} ({'lower' if outcome.lower else 'higher'} is better)"
            row = {"Experiment": what, "Score": unit, "Baseline": outcome.shown(outcome.baseline)}
            if toy:
                ends = dict.fromkeys(
                    f"{one.value:,.{outcome.digits}f}" for one in (*outcome.variants[:1], *outcome.variants[-1:])
                )
                row |= {"Other variants": " to ".join(ends) or NONE}
            else:
                row |= {
                    "Best variant": f"{outcome.best.label}: {outcome.shown(outcome.best)}" if outcome.best else NONE
                }
                row |= {"Against the baseline": outcome.versus_baseline()}
                row |= {"In the paper": signed(outcome.papers_difference, outcome.digits)}
            rows.append(
                row | {"Variants": len(outcome.variants), "Seeds": len(outcome.seeds), "Text": outcome.data_name}
            )
        return interactive(pd.DataFrame(rows), name)

    def verdict_table(self, paper: str | None = None) -> Markup:
        """How many claims have each verdict, by paper; a number leads to these claims."""
        rows = []
        for name, counts in claims.summary(self.ledger).items():
            if paper in (None, name):
                cells = [_link(f"{'../' if paper else ''}claims.html?{name}&{verdict}", count) if count else "0"
                         for verdict, count in counts.items()]  # fmt: skip
                rows.append([name, *cells, sum(counts.values())])
        return plain(pd.DataFrame(rows, columns=["Paper", *claims.VERDICTS, "all"]))

    # ---- papers

    def _paper(self, paper: str) -> dict[str, Any]:
        tables = tables_of((name for name in self.pages if name.startswith(f"{paper}/")), self.runs.arms)
        diagram = f"headdiv/companion/report/diagrams/{paper}.svg"
        return {
            "paper": paper,
            "about": load_paper(paper),
            "diagram": f"../{diagram}" if diagram in self.documents else None,
            "companion": paper in self.companions,
            "sections": [self._section(table, experiment) for table, experiment in tables.items()],
            "lacking": [name for name in self.lacking if name.startswith(f"{paper}/")],
            "claimed": any(row.paper == paper for row in self.ledger),
        }

    def _section(self, table: str, experiment: str) -> dict[str, Any]:
        """A table; with an experiment's results also its outcome, figures and runs."""
        data, pages = table_data(self.profile, table), self.pages[experiment]
        of_results = table == experiment
        return {
            "id": slug(table),
            "table": data,
            "outdated": [page.label for page in pages if page.run.name in self.outdated],
            "tables": [
                (caption, interactive(self._linked(data, frame, pages) if of_results else frame, f"{slug(table)}_{i}"))
                for i, (caption, frame) in enumerate(zip(_captions(data), data.tables, strict=True))
            ],
            "outcome": next(o for _, o in self.own_outcomes if o.experiment == experiment) if of_results else None,
            "figures": [figure for figure in self.figures.values() if of_results and figure.experiment == experiment],
        }

    @staticmethod
    def _linked(data: TableData, frame: pd.DataFrame, pages: list[RunPage]) -> pd.DataFrame:
        """The table with links to its runs in the name of each row."""
        names = []
        for variant, name in frame.iloc[:, 0].items():  # by variant, as `TableData` says
            own = [page for page in pages if page.run.variant == variant]
            links = [
                _link(f"../runs/{page.name}.html", name if len(own) == 1 else f"seed {page.run.seed}") for page in own
            ]
            several = Markup("{} {}").format(name, Markup(" ").join(links)) if links else name
            names.append(links[0] if len(own) == 1 else several)
        return frame.assign(**{frame.columns[0]: names})

    # ---- claims and runs

    def _verdicts(self) -> Markup:
        """What the verdicts mean, and how many claims have each; a name leads to these claims."""
        counts = claims.verdict_counts(self.ledger)
        rows = [
            [_link(f"claims.html?{verdict}", verdict), counts[verdict], meaning]
            for verdict, meaning in claims.VERDICTS.items()
            if counts[verdict]
        ]
        rows.append([_link("claims.html?all", "all"), sum(counts.values()), ""])
        return plain(pd.DataFrame(rows, columns=["Verdict", "Claims", "What it means"]))

    def _ledger_table(self) -> Markup:
        """Every claim; the contradicted, refuted and confirmed ones first, which the table opens on."""
        first = {verdict: at for at, verdict in enumerate([*OPENS, *(v for v in claims.VERDICTS if v not in OPENS)])}
        rows = [
            [row.verdict, row.paper, row.place, shown(row.value, row.unit), shown(row.ours, ""), how(row)]
            for row in sorted(self.ledger, key=lambda row: first[row.verdict])
        ]
        columns = ["Verdict", "Paper", "Claim", "The paper says", "Here", "How"]
        return interactive(pd.DataFrame(rows, columns=columns), "ledger", ["Verdict", "Paper"], opens=OPENS)

    def _runs_table(self) -> Markup:
        rows = []
        for page in self.own_pages:
            run, (measure, value) = page.run, page.main_score
            others = (other for other in self.pages[run.experiment] if other.run.seed == run.seed)
            base = next((other.name for other in others if other.run.variant == BASELINE != run.variant), None)
            against = _link(f"compare.html?{base}&{page.name}", "with the baseline") if base else NONE
            rows.append([
                _link(f"runs/{page.name}.html", page.label), run.experiment, measure, significant(value),
                significant(run.value("validation_nll")), f"{run.parameters:,}", run.epochs,
                f"{run.cost.training_seconds:,.0f}", f"{run.cost.peak_memory_mib:,.0f}", page.machine, page.commit,
                run.hash, against,
            ])  # fmt: skip
        columns = ["Run", "Experiment", "Score", "Value", "Validation loss", "Parameters", "Epochs", "Training (s)",
                   "Peak memory (MiB)", "Machine", "Commit", "Hash", "Compare"]  # fmt: skip
        choices = ["Experiment", "Score", "Machine", "Commit"]
        return interactive(pd.DataFrame(rows, columns=columns), "runs-table", choices=choices)


def run_pages(judgement: claims.Judgement) -> list[RunPage]:
    """The pages of the runs that a claim was measured by; [] where it was not."""
    return [RunPage(judgement.profile, run) for run in judgement.runs] if judgement.profile else []


def how(judgement: claims.Judgement) -> Markup:
    """How a claim was computed, in words; a contradiction's cause first, what is long folded."""
    cause = Markup("{}<br>").format(judgement.cause) if judgement.cause else ""
    runs = Markup("; ").join(_link(f"runs/{page.name}.html", page.label) for page in run_pages(judgement))
    runs = Markup("; runs: {}").format(runs) if runs else ""
    if len(judgement.working) + len(runs) <= FOLDED:
        return Markup("{}{}{}").format(cause, judgement.working, runs)
    rest = judgement.working.removeprefix(judgement.what).lstrip(": ")
    text = Markup("{}<details><summary>{}</summary>{}{}</details>")
    return text.format(cause, judgement.what or "Details", rest, runs)


def shown(value: float | bool | None, unit: str) -> str:
    """A claim's number with its unit, or whether a relation holds."""
    if value is None:
        return NONE
    if unit == RELATION or isinstance(value, bool):
        return "holds" if value else "does not hold"
    return f"{show(value)} {unit}".rstrip()


def _captions(table: TableData) -> list[str]:
    if table.captions:
        return table.captions
    return [_caption(list(frame.columns)) for frame in table.tables]


def _caption(columns: list[str]) -> str:
    if columns[0] == MINUS_BASELINE:
        return "differences to the baseline"
    beside = any(name.endswith(", paper") or ", paper (" in name for name in columns)
    return "ours beside the paper's" if beside else "further measurements"


# ---- HTML


def _link(address: str, text: object) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address, text)


def _cells(frame: pd.DataFrame) -> pd.DataFrame:
    """Every cell escaped, but for what is HTML already."""
    return frame.map(lambda cell: str(escape(cell)))


def plain(frame: pd.DataFrame) -> Markup:
    """A small table."""
    return Markup('<div class="wide">{}</div>').format(_html(frame, classes="small"))


def interactive(frame: pd.DataFrame, name: str, choices: Iterable[str] = (), opens: Iterable[str] = ()) -> Markup:
    """A table that ``headdiv.js`` makes sortable; with ``choices`` searchable, and filtered by these columns' values.

    With ``opens``, values that it opens on, it is paged as well.

    The rows stand in the page itself, so that they are there without scripts and for the site's search.
    """
    lists = json.dumps([list(frame.columns).index(choice) for choice in choices])
    html = _html(frame, classes="display compact", table_id=name)
    data = f'style="width:100%" data-choices="{lists}"' + (f' data-opens="{"&amp;".join(opens)}"' if opens else "")
    return html.replace(Markup('class="dataframe '), Markup(f'{data} class="'), 1)


def _html(frame: pd.DataFrame, **options: str) -> Markup:
    table = _cells(frame).to_html(index=False, escape=False, border=0, justify="left", **options)
    return Markup(re.sub(r"\n *", "", table))


def slug(table: str) -> str:
    """The anchor of a table: ``deacon/qa`` is ``deacon_qa``."""
    return table.replace("/", "_")


def marked(text: str) -> Markup:
    """Text with **bold** and `code` as HTML; everything else is escaped."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(text)))
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", bold))


# ---- what comes from elsewhere


def table_script() -> str:
    """DataTables, from itables, as a script that pages from disk can load: ``window._itables`` is its module."""
    from itables.javascript import generate_init_offline_itables_html

    bundle = Path(str(distribution("itables").locate_file("itables/html/dt_bundle.js")))
    script = generate_init_offline_itables_html(bundle).partition("<script>")[2].partition("</script>")[0]
    return re.sub(r"_itables_\d\w*", "_itables", script)  # whatever its version


def documents() -> dict[str, Path]:
    """The repository's documents and the pictures that they show, by their path in the site."""
    texts = [path for pattern in DOCUMENTS for path in sorted(REPOSITORY.glob(pattern))]
    pictures = [
        (path.parent / name).resolve()
        for path in texts
        for name in re.findall(r"!\[.*?\]\((.+?)\)", path.read_text(encoding="utf-8"))
    ]
    files = [*texts, *pictures, *REPOSITORY.glob("headdiv/companion/report/diagrams/*.svg")]
    return {path.relative_to(REPOSITORY).as_posix(): path for path in files if path.is_file()}


def templates() -> jinja2.Environment:
    """The templates of pages."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    found = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {"marked": marked, "plural": plural, "slug": slug}
    found.globals |= {"plain": plain}
    return found


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def public_names() -> dict[str, list[tuple[str, str]]]:
    """What is documented of the library, by the package that offers it: ("function" or "class", dotted name)."""
    library, groups = import_module("headdiv"), {}
    for holder in (library, *filter(inspect.ismodule, (getattr(library, name) for name in library.__all__))):
        for name in holder.__all__:
            found = getattr(holder, name)
            if not inspect.ismodule(found):
                kind = "class" if inspect.isclass(found) else "function"
                groups.setdefault(holder.__name__, []).append((kind, f"{holder.__name__}.{name}"))
    return groups
