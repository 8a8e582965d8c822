"""The report: one HTML file of a profile's tables, figures and provenance; it needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from headdiv import places
from headdiv.errors import DataError
from headdiv.experiments import Runs
from headdiv.files import write_text
from headdiv.papers import load_paper
from headdiv.provenance import commit
from headdiv.report.figures import Drawing, figures_of
from headdiv.report.store import Metrics, stored
from headdiv.report.tables import reading, tables_of

TEMPLATE = Path(__file__).with_name("page.html")


def write_report(profile: str, output: Path) -> None:
    """Put the page together from tables, figures and metrics that are there.

    Raises:
        DataError: results are missing.
    """
    runs = Runs(profile)
    figures = figures_of((f"{config.paper}/{config.task}", config.variant) for config in runs.all())
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        profile=runs.name,
        title=runs.profile.title,
        commit=commit(),
        sections=[
            _section(profile, table, experiment, figures, output)
            for table, experiment in tables_of(runs.experiments()).items()
        ],
    )
    write_text(output, page)


def _section(profile: str, table: str, experiment: str, figures: dict[str, Drawing], output: Path) -> dict[str, Any]:
    """A table; under an experiment's results its figures and runs as well."""
    paper_name = table.partition("/")[0]
    read, of_results = reading(profile, table), table == experiment
    companion = Path("companions") / f"{paper_name}.html"
    return {
        "id": table.replace("/", "_"),
        "paper": load_paper(paper_name),
        "reading": read,
        "tables": [_html(shown) for shown in read.tables],
        "figures": [
            {"name": name, "caption": drawing.caption, "svg": _svg(profile, name)}
            for name, drawing in figures.items()
            if of_results and drawing.experiment == experiment
        ],
        "runs": _html(_provenance(stored(profile, experiment))) if of_results else None,
        "companion": companion.as_posix() if of_results and (output.parent / companion).is_file() else None,
    }


def _html(table: pd.DataFrame) -> str:
    return table.to_html(index=False, border=0, classes="numbers", justify="right")


def _svg(profile: str, figure: str) -> str:
    """The figure's drawing without the XML prologue, to stand inside the page."""
    path = places.results(profile) / "figures" / f"{figure}.svg"
    if not path.is_file():
        raise DataError(f"{path}: no such figure; `headdiv figure {figure} {path} --profile {profile}` draws it")
    text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _provenance(runs: list[Metrics]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "variant": run["variant"],
            "seed": run["seed"],
            "run": run["hash"],
            "commit": run["provenance"]["commit"],
            "machine": f"{run['provenance']['device']}, {run['provenance']['threads']} thread(s)",
            "torch": run["provenance"]["packages"]["torch"],
            "training (s)": f"{run['cost']['training_seconds']:.0f}",
            "tokens/s": f"{run['cost']['target_tokens_per_second']:,.0f}",
            "peak memory (MiB)": f"{run['cost']['peak_memory_mib']:,.0f}",
        }
        for run in runs
    )
