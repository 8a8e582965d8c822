"""The registry of public data sets (``sets.yaml``), and their download with checked checksums."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
import requests
import urllib3
import yaml
from tqdm.auto import tqdm

from headdiv.core.errors import DataError
from headdiv.core.files import checksum, replacing, write_text

log = logging.getLogger(__name__)

REGISTRY = Path(__file__).with_name("sets.yaml")
MIRROR = "HEADDIV_MIRROR"
CHUNK = 1 << 16

# Names become paths below the data folder, so they may not contain a slash or start with a dot.
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
Address = Annotated[str, pydantic.StringConstraints(pattern=r"^https?://\S+$")]
Sha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class _Entry(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


class RemoteFile(_Entry):
    """A file's address and the one checksum that is known of it.

    ``pin: true`` says that none is published. That of the first download is then kept beside the file, as
    ``<file>.sha256``, and holds for every later one.
    """

    url: Address
    sha256: Sha256 | None = None
    md5: Md5 | None = None
    pin: bool = False

    @pydantic.model_validator(mode="after")
    def _one_checksum(self) -> Self:
        if (self.sha256 is not None) + (self.md5 is not None) + self.pin != 1:
            raise ValueError("expected one of sha256 and md5, or pin: true where no checksum is published")
        return self

    @property
    def identity(self) -> str:
        """What tells the file from others, known before it is fetched: its checksum, else its address."""
        return self.digest or self.url

    @property
    def algorithm(self) -> Literal["sha256", "md5"]:
        """Which checksum is known; sha256 where none is."""
        return "md5" if self.md5 is not None else "sha256"

    @property
    def digest(self) -> str:
        """The known checksum, in hexadecimal digits; empty where none is."""
        return self.sha256 or self.md5 or ""


class SplitEntry(_Entry):
    """How many examples a split holds, and which file plays which part (``{"en": "train.en.gz"}``)."""

    count: pydantic.PositiveInt
    files: dict[str, Name]


class DataSet(_Entry):
    """One public data set: its files by name, its splits by name, its licence and where to cite it."""

    title: str
    licence: str
    licence_source: Address
    homepage: Address
    citation: str
    files: dict[Name, RemoteFile]
    splits: dict[str, SplitEntry]

    @pydantic.model_validator(mode="after")
    def _files_of_splits_are_listed(self) -> Self:
        for split, entry in self.splits.items():
            for file in entry.files.values():
                if file not in self.files:
                    raise ValueError(f"split {split} names {file}, which is not among the files")
        return self


def load_registry(path: Path | str = REGISTRY) -> dict[str, DataSet]:
    """Read the registry of data sets.

    Raises:
        DataError: the file is missing or not YAML, or an entry is wrong (an unknown key, no checksum,
            a split whose file is not listed); the message names file and entry.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return pydantic.TypeAdapter(dict[Name, DataSet]).validate_python(content)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = " > ".join(str(part) for part in first["loc"]) or "top level"
        raise DataError(f"{path}, {where}: {first['msg']}") from None


def fetch(
    name: str,
    folder: Path | str,
    *,
    registry: Mapping[str, DataSet] | None = None,
    progress: bool | None = None,
    timeout: float = 30.0,
    attempts: int = 4,
    pause: float = 1.0,
) -> Path:
    """Bring every file of a data set into ``<folder>/<name>``, each with its right checksum.

    A file that is there and right is left alone; one that is there and wrong is thrown away and fetched
    again. Files are looked for in ``$HEADDIV_MIRROR/<name>/`` first, then at their public address. An
    interrupted download stays as ``<file>.part`` and is resumed. Nothing is unpacked. Of a file without a
    published checksum the first one fetched, or found in place, is right from then on.

    Args:
        name: the set's name in the registry.
        folder: the folder of raw data sets.
        registry: the known sets; None reads ``sets.yaml``.
        progress: whether to show a bar for each download; None shows it if stderr is a terminal.
        timeout: the seconds to wait for a connection, and then for each next piece of data.
        attempts: how often an address is asked before giving up.
        pause: the seconds to wait before the second attempt; doubled before each further one.

    Returns:
        The folder ``<folder>/<name>``.

    Raises:
        DataError: the set is unknown, HEADDIV_MIRROR names no folder, a file cannot be fetched or has
            another checksum than expected, or the folder cannot be written.
    """
    known = load_registry() if registry is None else registry
    if name not in known:
        raise DataError(f"no data set is called {name!r}, expected one of: {', '.join(sorted(known))}")
    mirror = _mirror()
    home = Path(folder) / name
    for file, remote in known[name].files.items():
        target = home / file
        try:
            home.mkdir(parents=True, exist_ok=True)
            known_as = _pinned(target, remote)
            if not _in_place(target, known_as):
                if not (mirror and _copy(mirror / name / file, target, known_as)):
                    _download(known_as, target, progress=progress, timeout=timeout, attempts=attempts, pause=pause)
                _part_of(target).unlink(missing_ok=True)
            if not known_as.digest:
                _pin(target)
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


def _part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _pin_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _pin(target: Path) -> None:
    digest = checksum(target)
    write_text(_pin_of(target), f"{digest}  {target.name}\n")  # as sha256sum writes and checks it
    log.info("%s: no checksum is published; its sha256, %s, holds from now on", target, digest)


def _pinned(target: Path, remote: RemoteFile) -> RemoteFile:
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


