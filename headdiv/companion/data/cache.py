"""The files of a corpus (generated, a public data set, or a user's own), and the cache of prepared corpora.

A public data set is a named case of a user's own files: `locate` gives the same for both.
"""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from headdiv.companion import paths
from headdiv.companion.data import public_sets, toy
from headdiv.companion.data.data_config import DataConfig
from headdiv.core import manifest
from headdiv.core.errors import ConfigError, DamageError, DataError
from headdiv.core.files import fingerprint, read_json, remove_leftovers, replacing, short_hash, write_json
from headdiv.core.settings import Source, config_error, nearest, refuse_unread

PREPARATION = 2  # raised whenever the same text is turned into other indices

log = logging.getLogger(__name__)

Files = dict[str, list[Path]]  # by their role: a language, "examples", "archive", …


def files_of_splits(config: DataConfig) -> dict[str, dict[str, Any]]:
    """The files, or patterns of files, of each split by their role; the split's name is the data set's own."""
    if config.files is None:
        splits, folder = public_sets.load_registry()[config.name].splits, paths.raw() / config.name
        return {
            name: {role: str(folder / file) for role, file in split.files.items()} for name, split in splits.items()
        }
    return {name: files if isinstance(files, dict) else {"examples": files} for name, files in config.files.items()}


def check_data(
    config: DataConfig, roles: Sequence[str], at: tuple[str, ...] = ("data",), source: Source | None = None
) -> None:
    """Check that the configured data set, its splits and its files exist, before anything runs.

    Args:
        config: the data's part of a configuration, which ``at`` leads to in ``source``, if there is one.
        roles: every split that is read must have a file of one of these roles; if empty, of any.

    Raises:
        ConfigError: no such data set or split, one without the files that the task needs, or a key that has no effect
            on this data.
    """
    if config.is_toy:
        refuse_unread(config, ("valid", "test"), "generated text has no other splits", at, source)
        return
    if config.files is None:
        registry = public_sets.load_registry()
        if config.name not in registry:
            message = f"{config.name!r} is not known{nearest(config.name, [*registry, 'toy'])}"
            raise config_error((*at, "name"), message, source)
    if config.name == "toy":
        raise config_error((*at, "name"), "'toy' is generated; with 'files' give another name", source)
    refuse_unread(config, ("held_out",), "it is of generated text alone, other data has splits of its own", at, source)
    splits = files_of_splits(config)
    for key, name in config.read_splits.items():
        if name not in splits:
            message = f"{name!r} is not known; there are: {', '.join(sorted(splits)) or 'none'}"
            raise config_error((*at, "files" if key == "train" else key), message, source)
        if roles and not set(roles) & set(splits[name]):
            message = f"{config.name!r} has no file for {' or '.join(map(repr, roles))} in split {name!r}"
            raise config_error((*at, "name"), f"{message}; there are: {', '.join(sorted(splits[name]))}", source)


def locate(config: DataConfig) -> dict[str, Files]:
    """The files of each split that is read; a public data set is fetched where it is not there yet.

    A path may hold environment variables (``$HEADDIV_MIRROR/xsum/train.jsonl``) and, where several
    files are allowed, patterns. Relative ones begin at the project's folder.

    Raises:
        ConfigError: an environment variable is not set.
        DataError: a file is not there, or could not be fetched.
    """
    if config.files is None:
        public_sets.fetch(config.name, paths.raw())
    splits = files_of_splits(config)
    return {
        key: {role: _find_files(patterns, f"data.files.{name}") for role, patterns in splits[name].items()}
        for key, name in config.read_splits.items()
    }


