"""Writing a report: Sphinx makes the site of a profile's pages (`headdiv.companion.report.site.pages`)."""

from __future__ import annotations

import glob
import io
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from headdiv.companion import paths
from headdiv.companion.report.site.library import table_script
from headdiv.companion.report.site.pages import Site
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import remove_leftovers, replacing

log = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
# One of these is in every report; the second in those from before the site.
SIGNS = ("_static/headdiv.css", "headdiv.css")
PROCESSES = 2  # at most, that read and write pages


def report_folder(profile: str) -> Path:
    """``results/<profile>/report``."""
    return paths.results(profile) / "report"


def write_report(profile: str, folder: Path) -> Path:
    """Write the report of a profile from its stored metrics, figures and companions.

    An experiment without stored runs is named as such; a figure that is not stored is drawn.

    Args:
        profile: name, or path of a YAML file.
        folder: an earlier report there is replaced whole.

    Returns:
        Its first page.

    Raises:
        ConfigError: no such profile.
        DataError: nothing is stored, or ``folder`` holds something that is no report.
    """
    site = Site(profile)
    return build_site(folder, site.write, site.finish)


def build_site(
    folder: Path, write: Callable[[Path], object], finish: Callable[[Path], None] = lambda built: None
) -> Path:
    """Let Sphinx make a site of what ``write`` puts into a folder for it: the first page.

    Args:
        folder: an earlier site there is replaced whole, and what processes left of it that were killed is removed.
        write: writes the pages as MyST, and into ``extra`` what stands beside ``index.html``.
        finish: adds to the site's folder what Sphinx need not make.

    Raises:
        DataError: ``folder`` holds something that is no such site.
    """
    known = folder.is_dir() and any((folder / sign).is_file() for sign in SIGNS)
    if folder.exists() and not known and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder}: holds something that is no report; expected an empty folder, a report, or none")
    remove_leftovers(folder.parent, glob.escape(folder.name))
    with tempfile.TemporaryDirectory() as scratch, replacing(folder, flush=False) as temporary:
        source, built = Path(scratch) / "source", Path(scratch) / "built" / "html"  # myst-nb writes beside the site too
        (source / "extra").mkdir(parents=True)
        shutil.copy(HERE / "conf.py", source)
        shutil.copytree(HERE / "static", source / "_static")
        (source / "_static" / "itables.js").write_text(table_script(), encoding="utf-8")
        write(source)
        _build(source, built, Path(scratch) / "doctrees")
        shutil.copytree(built, temporary, dirs_exist_ok=True)
        finish(temporary)
    return folder / "index.html"


def _build(source: Path, folder: Path, doctrees: Path) -> None:
    """Run Sphinx; its warnings are logged."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    said, processes = io.StringIO(), min(PROCESSES, os.cpu_count() or 1)
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            source, source, folder, doctrees, "html", status=None, warning=said, freshenv=True, parallel=processes
        )
        app.build(force_all=True)
    warnings = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue()).strip()
    if app.statuscode:
        raise HeaddivError(f"{source}: Sphinx failed: {warnings}")
    if warnings:
        log.warning(warnings)
    (folder / ".buildinfo").unlink(missing_ok=True)
