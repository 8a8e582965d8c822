"""Whole files only: everything is written under a temporary name beside its target and then renamed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from headdiv.core.errors import DataError, StorageError


@contextlib.contextmanager
def replacing(target: Path | str, flush: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the target's folder; rename it to ``target`` when the block ends well.

    Works for files and folders alike. When the block raises, what was written is removed and an
    earlier ``target`` stays as it was. What is renamed has been flushed to disk by then, in case the power fails; not
    with ``flush=False``, for thousands of files that a command can make again.

    Raises:
        StorageError: nothing can be written there, or the block met another error of the operating system.
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if flush:
            _flush(temporary)
        if temporary.is_dir() and target.is_dir():  # a folder cannot be renamed onto a full one
            retired = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
            target.rename(retired)
            temporary.rename(target)
            shutil.rmtree(retired)
        else:
            os.replace(temporary, target)
        _flush(target.parent, deep=False)
    except FileNotFoundError:  # of a file that the block reads
        raise
    except (OSError, SafetensorError) as error:
        raise StorageError(f"{target}: cannot be written ({error})") from error
    finally:
        with contextlib.suppress(OSError):
            if temporary.is_dir():
                shutil.rmtree(temporary)
            else:
                temporary.unlink(missing_ok=True)


def _flush(path: Path, deep: bool = True) -> None:
    """Flush a file, or a folder (with its contents if ``deep``), to disk."""
    for inner in path.iterdir() if deep and path.is_dir() else ():
        _flush(inner)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # not every file system can flush folders
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Delete what killed processes left from `replacing`; nobody else may be writing these targets now."""
    for ending in ("tmp", "old"):
        for path in folder.glob(f".{name}.{'[0-9a-f]' * 8}.{ending}"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_text(path: Path | str, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; NaN and infinities are refused (ValueError)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def in_lines(content: Mapping[str, Any]) -> str:
    """JSON with one line per key: metrics have tens of thousands of numbers; a line for each would double the file."""
    lines = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'), allow_nan=False)}"
        for key, value in content.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_json(path: Path | str) -> Any:
    """Read a JSON file, with or without a byte order mark.

    Raises:
        DataError: the file is missing, unreadable, not UTF-8 or not JSON (the message names file and place).
    """
    path = Path(path)
    try:
        return parse_json(path.read_text(encoding="utf-8").removeprefix("\ufeff"), path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte offset {error.start})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def parse_json(text: str, path: Path | str) -> Any:
    """The JSON value of text from ``path``. Raises DataError: it is not JSON (the message names path and line)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None


def checksum(path: Path | str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits.

    It is computed once per process, and again where the file's size or modification time has changed.
    """
    status = os.stat(path)
    return _checksum(Path(path).absolute(), status.st_size, status.st_mtime_ns)


@functools.cache
def _checksum(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Any) -> str:
    """A JSON value as text in canonical form: sorted keys, no spaces. Hashes are computed from this."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def short_hash(value: Any) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a JSON value's canonical form."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


WHOLE = 1 << 26  # bytes up to which a whole file enters its fingerprint


def fingerprint(path: Path | str) -> str:
    """A digest of a file: its SHA-256; above 64 MiB, the SHA-256 of its size, first and last MiB.

    Reading a whole corpus of many GB would take longer than most commands do. Like `checksum`, once per process.
    """
    status = os.stat(path)
    if status.st_size <= WHOLE:
        return checksum(path)
    return _digest_of_ends(Path(path).absolute(), status.st_size, status.st_mtime_ns)


@functools.cache
def _digest_of_ends(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        first = file.read(1 << 20)
        file.seek(-(1 << 20), os.SEEK_END)
        return hashlib.sha256(str(size).encode() + first + file.read()).hexdigest()