def _find_files(patterns: str | list[str], key: str) -> list[Path]:
    """The files that match patterns; a single string must match one."""
    files: list[Path] = []
    for entry in [patterns] if isinstance(patterns, str) else patterns:
        pattern = os.path.expanduser(os.path.expandvars(entry))
        if unset := re.search(r"\$\{?(\w+)", pattern):
            raise ConfigError(
                f"{key}: {entry!r} names an environment variable that is not set; `export {unset[1]}=…` sets it"
            )
        path = paths.home() / pattern
        names = [pattern] if path.is_file() else sorted(glob.glob(pattern, root_dir=paths.home()))
        if not names:
            raise DataError(f"{key}: {path}: no such file")
        if isinstance(patterns, str) and len(names) > 1:
            raise DataError(f"{key}: {path}: found {len(names)} files, expected one: {', '.join(names)}")
        files += [paths.home() / name for name in names]
    return files


def refuse_shared(splits: Mapping[str, Iterable[Path]]) -> None:
    """Raise a DataError where two splits have the same file, by the same name or as a copy."""
    first_uses: dict[str, tuple[str, Path]] = {}
    for split, split_files in splits.items():
        for path in split_files:
            first_split, first_path = first_uses.setdefault(fingerprint(path), (split, path))
            if first_split != split:
                alias = f" (as {path})" if path != first_path else ""
                raise DataError(f"{first_path} is both {first_split} and {split}{alias}")


def _refuse_training_text_elsewhere(located: dict[str, Files]) -> None:
    """Raise a DataError where training text is validation or test too; those two may be the same.

    Archives are left out: one holds all splits.
    """
    texts = {
        split: [path for role, role_files in files.items() if role != "archive" for path in role_files]
        for split, files in located.items()
    }
    for split in texts:
        refuse_shared({"train": texts["train"], split: texts[split]})


def tokenizer_file(config: DataConfig) -> Path | None:
    """The file of the byte-pair encoding, where the configuration names one; errors as those of `locate`."""
    path = getattr(config, "tokenizer_file", None)
    return None if path is None else _find_files(path, "data.tokenizer_file")[0]


def content_key(config: DataConfig) -> str:
    """A hash of the corpus: of its files' checksums, or of the version of what generates it."""
    if config.is_toy:
        content: object = {"toy": toy.VERSION}
    elif config.files is None:
        content = {name: file.identity for name, file in public_sets.load_registry()[config.name].files.items()}
    else:
        content = {
            split: {role: [fingerprint(path) for path in role_files] for role, role_files in files.items()}
            for split, files in locate(config).items()
        }
    if tokenizer := tokenizer_file(config):
        content = [content, fingerprint(tokenizer)]
    return short_hash({"preparation": PREPARATION, "content": content})


def prepared_folder(config: DataConfig) -> Path:
    """Where the prepared corpus is stored: its name depends on everything that decides its content."""
    settings = {type(config).__name__: config.deciding()}
    return paths.prepared() / f"{config.name}-{short_hash([settings, content_key(config)])}"


def prepared(config: DataConfig, prepare: Callable[[Any, Path], dict[str, Any]]) -> Path:
    """The folder of the prepared corpus; ``prepare(config, folder)`` fills it where that has not been done.

    What ``prepare`` returns is written last, as ``corpus.json``: its presence says that all else is there. If a file
    was changed, everything is prepared again, and a warning says so.
    """
    folder = prepared_folder(config)
    if not _is_intact(folder):
        if config.files is not None:
            _refuse_training_text_elsewhere(locate(config))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):  # another process may be preparing it
            if not _is_intact(folder, warn=True):
                remove_leftovers(folder.parent, folder.name)
                with replacing(folder) as temporary:
                    temporary.mkdir()
                    write_json(temporary / "corpus.json", prepare(config, temporary))
                    manifest.note(temporary)
    return folder


def _is_intact(folder: Path, warn: bool = False) -> bool:
    """Whether a prepared corpus is there as it was written."""
    if not (folder / manifest.MANIFEST).is_file() and not (folder / "corpus.json").is_file():
        return False  # not prepared yet: nothing to warn of
    try:
        manifest.check(folder)
    except DamageError as error:
        if warn:
            log.warning("%s; the data is prepared again", error)
        return False
    return True


def read_statistics(folder: Path) -> dict[str, Any]:
    """What `prepared` wrote about a corpus: sizes, shares, and bad records by reason (``refused``)."""
    return read_json(folder / "corpus.json")
