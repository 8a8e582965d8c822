"""Download of the registry's data sets, with checked checksums."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import pydantic
import requests
import urllib3
from filelock import FileLock
from tqdm.auto import tqdm

from headdiv.companion.data import public_sets as public
from headdiv.companion.data.public_sets import RemoteFile
from headdiv.core.errors import DamageError, DataError
from headdiv.core.files import checksum, replacing, write_text
from headdiv.core.settings import nearest

log = logging.getLogger(__name__)

MIRROR = "HEADDIV_MIRROR"
CHUNK = 1 << 16  # bytes
TIMEOUT = 30.0  # seconds to wait for a connection, and then for each next piece of data
ATTEMPTS = 4  # how often an address is asked before giving up
PAUSE = 1.0  # seconds before the second attempt; doubled before each further one


def fetch(name: str, folder: Path | str, unverified: bool = False) -> Path:
    """Bring every file of a data set into ``<folder>/<name>``, each with its right checksum; returns that folder.

    A file that is there and right is left alone; one that is there and wrong is deleted and fetched
    again. Files are looked for in ``$HEADDIV_MIRROR/<name>/`` first, then at their public address. An
    interrupted download stays as ``<file>.part`` and is resumed; of two processes the second waits. Nothing is
    unpacked. Of a file without a published checksum the first one fetched, or found in place, is right from then
    on. ``unverified`` takes a file that neither a sha256 nor a secured connection shows to be its owner's.

    Raises:
        DataError: the set is unknown, HEADDIV_MIRROR names no folder, a file cannot be fetched or has
            another checksum than expected or could be anybody's, or the folder cannot be written.
    """
    known = public.load_registry()
    if name not in known:
        raise DataError(f"data set {name!r} is not known{nearest(name, list(known))}")
    mirror = _mirror()
    home = Path(folder) / name
    for file, remote in known[name].files.items():
        target = home / file
        try:
            home.mkdir(parents=True, exist_ok=True)
            if _whole(target, _with_pin(target, remote)):
                continue
            with FileLock(home.with_name(f".{name}.lock")):  # another process may be at it
                remote = _with_pin(target, remote)
                if not _in_place(target, remote):
                    if not (mirror and _mirrored(mirror / name / file, target, remote)):
                        _Download(remote, target, unverified).run()
                    target.with_name(f"{file}.part").unlink(missing_ok=True)
                if not remote.digest:
                    digest = checksum(target)
                    write_text(_pin_of(target), f"{digest}  {file}\n")  # as sha256sum writes and checks it
                    log.info("%s: no checksum is published; its sha256, %s, holds from now on", target, digest)
        except OSError as error:
            raise DataError(f"{target}: cannot be written ({error.strerror or error})") from None
    return home


def _mirror() -> Path | None:
    value = os.environ.get(MIRROR, "")
    if not value:
        return None
    mirror = Path(value).expanduser()
    if not mirror.is_dir():
        raise DataError(f"{MIRROR} is set to {value!r}, which is not a folder; correct it or unset it")
    return mirror


def _pin_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _with_pin(target: Path, remote: RemoteFile) -> RemoteFile:
    """The file with the checksum of its first download, where none is published and there was one."""
    path = _pin_of(target)
    if not remote.pin or not path.exists():
        return remote
    found = path.read_text(encoding="utf-8", errors="replace").split()
    try:
        return RemoteFile(url=remote.url, sha256=found[0] if found else "")
    except pydantic.ValidationError:
        raise DataError(
            f"{path}: found {' '.join(found)[:80]!r}, expected the sha256 of {target.name}; "
            "delete it to take the file as it is"
        ) from None


def _whole(target: Path, remote: RemoteFile) -> bool:
    """Whether the file is there with its known checksum."""
    try:
        return remote.digest != "" and remote.accepts(checksum(target, remote.algorithm))
    except FileNotFoundError:
        return False


def _in_place(target: Path, remote: RemoteFile) -> bool:
    if not target.exists():
        return False
    found = checksum(target, remote.algorithm)
    if remote.accepts(found):
        return True
    log.warning(
        "%s: %s is %s, expected %s; the file is deleted and fetched again",
        *(target, remote.algorithm, found, remote.digest),
    )
    target.unlink()
    return False


def _mirrored(source: Path, target: Path, remote: RemoteFile) -> bool:
    """Copy a file out of the mirror, where it may be packed (``.gz``); False when it is not there or not right."""
    packed = source.with_name(f"{source.name}.gz")
    try:
        with replacing(target) as temporary:
            if source.exists() or not packed.exists():
                shutil.copyfile(source, temporary)
            else:
                source = packed
                with gzip.open(packed) as unpacked, temporary.open("wb") as file:
                    shutil.copyfileobj(unpacked, file)
            if not remote.accepts(found := checksum(temporary, remote.algorithm)):
                raise DamageError(f"is damaged, its {remote.algorithm} is {found}, expected {remote.digest}")
    except FileNotFoundError:
        log.info("%s: not in the mirror, going on to %s", source, remote.url)
        return False
    except (DamageError, OSError, EOFError, zlib.error) as error:
        read = isinstance(error, DamageError)
        what = error if read else f"cannot be read ({getattr(error, 'strerror', 0) or error})"
        log.warning("%s: the mirror's file %s; going on to %s", source, what, remote.url)
        return False
    log.info("%s: copied from %s", target, source)
    return True


@dataclass
class _Download:
    """The download of one file; see `fetch`."""

    remote: RemoteFile
    target: Path
    unverified: bool

    def __post_init__(self) -> None:
        self.part = self.target.with_name(f"{self.target.name}.part")

    def run(self) -> None:
        """Download to ``<target>.part``, and rename it once its checksum is right."""
        remote, target, part = self.remote, self.target, self.part
        if not remote.authenticated:
            self.refuse(remote.url)
        if not remote.digest:  # nothing would tell that the two halves of a resumed file belong to two versions
            part.unlink(missing_ok=True)
        for last in (False, True):
            # An earlier run may have been stopped between the last byte and the renaming.
            if not part.exists() or checksum(part, remote.algorithm) != remote.digest:
                self.receive()
            found = checksum(part, remote.algorithm)
            if remote.accepts(found):
                os.replace(part, target)
                log.info("%s: fetched from %s", target, remote.url)
                return
            part.unlink()
            if not last:  # a resumed file may have changed at its source between the two halves
                log.warning(
                    "%s: %s is %s after the download, expected %s; trying once more from the start",
                    *(target, remote.algorithm, found, remote.digest),
                )
        pin = _pin_of(target)
        raise DataError(
            f"{target.name}: what {remote.url} sends has the {remote.algorithm} {found}, expected "
            f"{remote.digest}; try again later, or set {MIRROR} to a folder that holds a good copy at "
            f"{target.parent.name}/{target.name}"
            + f"; {pin} keeps the checksum of the first download, delete it to take another file"
            * pin.exists()
        )

    def receive(self) -> None:
        """Ask the address until all of ``part`` is there, at most `ATTEMPTS` times."""
        url, name = self.remote.url, self.target.name
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._receive_once()
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                log.debug("%s: %r", url, error)
                cause = _in_words(error)
                answer = error.response if isinstance(error, requests.HTTPError) else None
                final = answer is not None and answer.status_code < 500 and answer.status_code not in (408, 425, 429)
                if final or attempt == ATTEMPTS:  # asking again is useless unless it was too slow, or too often
                    raise DataError(
                        f"{name}: could not be fetched from {url} ({cause}; attempts made: {attempt}); "
                        f"try again later, or set {MIRROR} to a folder that holds {self.target.parent.name}/{name}"
                    ) from None
            wait = PAUSE * 2 ** (attempt - 1)
            log.warning("%s: %s; next attempt at %s in %g s", name, cause, url, wait)
            time.sleep(wait)

    def _receive_once(self) -> None:
        offset = self.part.stat().st_size if self.part.exists() else 0
        response = self._ask(offset)
        answered_range = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if offset and (response.status_code == 416 or (response.status_code == 206 and not answered_range)):
            # The part is no beginning of what the server has: too long, or of another version.
            response.close()
            self.part.unlink()
            offset = 0
            response = self._ask(offset)
        with response:
            response.raise_for_status()
            if response.status_code != 206:
                offset = 0  # the server ignores Range and sends everything
            length = response.headers.get("Content-Length", "")
            bar = tqdm(
                desc=self.target.name,
                total=offset + int(length) if length.isdecimal() else None,
                initial=offset,
                unit="B",
                unit_scale=True,
                disable=None,  # off unless it is a terminal
            )
            with bar, self.part.open("ab" if offset else "wb") as file:
                # Not iter_content: some servers label a .gz file as gzip-encoded, and it would be unpacked.
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)
                    bar.update(len(chunk))

    def _ask(self, offset: int) -> requests.Response:
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
        response = requests.get(self.remote.url, headers=headers, stream=True, timeout=TIMEOUT)
        if self.remote.sha256 is None and not response.url.startswith("https://"):  # it was sent on
            self.refuse(response.url)
        return response

    def refuse(self, url: str) -> None:
        """Raise a DataError, unless the user takes what nothing shows to be the owner's file."""
        if not self.unverified:
            name = self.target.parent.name
            raise DataError(
                f"{self.target.name}: the connection to {url} is not secured and no sha256 is known, so what comes "
                f"may be anybody's; `headdiv fetch {name} --unverified` takes it, or set {MIRROR} to a folder that "
                f"holds {name}/{self.target.name}"
            )


def _in_words(error: Exception) -> str:
    match error:
        case requests.HTTPError(response=requests.Response() as response):
            return f"the server answered {response.status_code} {response.reason}"
        case requests.Timeout() | urllib3.exceptions.TimeoutError():
            return f"no answer within {TIMEOUT:g} s"
        case requests.exceptions.SSLError():
            return "no secure connection could be made"
        case requests.ConnectionError():
            return "no connection"
        case urllib3.exceptions.ProtocolError():
            return "the connection broke off"
    return type(error).__name__
