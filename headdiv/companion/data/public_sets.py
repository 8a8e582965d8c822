"""The registry of public data sets (``sets.yaml``), and their download with checked checksums."""

from __future__ import annotations

import functools
import gzip
import os
import shutil
import sys
import zlib
from pathlib import Path

import pooch
import pydantic

from headdiv.core.errors import DataError
from headdiv.core.settings import Settings, Source, check, nearest

REGISTRY = Path(__file__).with_name("sets.yaml")
MIRROR = "HEADDIV_MIRROR"
TIMEOUT = 30.0  # seconds to wait for a connection, and then for each next piece of data
RETRIES = 3  # of an address

pooch.get_logger().setLevel("WARNING")


class RemoteFile(Settings):
    """A file's address and its published checksum, if there is one; of two the sha256 is checked."""

    url: str = pydantic.Field(pattern=r"^https?://\S+$")
    sha256: str | None = pydantic.Field(None, pattern=r"^[0-9a-f]{64}$")
    md5: str | None = pydantic.Field(None, pattern=r"^[0-9a-f]{32}$")

    @property
    def identity(self) -> str:
        """Identifies the file before it is fetched, in the names of prepared corpora: its checksum, else its address.

        A sha256 that is added to a known md5, or an address that becomes https, leaves those names as they are.
        """
        return self.md5 or self.sha256 or self.url.replace("https://", "http://", 1)


class SplitEntry(Settings):
    """How many examples a split holds, and its files by role (``{"en": "train.en.gz"}``)."""

    count: int
    files: dict[str, str]


class DataSet(Settings):
    """One public data set: its files by name, its splits by name, its licence and where to cite it."""

    title: str
    licence: str
    licence_source: str
    homepage: str
    citation: str
    files: dict[str, RemoteFile]
    splits: dict[str, SplitEntry]


class _Registry(pydantic.RootModel[dict[str, DataSet]]):
    """The whole file."""


@functools.cache
def load_registry(path: Path | str = REGISTRY) -> dict[str, DataSet]:
    """Read the registry of data sets, once a process.

    Raises:
        ConfigError: the file is not YAML, or an entry is wrong; the message names file, line and key.
    """
    source = Source(path)
    return check(_Registry, source.data, source=source).root


def fetch(name: str, folder: Path | str) -> Path:
    """Bring every file of a data set into ``<folder>/<name>``, each with its right checksum; returns that folder.

    A file with the right checksum is left alone, one with another is fetched again. Files are taken from
    ``$HEADDIV_MIRROR/<name>/`` if they are there, else from their public address. Nothing is unpacked. A file without
    a published checksum is right wherever it is there.

    Raises:
        DataError: the set is unknown, HEADDIV_MIRROR names no folder, or a file cannot be fetched or has another
            checksum than expected.
    """
    registry = load_registry()
    if name not in registry:
        raise DataError(f"data set {name!r} is not known{nearest(name, list(registry))}")
    set_folder = Path(folder) / name
    for file, remote in registry[name].files.items():
        _fetch_file(remote, set_folder / file)
    return set_folder


def _fetch_file(remote: RemoteFile, target: Path) -> None:
    file, name = target.name, target.parent.name
    expected = remote.sha256 or (remote.md5 and f"md5:{remote.md5}")
    copy = _find_in_mirror(name, file)

    def download(url: str, output: str, store: pooch.Pooch) -> None:
        if copy is None:
            pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)(url, output, store)
        else:
            with gzip.open(copy) if copy.name != file else copy.open("rb") as source, open(output, "wb") as destination:
                shutil.copyfileobj(source, destination)
        os.chmod(output, 0o644)  # pooch's temporary files are for their owner alone

    retries = RETRIES if copy is None else 0
    registry, urls = {file: expected}, {file: remote.url}
    try:
        fetcher = pooch.create(target.parent, "", registry=registry, urls=urls, retry_if_failed=retries)
        fetcher.fetch(file, downloader=download)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: could not be fetched from {copy or remote.url} ({error}); try again later, or set {MIRROR} to a "
            f"folder that holds {name}/{file}"
        ) from None


def _find_in_mirror(name: str, file: str) -> Path | None:
    """The mirror's copy of a file, which may be packed (``.gz``); None where there is none."""
    value = os.environ.get(MIRROR, "")
    if not value:
        return None
    mirror = Path(value).expanduser()
    if not mirror.is_dir():
        raise DataError(f"{MIRROR} is set to {value!r}, which is not a folder; correct it or unset it")
    copies = (mirror / name / file, mirror / name / f"{file}.gz")
    return next((copy for copy in copies if copy.is_file()), None)
