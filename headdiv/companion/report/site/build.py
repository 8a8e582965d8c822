"""Writing a report: Sphinx with MyST-NB over a profile's executed notebooks, stored tables and figures."""

from __future__ import annotations

import glob
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from headdiv.companion import paths
from headdiv.companion.commands import headdiv_command
from headdiv.companion.experiments.papers import load_paper
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.results import with_results
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.figures import figures_of
from headdiv.companion.report.formats import plural
from headdiv.companion.report.tables import tables_of
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import remove_leftovers, replacing, write_text

HERE = Path(__file__).resolve().parent  # of conf.py


def write_report(profile: str) -> Path:
    """Write the report of a profile: a page for each paper, its executed companions and the notebooks of its runs.

    It shows the tables and figures that `draw_paper` wrote before. What is not stored is left out: a run's notebook is
    there only where the run was made.

    Returns:
        Its first page, in ``results/<profile>/report``; an earlier report there is replaced whole.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored or drawn.
    """
    folder = paths.results(profile) / "report"
    remove_leftovers(folder.parent, glob.escape(folder.name))
    with tempfile.TemporaryDirectory() as scratch, replacing(folder, flush=False) as temporary:
        source, built = Path(scratch) / "source", Path(scratch) / "built" / "html"  # MyST-NB writes beside the site too
        write_sources(profile, source)
        build_site(source, built)
        shutil.copytree(built, temporary, dirs_exist_ok=True)
    return folder / "index.html"


def build_site(source: Path, folder: Path) -> None:
    """Let Sphinx make a site of pages; its warnings go to stderr."""
    from sphinx.cmd.build import build_main

    doctrees = folder.with_name("doctrees")
    if build_main(["-q", "-j", "2", "-c", str(HERE), "-d", str(doctrees), str(source), str(folder)]):
        raise HeaddivError(f"{source}: Sphinx failed")


def write_sources(profile: str, source: Path) -> None:
    """Write the pages of a report, as MyST and notebooks, with the tables and figures that they show."""
    runs, results = Runs(profile), paths.results(profile)
    by_experiment = with_results(profile)
    stored_count = sum(map(len, by_experiment.values()))
    for kind in ("companions", "figures", "tables"):
        (source / kind).mkdir(parents=True)
        for file in (results / kind).glob("*"):
            shutil.copy(file, source / kind)
    companions = sorted(path.stem for path in (source / "companions").iterdir())
    papers = [paper for paper in runs.papers() if _write_paper(profile, paper, source)]
    if not papers:
        paper = next(iter(by_experiment)).partition("/")[0]
        command = headdiv_command("draw", paper, "--profile", profile)
        raise DataError(f"{results}: no tables, figures or notebooks of a paper; `{command}` draws tables and figures")
    others = [f"companions/{name}" for name in companions if name not in papers]
    title = _plain(runs.profile.title or runs.name)
    parts = [
        f"# {title}",
        f"{stored_count} of {plural(len(runs.planned()), 'run')} of the profile {runs.name} are stored.",
        _menu(papers, caption="Papers"),
        _menu(others, caption="Notebooks"),
    ]
    write_text(source / "index.md", "\n\n".join(parts) + "\n")


def _write_paper(profile: str, paper: str, source: Path) -> bool:
    """A page of a paper's tables and figures, and the notebooks that belong to it; False where nothing is there."""
    runs, content = Runs(profile), load_paper(paper)
    figures = figures_of(runs)
    parts = [f"# {_plain(content.short or paper)}", _plain(content.citation)]
    if (source / "companions" / f"{paper}.ipynb").is_file():
        parts.append(_menu([f"companions/{paper}"]))
    for table in tables_of(runs):
        name = table.replace("/", "_")
        if table.startswith(f"{paper}/") and (source / "tables" / f"{name}.md").is_file():
            parts.append(f"```{{include}} tables/{name}.md\n:heading-offset: 1\n```")
    for path in sorted((source / "figures").glob(f"{paper}_*.svg")):
        caption = _plain(figures[path.stem].caption if path.stem in figures else path.stem)
        parts.append(f"```{{figure}} figures/{path.name}\n{caption}\n```")
    if notebooks := _copy_runs(profile, paper, source):
        parts += ["## Runs", _menu(notebooks)]
    if len(parts) == 2:  # the heading alone
        return False
    write_text(source / f"{paper}.md", "\n\n".join(parts) + "\n")
    return True


def _copy_runs(profile: str, paper: str, source: Path) -> list[str]:
    """The executed notebooks of a paper's runs, as entries of a menu."""
    entries = []
    for config in Runs(profile).planned():
        notebook = metrics_path(profile, config.experiment, config.variant, config.seed).with_name("run.ipynb")
        if config.paper == paper and notebook.is_file():
            name = config.label.replace("/", "_").replace(" ", "_")
            (source / "runs").mkdir(exist_ok=True)
            shutil.copy(notebook, source / "runs" / f"{name}.ipynb")
            entries.append(f"{config.label} <runs/{name}>")
    return entries


def _menu(pages: Iterable[str], caption: str = "") -> str:
    """Links to pages, which the side bar has too."""
    options = [":maxdepth: 1"]
    if caption:
        options.append(f":caption: {caption}")
    return "\n".join(["```{toctree}", *options, "", *pages, "```"])


def _plain(text: str) -> str:
    """Text as MyST, in one line: punctuation with a backslash is nothing but itself (CommonMark)."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))
