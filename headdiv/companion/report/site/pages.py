"""The pages of a report, as the sources that Sphinx reads: templates filled from stored results.

``index`` says what the runs show; each paper has a page with its tables and figures, and its companion as a page of
its own; ``figures`` shows every figure, ``claims`` is the ledger, ``runs`` lists every run, ``compare`` shows two of
them. Each run has a page, which is made without Sphinx.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from headdiv.companion import paths
from headdiv.companion.experiments.catalogue import FigureEntry, figures_of, figures_of_paper, tables_of
from headdiv.companion.experiments.claims import ledger as claims
from headdiv.companion.experiments.claims.calls import show
from headdiv.companion.experiments.claims.files import papers_with_claims
from headdiv.companion.experiments.claims.records import RELATION
from headdiv.companion.experiments.claims.verdicts import CONFIRMED, REFUTED
from headdiv.companion.experiments.figure_kinds import FIGURE_KINDS
from headdiv.companion.experiments.outdated import outdated_among
from headdiv.companion.experiments.papers import BASELINE, load_paper
from headdiv.companion.experiments.pipeline import EXPLORER
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import with_results
from headdiv.companion.report.figures import write_figure
from headdiv.companion.report.formats import NONE, significant
from headdiv.companion.report.scale import machine
from headdiv.companion.report.show import DIAGRAMS
from headdiv.companion.report.site.front import (
    Finding,
    all_evidence,
    evidence_of,
    outcome_table,
    slug,
    verdict_table,
)
from headdiv.companion.report.site.library import REPOSITORY, documents, pictures, plotly_script, public_names
from headdiv.companion.report.site.markup import interactive, link, plain, templates
from headdiv.companion.report.site.runs import SHELL, RunPage, write_run_pages
from headdiv.companion.report.tables import table_data
from headdiv.core.files import read_json

ORDER = ("deacon", "mhr", "dpp", "homeostasis", "moa", "headtohead")  # other papers follow
# Of the menu's part about evidence.
EVIDENCE_DOCUMENTS = ("docs/results.md", "docs/contest.md", "docs/checklist.md", "docs/papers.md")
CLAIMS_ON_A_PAGE = 25
OPENS = (claims.CONTRADICTED, REFUTED, CONFIRMED)  # verdicts that the ledger opens on
FOLDED = 160  # characters from which how a claim was computed is folded


class Site:
    """All pages of a profile, which share runs, ledger and figures."""

    def __init__(self, profile: str) -> None:
        self.profile, self.runs = profile, Runs(profile)
        stored = with_results(profile)
        self.pages = {name: [RunPage(profile, run) for run in runs] for name, runs in stored.items()}
        self.own_pages = [page for pages in self.pages.values() for page in pages]
        self.outdated = outdated_among(profile, [page.run for page in self.own_pages])
        self.own_evidence = evidence_of(profile, stored)
        self.evidence = all_evidence(self.own_evidence, profile)
        self.toy = " ".join(dict.fromkeys(one.outcome.toy for one in self.own_evidence if one.outcome.toy))
        self.lacking = [name for name in self.runs.experiments() if name not in self.pages]
        self.ledger = claims.ledger()
        deciding = {page.name: page for row in self.ledger for page in run_pages(row)}  # perhaps of another profile
        own_pages = {page.name: page for page in self.own_pages}
        self.all_pages = own_pages | deciding | own_pages  # the profile's own first, as it was named
        own = {experiment.partition("/")[0] for experiment in self.runs.experiments()} | {*papers_with_claims()}
        self.papers = [*(name for name in ORDER if name in own), *sorted(own - {*ORDER})]
        self.figures = self._figures()
        self.documents = documents()
        self.evidence_documents = {name: self.documents[name] for name in EVIDENCE_DOCUMENTS if name in self.documents}
        stored_companions = sorted(  # the profile's own last, so that they are taken
            paths.home().glob("results/*/companions/*.ipynb"), key=lambda path: path.parents[1].name == self.runs.name
        )
        beside = {path.stem: path for path in stored_companions if path.stem not in {*self.papers, EXPLORER}}
        found = {name: self._companion(name) for name in [*self.papers, EXPLORER]}
        self.companions = {name: path for name, path in found.items() if path} | beside
        self.beside = {name: heading(path) for name, path in beside.items()}  # of no paper: what each is called
        self.templates = templates()
        self.templates.globals |= {"site": self}

    def write(self, source: Path) -> None:
        """Every page but those of runs, and the files that pages show, into a folder for Sphinx."""
        _copy(plotly_script(), source / "_static" / "plotly.js")
        for name in self.figures:
            if self._figure(name).is_file():
                _copy(self._figure(name), source / f"extra/figures/{name}.svg")
            else:  # results from before there was this figure
                write_figure(name, self.profile, source / f"extra/figures/{name}.svg")
        for name, path in self.companions.items():
            _copy(path, source / f"companions/{name}.ipynb")
        for document in self.documents:
            for name in [document, *pictures(document)]:
                _copy(REPOSITORY / name, source / name)
        self._front(source)
        for paper in self.papers:
            self._page(source, f"papers/{paper}", "paper", **self._paper(paper, source))
        self._page(source, "figures", figures={name: self._shown(entry) for name, entry in self.figures.items()})
        self._page(source, "claims", terms=self._verdicts(), table=self._ledger_table())
        common, table = self._runs()
        self._page(source, "runs", common=common, table=table)
        self._page(source, "compare", form=self._choice())
        self._page(source, "api", groups=public_names())
        self._page(source, SHELL, "shell")

    def finish(self, built: Path) -> None:
        """The page of each run, and its data."""
        # Copies, so that nothing of a page stays in memory when it is written.
        pages = (replace(page) for page in self.all_pages.values())
        write_run_pages(built, ((page, self._parts(page)) for page in pages))

    def short(self, paper: str) -> str:
        """What menus call a paper."""
        return load_paper(paper).short or paper

    def _parts(self, page: RunPage) -> dict[str, Markup]:
        own = page.profile == self.profile
        return page.parts(own, self.outdated.get(page.run.name) if own else None)

    def _page(self, source: Path, name: str, template: str | None = None, **values: Any) -> None:
        path = source / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        page = self.templates.get_template(f"{template or name}.md")
        path.write_text(page.render(root="../" * name.count("/"), **values), encoding="utf-8")

    def _figure(self, name: str) -> Path:
        return paths.results(self.profile) / "figures" / f"{name}.svg"

    def _companion(self, paper: str) -> Path | None:
        """A paper's companion: the profile's own, else the one that shows the strongest evidence."""
        others = (one.profile for one in self.evidence if one.paper == paper and not one.outcome.toy)
        files = (paths.results(name) / "companions" / f"{paper}.ipynb" for name in (self.profile, *others))
        return next((file for file in files if file.is_file()), None)

    def _figures(self) -> dict[str, FigureEntry]:
        """The figures of the experiments that have results, and those drawn on request that there are."""
        papers = dict.fromkeys(experiment.partition("/")[0] for experiment in self.pages)
        known = {name: entry for paper in papers for name, entry in figures_of_paper(paper).items()}
        runs = [page.run for page in self.own_pages]
        by_epoch = {run.experiment for run in runs if run.config.train.get("epoch_heads")}
        return figures_of(
            ((run.experiment, run.variant) for run in runs), by_epoch, self.runs.arms, self.runs.pruned()
        ) | {
            name: entry
            for name, entry in known.items()
            if entry.of_importance and entry.experiment in self.pages and self._figure(name).is_file()
        }

    def _front(self, source: Path) -> None:
        main: Finding | None = next((one for one in self.evidence if not one.outcome.toy), None)
        lead = None
        if main and main.lead:
            lead = f"figures/{main.name}_{main.lead}.svg"
            _copy(main.figure(main.lead), source / "extra" / lead)
        others = [one for one in self.evidence if one not in self.own_evidence]
        self._page(
            source, "index", main=main, lead=lead, own=outcome_table("outcomes", self.own_evidence, True),
            others=outcome_table("evidence", others, False) if others else None, verdicts=verdict_table(self.ledger),
        )  # fmt: skip

    def _shown(self, figure: FigureEntry) -> dict[str, str]:
        """What the gallery says of a figure."""
        what = figure.label if figure.label not in ("", figure.name) else FIGURE_KINDS[figure.kind].title
        return {
            "title": f"{self.short(figure.paper)}: {what}",
            "alternative": figure.alternative,
            "paper": figure.paper,
            "place": f"With the tables of {figure.experiment}",
        }

    # ---- papers

    def _paper(self, paper: str, source: Path) -> dict[str, Any]:
        tables = tables_of(
            (name for name in self.pages if name.startswith(f"{paper}/")), self.runs.arms, self.runs.pruned()
        )
        sections = [self._section(table, experiment) for table, experiment in tables.items()]
        diagram = DIAGRAMS / f"{paper}.svg"
        if diagram.is_file():
            _copy(diagram, source / "extra" / "figures" / f"diagram_{paper}.svg")
        scales = {section["table"].scale for section in sections}
        if len(scales) > 1:
            sections = [section | {"scale": section["table"].scale} for section in sections]
        found = [section["table"] for section in sections]
        signatures = {(name, how) for table in found for name, how in table.signatures.items()}
        companion = self.companions.get(paper)
        about, short = load_paper(paper), self.short(paper)
        return {
            "paper": paper,
            "about": about,
            "heading": about.title if about.title.startswith(short) else f"{short}: {about.title}",
            "diagram": diagram.is_file(),
            "companion": companion and companion.parents[1].name,
            "sections": sections,
            "common": scales.pop() if len(scales) == 1 else None,
            "measured": plain(pd.DataFrame(sorted(signatures), columns=["Score", "Measured as"])) if signatures else "",
            "notes": list(dict.fromkeys(note for table in found for note in table.notes)),
            "lacking": [name for name in self.lacking if name.startswith(f"{paper}/")],
            "claimed": verdict_table(self.ledger, paper) if any(row.paper == paper for row in self.ledger) else None,
        }

    def _section(self, table: str, experiment: str) -> dict[str, Any]:
        """A table; with an experiment's results also its outcome, figures and runs."""
        data, pages = table_data(self.profile, table), self.pages[experiment]
        of_results = table == experiment
        outcome = next(one.outcome for one in self.own_evidence if one.outcome.experiment == experiment)
        return {
            "id": slug(table),
            "table": data,
            "scale": None,
            "outdated": [page.label for page in pages if page.run.name in self.outdated],
            "tables": [
                (caption, interactive(self._linked(frame, pages) if of_results else frame, f"{slug(table)}_{i}"))
                for i, (caption, frame) in enumerate(data.tables.items())
            ],
            "outcome": outcome if of_results and not outcome.toy else None,
            "said": [] if of_results and outcome.rules and not outcome.toy else data.said,  # the outcome says the same
            "figures": {
                name: figure for name, figure in self.figures.items() if of_results and figure.experiment == experiment
            },
        }

    @staticmethod
    def _linked(frame: pd.DataFrame, pages: list[RunPage]) -> pd.DataFrame:
        """The table with links to its runs in the name of each row."""
        names: list[object] = []
        by_variant: dict[str, list[RunPage]] = {}
        for page in pages:
            by_variant.setdefault(page.run.variant, []).append(page)
        for variant, name in frame.iloc[:, 0].items():  # by variant, as `TableData` says
            own = by_variant.get(str(variant), [])
            links = [link(f"../{page.address}", name if len(own) == 1 else page.run.seed) for page in own]
            seeds = Markup('{} <span class="seeds">seeds {}</span>').format(name, Markup(" ").join(links))
            names.append(links[0] if len(own) == 1 else seeds if own else name)
        return frame.assign(**{frame.columns[0]: names})

    # ---- claims and runs

    def _verdicts(self) -> Markup:
        """What the verdicts mean, and how many claims have each; a name leads to these claims."""
        counts = claims.verdict_counts(self.ledger)
        rows = [
            [link(f"claims.html?{verdict}", verdict), counts[verdict], meaning]
            for verdict, meaning in claims.VERDICTS.items()
            if counts[verdict]
        ]
        rows.append([link("claims.html?all", "all"), sum(counts.values()), ""])
        return plain(pd.DataFrame(rows, columns=["Verdict", "Claims", "What it means"]))

    def _ledger_table(self) -> Markup:
        """Every claim; the contradicted, refuted and confirmed ones first, which the table opens on."""
        first = {verdict: at for at, verdict in enumerate([*OPENS, *(v for v in claims.VERDICTS if v not in OPENS)])}
        rows = [
            [row.verdict, row.paper, row.place, shown(row.value, row.unit), shown(row.ours, ""), how(row)]
            for row in sorted(self.ledger, key=lambda row: first[row.verdict])
        ]
        columns = ["Verdict", "Paper", "Claim", "The paper says", "Here", "How"]
        return interactive(pd.DataFrame(rows, columns=columns), "ledger", ["Verdict", "Paper"], CLAIMS_ON_A_PAGE, OPENS)

    def _runs(self) -> tuple[str, Markup]:
        """What all runs have in common, in a sentence, and the table of what differs."""
        table, said = self._runs_frame(), ["Experiment", "Score", "Epochs", "Machine", "Commit"]
        common = [name for name in said if len(table) > 1 and table[name].nunique() == 1]
        choices = [name for name in said if name not in (*common, "Epochs")]
        of_all = ", ".join(f"{name.lower()} {table[name].iloc[0]}" for name in common)
        return of_all, interactive(table.drop(columns=common), "runs-table", choices)

    def _runs_frame(self) -> pd.DataFrame:
        bases = {(page.run.experiment, page.run.seed): page for page in self.own_pages if page.run.variant == BASELINE}
        rows = []
        for page in self.own_pages:
            run, (measure, value) = page.run, page.main_score
            base = bases.get((run.experiment, run.seed)) if run.variant != BASELINE else None
            against = link(f"compare.html?{base.name}&{page.name}", "with the baseline") if base else NONE
            rows.append([
                link(page.address, page.label), against, run.experiment, measure, significant(value),
                significant(run.value("validation_nll")), f"{run.parameters:,}", run.epochs,
                f"{run.cost.training_seconds:,.0f}", f"{run.cost.peak_memory_mib:,.0f}", machine(run), page.commit,
                run.hash,
            ])  # fmt: skip
        columns = ["Run", "Compare", "Experiment", "Score", "Value", "Validation loss", "Parameters", "Epochs",
                   "Training (s)", "Peak memory (MiB)", "Machine", "Commit", "Hash"]  # fmt: skip
        return pd.DataFrame(rows, columns=columns)

    def _choice(self) -> Markup:
        """Two lists of all runs, of which the first one, and another variant with its seed, are chosen."""
        first, *others = self.all_pages.values()
        second = min(
            others,
            key=lambda page: (page.run.variant == first.run.variant, page.run.seed != first.run.seed),
            default=first,
        )
        options = [
            (name, f"{page.profile_name}: {page.run.experiment}, {page.label}") for name, page in self.all_pages.items()
        ]
        option, lists = Markup('<option value="{}"{}>{}</option>'), []
        for which, chosen in (("First run", first), ("Second run", second)):
            shown = (option.format(name, Markup(" selected" * (name == chosen.name)), label) for name, label in options)
            lists.append(Markup("<label>{} <select>{}</select></label>").format(which, Markup("").join(shown)))
        form = Markup('<form class="choose" id="choose" aria-label="Runs to compare">{}</form>')
        return form.format(Markup("").join(lists))


def heading(notebook: Path) -> str:
    """The title of a notebook: its first line of text."""
    first = next(cell for cell in read_json(notebook)["cells"] if cell["cell_type"] == "markdown")
    return "".join(first["source"]).partition("\n")[0].lstrip("# ")


def run_pages(judgement: claims.Judgement) -> list[RunPage]:
    """The pages of the runs that a claim was measured by; [] where it was not."""
    return [RunPage(judgement.profile, run) for run in judgement.runs] if judgement.profile else []


def how(judgement: claims.Judgement) -> Markup:
    """How a claim was computed, in words; a contradiction's cause first, what is long folded."""
    cause = Markup("{}<br>").format(judgement.cause) if judgement.cause else ""
    runs = Markup("; ").join(link(page.address, page.label) for page in run_pages(judgement))
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


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
