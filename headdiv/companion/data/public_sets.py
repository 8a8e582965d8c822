"""The registry of public data sets (``sets.yaml``)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Self

import pydantic

from headdiv.core.settings import Settings, Source, check

REGISTRY = Path(__file__).with_name("sets.yaml")

# Names become paths below the data folder, so they may not contain a slash or start with a dot.
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
Address = Annotated[str, pydantic.StringConstraints(pattern=r"^https?://\S+$")]
Sha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class RemoteFile(Settings):
    """A file's address and what checksum is known of it; of two the sha256 is checked.

    ``pin: true`` says that none is published. That of the first download is then kept beside the file, as
    ``<file>.sha256``, and holds for every later one.
    """

    url: Address
    sha256: Sha256 | None = None
    md5: Md5 | None = None
    pin: bool = False

    @pydantic.model_validator(mode="after")
    def _shown_to_be_its_owners(self) -> Self:
        if (self.checksum is not None) + self.pin != 1:
            raise ValueError("sha256: expected it or md5, or pin: true where no checksum is published")
        if self.sha256 is None and not self.url.startswith("https://"):
            raise ValueError("url: expected https where no sha256 is known, since what comes may be anybody's")
        return self

    @property
    def identity(self) -> str:
        """Identifies the file before it is fetched, in the names of prepared corpora: its checksum, else its address.

        A sha256 that was added to a known md5, or an address that is secured now, leaves those names as they are.
        """
        return self.md5 or self.sha256 or self.url.replace("https://", "http://", 1)

    @property
    def checksum(self) -> str | None:
        """The known checksum with its kind: ``sha256:…`` or ``md5:…``."""
        if self.sha256 is not None:
            return f"sha256:{self.sha256}"
        return None if self.md5 is None else f"md5:{self.md5}"


class SplitEntry(Settings):
    """How many examples a split holds, and its files by role (``{"en": "train.en.gz"}``)."""

    count: pydantic.PositiveInt
    files: dict[str, Name]


class DataSet(Settings):
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
                    raise ValueError(f"splits.{split}: names {file}, which is not among the files")
        return self


class _Registry(pydantic.RootModel[dict[Name, DataSet]]):
    """The whole file."""


@functools.cache
def load_registry(path: Path | str = REGISTRY) -> dict[str, DataSet]:
    """Read the registry of data sets, once a process.

    Raises:
        ConfigError: the file is missing or not YAML, or an entry is wrong (an unknown key, no checksum, a split whose
            file is not listed); the message names file, line and key.
    """
    source = Source(path)
    return check(_Registry, source.data, source=source).root
