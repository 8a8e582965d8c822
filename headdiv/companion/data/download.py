"""Download of the registry's data sets, with checked checksums."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import zlib
from pathlib import Path

import pooch

from headdiv.companion.data import public_sets as public
from headdiv.companion.data.public_sets import RemoteFile
from headdiv.core.errors import DataError
from headdiv.core.files import checksum, write_text
from headdiv.core.settings import nearest

MIRROR = "HEADDIV_MIRROR"
TIMEOUT = 30.0  # seconds to wait for a connection, and then for each next piece of data
RETRIES = 3  # of an address

pooch.get_logger().setLevel("WARNING")


def fetch(name: str, folder: Path | str) -> Path:
    """Bring every file of a data set into ``<folder>/<name>``, each with its right checksum; returns that folder.

    A file that is there and right is left alone; one that is there and wrong is fetched again. Files are taken from
    ``$HEADDIV_MIRROR/<name>/`` where they are there, else from their public address. Nothing is unpacked. Of a file
    without a published checksum the first one fetched, or found in place, is right from then on.

    Raises:
        DataError: the set is unknown, HEADDIV_MIRROR names no folder, or a file cannot be fetched or has another
            checksum than expected.
    """
    known = public.load_registry()
    if name not in known:
        raise DataError(f"data set {name!r} is not known{nearest(name, list(known))}")
    home = Path(folder) / name
    for file, remote in known[name].files.items():
        _fetch_file(remote, home / file)
    return home


def _fetch_file(remote: RemoteFile, target: Path) -> None:
    file, name = target.name, target.parent.name
    pin = target.with_name(f"{file}.sha256")
    expected = remote.checksum
    if expected is None and pin.is_file():
        expected = f"sha256:{pin.read_text(encoding='utf-8').split()[0]}"
    copy = _mirrored(name, file)

    def download(url: str, output: str, store: pooch.Pooch) -> None:
        if copy is None:
            pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)(url, output, store)
        else:
            _copy(copy, output, packed=copy.name != file)
        os.chmod(output, 0o644)  # pooch's temporary files are for their owner alone

    retries = RETRIES if copy is None else 0
    known = {"registry": {file: expected}, "urls": {file: remote.url}}
    try:
        pooch.create(target.parent, "", retry_if_failed=retries, **known).fetch(file, downloader=download)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        held = f"; {pin} keeps the checksum of the first download" if pin.is_file() else ""
        raise DataError(
            f"{file}: could not be fetched from {copy or remote.url} ({error}); try again later, or set {MIRROR} to a "
            f"folder that holds {name}/{file}{held}"
        ) from None
    if expected is None:
        write_text(pin, f"{checksum(target)}  {file}\n")  # as sha256sum writes and checks it


def _mirrored(name: str, file: str) -> Path | None:
    """The mirror's copy of a file, which may be packed (``.gz``); None where there is none."""
    value = os.environ.get(MIRROR, "")
    if not value:
        return None
    mirror = Path(value).expanduser()
    if not mirror.is_dir():
        raise DataError(f"{MIRROR} is set to {value!r}, which is not a folder; correct it or unset it")
    copies = (mirror / name / file, mirror / name / f"{file}.gz")
    return next((copy for copy in copies if copy.is_file()), None)


def _copy(source: Path, target: str, packed: bool) -> None:
    with gzip.open(source) if packed else source.open("rb") as opened, Path(target).open("wb") as file:
        shutil.copyfileobj(opened, file)
