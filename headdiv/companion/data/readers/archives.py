"""Members of a tar packed with gzip, one after the other; nothing is unpacked to disk."""

from __future__ import annotations

import gzip
import reprlib
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from headdiv.core.errors import DataError

CHUNK = 1 << 16


def members(
    archive: Path, wanted: Callable[[tarfile.TarInfo], bool], largest: int
) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The regular members that are wanted, and what they hold, cut a byte past ``largest``.

    Links, folders and all others are passed over, and no member's name is used as a path. The archive is read to its
    end and its checksum verified.

    Raises:
        DataError: it is missing, unreadable, cut off or damaged.
    """
    last = "none"
    try:
        # gzip.open rather than tarfile's own mode "r|gz", which checks neither the end nor the checksum
        with gzip.open(archive, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # tarfile would keep them all
                last = reprlib.repr(member.name)
                if member.isreg() and wanted(member) and (file := tar.extractfile(member)):
                    yield member, file.read(largest + 1)
            _check_end(tar)
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file") from None
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:  # ValueError: bad headers
        raise DataError(
            f"{archive}: the archive is cut off or damaged ({error}); the last member reached: {last}; "
            "delete the file and fetch it again"
        ) from None
    except OSError as error:
        raise DataError(f"{archive}: cannot be read ({error.strerror or error})") from None


def _check_end(tar: tarfile.TarFile) -> None:
    """Read on to the end of the stream, since tarfile takes half a header or a damaged one for the end."""
    while block := tar.fileobj.read(CHUNK):
        if block.strip(b"\0"):
            raise tarfile.ReadError("a header is damaged, or something follows the end")
    if tar.fileobj.tell() % tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it ends within a header")
