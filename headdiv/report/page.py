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
from headdiv.papers import load_paper, load_task
from headdiv.provenance import commit
from headdiv.report.figures import FIGURES
from headdiv.report.store import Metrics, stored
from headdiv.report.tables import display_table, scale

TEMPLATE = Path(__file__).with_name("page.html")


def write_report(profile: str, output: Path) -> None:
    """Put the page together from tables, figures and metrics that are there.

    Raises:
        DataError: results are missing.
    """
    runs = Runs(profile)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        profile=runs.name,
        title=runs.profile.title,
        commit=commit(),
        sections=[_section(profile, experiment, output) for experiment in runs.experiments()],
    )
    write_text(output, page)


def _section(profile: str, experiment: str, output: Path) -> dict[str, Any]:
    paper_name, task_name = experiment.split("/", 1)
    paper, task = load_paper(paper_name), load_task(paper_name, task_name)
    runs = stored(profile, experiment)
    table = display_table(profile, experiment)
    name = experiment.replace("/", "_")
    figures = [
        {"name": figure, "caption": drawing.caption, "svg": _svg(profile, figure)}
        for figure, drawing in FIGURES.items()
        if drawing.table == name
    ]
    companion = Path("companions") / f"{paper_name}.html"
    return {
        "id": name,
        "paper": paper,
        "task": task,
        "scale": scale(runs, profile),
        "table": table.to_html(index=False, border=0, classes="numbers", justify="right"),
        "signatures": {key: score["signature"] for key, score in runs[0]["scores"].items()},
        "figures": figures,
        "runs": _provenance(runs).to_html(index=False, border=0, classes="numbers", justify="right"),
        "companion": companion.as_posix() if (output.parent / companion).is_file() else None,
    }


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
            "target tokens/s": f"{run['cost']['target_tokens_per_second']:,.0f}",
            "peak memory (MiB)": f"{run['cost']['peak_memory_mib']:,.0f}",
        }
        for run in runs
    )
