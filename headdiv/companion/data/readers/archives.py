"""Members of a tar packed with gzip, one after the other; nothing is unpacked to disk."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from headdiv.core.errors import DataError


def members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the regular members whose names are wanted, in the archive's order.

    Links, folders and all others are passed over, and no member's name is used as a path.

    Raises:
        DataError: the archive is missing or damaged. (Of one that is cut off between two members, members are lacking.)
    """
    try:
        with tarfile.open(archive, "r|gz") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # tarfile would keep them all
                if member.isreg() and wanted(member.name):
                    yield member.name, tar.extractfile(member).read()
    except FileNotFoundError:
        raise DataError(f"{archive}: no such file") from None
    except tarfile.TarError as error:
        raise DataError(f"{archive}: the archive is cut off or damaged ({error}); fetch it again") from None
