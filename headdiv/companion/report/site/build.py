"""Writing a report: Sphinx makes the site of a profile's pages (`headdiv.companion.report.site.pages`)."""

from __future__ import annotations

import glob
import io
import logging
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headdiv.companion import paths
from headdiv.companion.report.site.pages import HERE, Site, table_script
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.files import remove_leftovers, replacing

log = logging.getLogger(__name__)

# One of these is in every report; the second in those from before the site.
SIGNS = ("_static/headdiv.css", "headdiv.css")

CONFIGURATION: dict[str, Any] = {
    "project": "headdiv",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "headdiv.companion.report.site.mathml"],
    "nb_execution_mode": "off",  # companions are executed already
    "nb_ipywidgets_js": {},  # would come from a network
    "nb_mime_priority_overrides": [("*", "application/vnd.jupyter.widget-view+json", None)],
    "nb_merge_streams": True,
        "myst_enable_extensions": ["attrs_block", "dollarmath"],
    "myst_heading_anchors": 3, "myst_footnote_transition": False,
    "html_theme": "furo", "html_static_path": ["_static"], "html_extra_path": ["extra"],
    "html_css_files": ["headdiv.css"], "html_js_files": ["headdiv.js"], "html_math_renderer": "mathml",
    "html_show_search_summary": False,  # would be fetched, which browsers refuse to pages from disk
    **dict.fromkeys(("html_copy_source", "html_show_sourcelink", "html_show_sphinx", "html_show_copyright"), False),
    "autodoc_typehints": "description", "autodoc_typehints_description_target": "documented",
    "autodoc_member_order": "bysource", "default_role": "code", "toc_object_entries": False,
    "suppress_warnings": ["mystnb.unknown_mime_type", "mystnb.mime_priority", "myst.header", "config.cache"],
}  # fmt: skip


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
    return build_site(folder, lambda source: Site(profile).write(source))


def build_site(folder: Path, write: Callable[[Path], str]) -> Path:
    """Let Sphinx make a site of what ``write`` puts into a folder for it: the first page.

    Args:
        folder: an earlier site there is replaced whole, and what processes left of it that were killed is removed.
        write: writes the pages as Markdown, and into ``extra`` what stands beside ``index.html``; gives the title.

    Raises:
        DataError: ``folder`` holds something that is no such site.
    """
    known = folder.is_dir() and any((folder / sign).is_file() for sign in SIGNS)
    if folder.exists() and not known and (folder.is_file() or any(folder.iterdir())):
        raise DataError(f"{folder}: holds something that is no report; expected an empty folder, a report, or none")
    remove_leftovers(folder.parent, glob.escape(folder.name))
    with tempfile.TemporaryDirectory() as scratch, replacing(folder) as temporary:
        source, built = Path(scratch) / "source", Path(scratch) / "built" / "html"  # myst-nb writes beside the site too
        (source / "extra").mkdir(parents=True)
        shutil.copytree(HERE / "static", source / "_static")
        (source / "_static" / "itables.js").write_text(table_script(), encoding="utf-8")
        title = write(source)
        _build(source, built, Path(scratch) / "doctrees", title)
        shutil.copytree(built, temporary, dirs_exist_ok=True)
    return folder / "index.html"


def _build(source: Path, folder: Path, doctrees: Path, title: str) -> None:
    """Run Sphinx; its warnings are logged."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    said, settings = io.StringIO(), CONFIGURATION | {"html_title": title}
    with patch_docutils(), docutils_namespace():
        app = Sphinx(source, None, folder, doctrees, "html", settings, status=None, warning=said, freshenv=True)
        app.build(force_all=True)
    warnings = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue()).strip()
    if app.statuscode:
        raise HeaddivError(f"{source}: Sphinx failed: {warnings}")
    if warnings:
        log.warning(warnings)
    (folder / ".buildinfo").unlink(missing_ok=True)
