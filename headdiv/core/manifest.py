"""Checksums beside files: ``SHA256SUMS`` in a folder of checkpoints, of a finished run, or of prepared data.

`sha256sum -c` reads it.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from headdiv.core.errors import DamageError
from headdiv.core.files import checksum, write_text

MANIFEST = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\0-\x1f]+)")

log = logging.getLogger(__name__)


def note(folder: Path, *names: str) -> None:
    """Write the checksums of these files, paths within the folder, into its manifest; of all where none is named.

    A missing file loses its line.
    """
    kept = {name: digest for name, digest in _read(folder).items() if names and name not in names}
    new = {name: checksum(folder / name) for name in names or _file_names(folder) if (folder / name).is_file()}
    write_text(folder / MANIFEST, "".join(f"{digest}  {name}\n" for name, digest in sorted((kept | new).items())))


def check(folder: Path, *names: str) -> None:
    """Compare files with their checksums: those of these names, or all that the manifest has.

    Raises:
        DamageError: a file is missing, has no checksum, cannot be read or is not what was written; or the manifest
            is missing.
        PermissionError: this user may not read it.
    """
    digests = _read(folder)
    if not digests:
        raise DamageError(f"{folder / MANIFEST}: missing or empty")
    for name in names or digests:
        path = folder / name
        if name not in digests:
            raise DamageError(f"{path}: has no checksum in {MANIFEST}")
        try:
            digest = checksum(path)
        except FileNotFoundError:
            raise DamageError(f"{path}: missing") from None
        except PermissionError:  # not damage
            raise
        except OSError as error:
            raise DamageError(f"{path}: cannot be read ({error.strerror or error})") from None
        if digest != digests[name]:
            raise DamageError(f"{path}: damaged, its sha256 is {digest[:12]}…, expected {digests[name][:12]}…")


def whole(path: Path, remedy: str) -> bool:
    """Whether a file is there and as it was written. If it is damaged, a warning says so, with the remedy."""
    if not path.is_file():
        return False
    try:
        check(path.parent, path.name)
    except DamageError as error:
        log.warning("%s; %s", error, remedy)
        return False
    return True


def _read(folder: Path) -> dict[str, str]:
    """Checksums by name; a malformed line counts as missing."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {match[2]: match[1] for line in text.split("\n") if (match := _LINE.fullmatch(line))}


def _file_names(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix() for path in paths if path.name != MANIFEST)