def _in_place(target: Path, remote: RemoteFile) -> bool:
    if not target.exists():
        return False
    if not remote.digest:
        return True
    found = checksum(target, remote.algorithm)
    if found == remote.digest:
        return True
    log.warning(
        "%s: %s is %s, expected %s; the file is thrown away and fetched again",
        *(target, remote.algorithm, found, remote.digest),
    )
    target.unlink()
    return False


def _copy(source: Path, target: Path, remote: RemoteFile) -> bool:
    """Copy a file out of the mirror; False when it is not there or not right."""
    try:
        found = checksum(source, remote.algorithm)
        right = found == remote.digest or not remote.digest
    except FileNotFoundError:
        log.info("%s: not in the mirror, going on to %s", source, remote.url)
        return False
    except OSError as error:
        log.warning("%s: the mirror's file cannot be read (%s), going on to %s", source, error, remote.url)
        return False
    if not right:
        log.warning(
            "%s: the mirror's file is damaged, its %s is %s, expected %s; going on to %s",
            *(source, remote.algorithm, found, remote.digest, remote.url),
        )
        return False
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
    log.info("%s: copied from %s", target, source)
    return True


def _download(
    remote: RemoteFile, target: Path, *, progress: bool | None, timeout: float, attempts: int, pause: float
) -> None:
    """Download to ``<target>.part``, and rename it once its checksum is right."""
    part = _part_of(target)
    found = ""
    if not remote.digest:  # nothing would tell that the two halves of a resumed file belong to two versions
        part.unlink(missing_ok=True)
    for again in (True, False):
        # An earlier run may have been stopped between the last byte and the renaming.
        if not part.exists() or checksum(part, remote.algorithm) != remote.digest:
            _receive_stubbornly(remote.url, part, progress=progress, timeout=timeout, attempts=attempts, pause=pause)
        found = checksum(part, remote.algorithm)
        if found == remote.digest or not remote.digest:
            os.replace(part, target)
            log.info("%s: fetched from %s", target, remote.url)
            return
        part.unlink()
        if again:  # a resumed file may have changed at its source between the two halves
            log.warning(
                "%s: %s is %s after the download, expected %s; trying once more from the start",
                *(target, remote.algorithm, found, remote.digest),
            )
    pin = _pin_of(target)
    kept = pin.exists()
    raise DataError(
        f"{target.name}: what {remote.url} sends has the {remote.algorithm} {found}, expected "
        f"{remote.digest}; try again later, or set {MIRROR} to a folder that holds a good copy at "
        f"{target.parent.name}/{target.name}"
        + (f"; {pin} keeps the checksum of the first download, delete it to take another file" if kept else "")
    )


def _receive_stubbornly(
    url: str, part: Path, *, progress: bool | None, timeout: float, attempts: int, pause: float
) -> None:
    name = part.name.removesuffix(".part")
    cause, made = "no attempt was made", 0
    while made < attempts:
        if made:
            wait = pause * 2 ** (made - 1)
            log.warning("%s: %s; next attempt at %s in %g s", name, cause, url, wait)
            time.sleep(wait)
        made += 1
        try:
            _receive(url, part, progress=progress, timeout=timeout)
            return
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            log.debug("%s: %r", url, error)
            cause = _in_words(error, timeout)
            if _is_final(error):
                break
    raise DataError(
        f"{name}: could not be fetched from {url} ({cause}; attempts made: {made}); "
        f"try again later, or set {MIRROR} to a folder that holds {part.parent.name}/{name}"
    )


def _receive(url: str, part: Path, *, progress: bool | None, timeout: float) -> None:
    """Ask the address once, for as much as is still missing in ``part``."""
    offset = part.stat().st_size if part.exists() else 0
    response = _ask(url, offset, timeout)
    answered_range = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
    if offset and (response.status_code == 416 or (response.status_code == 206 and not answered_range)):
        # The part is no beginning of what the server has: too long, or of another version.
        response.close()
        part.unlink()
        offset = 0
        response = _ask(url, offset, timeout)
    with response:
        response.raise_for_status()
        if response.status_code != 206:
            offset = 0  # the server ignores Range and sends everything
        length = response.headers.get("Content-Length", "")
        bar = tqdm(
            desc=part.name.removesuffix(".part"),
            total=offset + int(length) if length.isdecimal() else None,
            initial=offset,
            unit="B",
            unit_scale=True,
            disable=None if progress is None else not progress,  # None: off unless it is a terminal
        )
        with bar, part.open("ab" if offset else "wb") as file:
            # Not iter_content: some servers label a .gz file as gzip-encoded, and it would be unpacked.
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                file.write(chunk)
                bar.update(len(chunk))


def _ask(url: str, offset: int, timeout: float) -> requests.Response:
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    return requests.get(url, headers=headers, stream=True, timeout=timeout)


def _is_final(error: Exception) -> bool:
    """Whether asking again is useless: the server's refusals, except "too slow" and "too many"."""
    if not isinstance(error, requests.HTTPError) or error.response is None:
        return False
    return error.response.status_code < 500 and error.response.status_code not in (408, 425, 429)


def _in_words(error: Exception, timeout: float) -> str:
    match error:
        case requests.HTTPError(response=requests.Response() as response):
            return f"the server answered {response.status_code} {response.reason}"
        case requests.Timeout() | urllib3.exceptions.TimeoutError():
            return f"no answer within {timeout:g} s"
        case requests.exceptions.SSLError():
            return "no secure connection could be made"
        case requests.ConnectionError():
            return "no connection"
        case urllib3.exceptions.ProtocolError():
            return "the connection broke off"
    return type(error).__name__
