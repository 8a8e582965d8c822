"""What a project's folder begins with: workflow, profiles and notebooks, which the wheel brings along."""

from __future__ import annotations

import shlex
from pathlib import Path

from headdiv import __version__
from headdiv.companion import paths
from headdiv.core.errors import ConfigError
from headdiv.core.files import replacing

# The pages that the other parts, and these pages themselves, link to.
PAGES = ("appendix", "architectures", "checklist", "cluster", "contest", "gpu", "pretrained", "results")
DOCS = tuple(f"docs/{page}.md" for page in PAGES)
PARTS = ("Snakefile", "config", "notebooks", "profiles", "data/README.md", *DOCS)
# The repository's own installs the package from its folder.
ENVIRONMENT = f"""\
name: headdiv
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python=3.11
  - pip
  - pip:
      - headdiv[pipeline]=={__version__}
"""

NEXT = """
Next:
  cd {folder}{run}
  headdiv demo            # two small models, about a minute
  snakemake reproduce-all # all five papers, small, minutes
  jupyter lab notebooks/  # begin with your_method.ipynb
Your own data: data/README.md; your own methods and all settings: config/README.md
The stored results that docs/results.md links to (results/) are in headdiv's repository only."""


def next_steps(folder: Path, profile: str | None = None) -> str:
    """What can be done in a project's folder, as commands for a shell; first with a profile of one's own, if any."""
    run = f"\n  snakemake reproduce-all --config profile={profile}" if profile else ""
    return NEXT.format(folder=shlex.quote(str(folder)), run=run)


def write_project(folder: Path) -> list[Path]:
    """Write what is missing into ``folder``, made if it is not there; files that are there stay. Returns those written.

    Raises:
        ConfigError: ``folder`` is a file.
        StorageError: it cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder}: expected a folder, found a file")
    source = paths.shipped()
    contents = {folder / "environment.yml": ENVIRONMENT.encode()}
    files = (file for part in PARTS for file in (source / part, *(source / part).rglob("*")) if file.is_file())
    contents |= {folder / file.relative_to(source): file.read_bytes() for file in files}
    missing = [path for path in contents if not path.exists()]
    for path in missing:
        with replacing(path) as temporary:  # a file that is there stays, so it must be whole
            temporary.write_bytes(contents[path])
    return missing
