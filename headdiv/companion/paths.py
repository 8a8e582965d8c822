"""Paths of the project: its folder and the folders below it."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

from headdiv.core.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")  # of a profile: a folder, part of addresses and of commands


def home() -> Path:
    """The project's folder: HEADDIV_HOME, else the nearest folder upwards that holds a Snakefile, else here.

    Notebooks run in ``notebooks/`` and commands at the top; both find the same data and results.

    Raises:
        ConfigError: HEADDIV_HOME is no folder.
    """
    if setting := os.environ.get("HEADDIV_HOME"):
        if not Path(setting).is_dir():
            raise ConfigError(f"HEADDIV_HOME is set to {setting!r}, which is not a folder; correct it or unset it")
        return Path(setting).resolve()
    current = Path.cwd()
    for folder in (current, *current.parents):
        if (folder / "Snakefile").is_file():
            return folder
    return current


def raw() -> Path:
    """Downloads, one folder a data set."""
    return home() / "data" / "raw"


def prepared() -> Path:
    """Corpora as word indices, one folder for each way of preparing."""
    return home() / "data" / "prepared"


def work() -> Path:
    """Trained models and checkpoints, one folder a run, named by its configuration and the content of its corpus."""
    return home() / "work"


def results(profile: str) -> Path:
    """Metrics, tables and figures of a profile, given by name or as a path: ``results/<its file's name>``.

    Raises:
        ConfigError: its name is not allowed (`NAME`), or that of another file in ``config``, whose results lie there.
    """
    file = profile_file(profile)
    if not NAME.fullmatch(file.stem):
        raise ConfigError(
            f"{file}: a profile's name is made of letters (a to z), digits, '.', '_' and '-', without a dot in front; "
            f"found {file.stem!r}"
        )
    folder, namesake = home() / "results" / file.stem, home() / "config" / f"{file.stem}.yaml"
    if namesake.is_file() and namesake.resolve() != file.resolve():
        raise ConfigError(f"{file}: {folder} holds the results of {namesake}; give one of the two another name")
    return folder


def profiles_folder() -> Path:
    """Where the profiles lie that have a name: a project without a folder ``config`` has those of the package."""
    folder = home() / "config"
    return folder if folder.is_dir() else shipped() / "config"


def profile_file(profile: str) -> Path:
    """The configuration of a profile, given by name (``quick``) or as a path (``my/own.yaml``)."""
    return Path(profile) if profile.endswith((".yaml", ".yml")) else profiles_folder() / f"{profile}.yaml"


def shipped() -> Path:
    """The folder with the package's own workflow, profiles and notebooks: the repository, or where the wheel put them.

    Raises:
        ConfigError: they are not there.
    """
    repository = Path(__file__).parents[2]
    if (repository / "Snakefile").is_file():
        return repository
    try:
        files = importlib.metadata.files("headdiv") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.match("share/headdiv/Snakefile"):
            return Path(file.locate()).resolve().parent
    raise ConfigError("profiles and notebooks: not found; expected an installed package or a copy of the repository")
