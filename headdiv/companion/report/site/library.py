"""What a site has beside a profile's results: the repository's documents, the library's names, scripts of others."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

from headdiv.core.errors import HeaddivError

REPOSITORY = Path(__file__).resolve().parents[4]
# Documents of the repository with their short names, in the menu's order; others of docs/ follow under their titles.
# They are not there where headdiv is installed without its repository.
DOCUMENTS = {
    "docs/results.md": "Results",
    "docs/contest.md": "Contest, rules",
    "docs/checklist.md": "Checklist",
    "docs/papers.md": "Papers, BibTeX",
    "docs/guide.md": "Guide",
    "config/README.md": "Profiles",
    "data/README.md": "Data",
    "docs/library.md": "Library",
    "docs/heads.md": "Heads",
    "docs/training.md": "Training loops",
    "docs/pretrained.md": "Hugging Face models",
    "docs/architectures.md": "Their architectures",
    "docs/glossary.md": "Glossary",
    "docs/gpu.md": "GPUs",
    "docs/cluster.md": "Clusters",
    "docs/design.md": "Design",
    "CONTRIBUTING.md": "Contributing",
}


def documents() -> dict[str, str]:
    """The short name of each document that is there ("" for its title), by its path in the repository."""
    others = dict.fromkeys((f"docs/{path.name}" for path in sorted(REPOSITORY.glob("docs/*.md"))), "")
    return {path: name for path, name in (DOCUMENTS | others | DOCUMENTS).items() if (REPOSITORY / path).is_file()}


def pictures(document: str) -> list[str]:
    """The pictures that a document shows, by their paths in the repository."""
    path = REPOSITORY / document
    found = (path.parent / name for name in re.findall(r"!\[.*?\]\((.+?)\)", path.read_text(encoding="utf-8")))
    return [one.resolve().relative_to(REPOSITORY).as_posix() for one in found if one.is_file()]


def table_script() -> str:
    """DataTables, from itables, as a script that pages from disk can load: ``window._itables`` is its module."""
    from itables.javascript import generate_init_offline_itables_html

    bundle = Path(str(distribution("itables").locate_file("itables/html/dt_bundle.js")))
    script = generate_init_offline_itables_html(bundle).partition("<script>")[2].partition("</script>")[0]
    return re.sub(r"_itables_\d\w*", "_itables", script)  # whatever its version


def plotly_script() -> Path:
    """Plotly, as its package brings it."""
    return Path(str(distribution("plotly").locate_file("plotly/package_data/plotly.min.js")))


def public_names() -> dict[str, list[tuple[str, str]]]:
    """What is documented of the library, by the package that offers it: ("function" or "class", dotted name)."""
    library, groups = import_module("headdiv"), {}
    for holder in (library, *filter(inspect.ismodule, (getattr(library, name) for name in library.__all__))):
        for name in holder.__all__:
            try:
                found = getattr(holder, name)
            except HeaddivError:  # it is of a package that is not installed
                continue
            if not inspect.ismodule(found):
                kind = "class" if inspect.isclass(found) else "function"
                groups.setdefault(holder.__name__, []).append((kind, f"{holder.__name__}.{name}"))
    return groups
