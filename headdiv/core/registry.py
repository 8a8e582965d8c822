"""Registries that can be extended from outside: by a call, an installed package, or a user's file."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from headdiv.core import code
from headdiv.core.errors import ConfigError, HeaddivError
from headdiv.core.files import short_hash

Value = TypeVar("Value", bound=type)

log = logging.getLogger(__name__)


class Registry(Mapping[str, Value]):
    """A read-only mapping of names to classes; only `add` extends it.

    Entry points of installed packages are loaded when a name is first looked up; what they load registers itself.

    Args:
        group: of the entry points, such as "headdiv.methods"; errors name it too.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._known: dict[str, Value] = {}
        self._searched = False

    def add(self, name: str, value: Value) -> None:
        """Register a class under ``name``. One whose definition is run again replaces the old one.

        Raises:
            ConfigError: the name is taken by another.
        """
        taken = self._known.get(name, value)
        if _origin(taken) != _origin(value):
            raise ConfigError(f"{name!r} cannot be registered in {self.group}: the name is taken by {_origin(taken)}")
        self._known[name] = value

    def _all(self) -> dict[str, Value]:
        if not self._searched:
            self._searched = True  # first: what is loaded may look names up
            for point in entry_points(group=self.group):
                with _named(f"entry point {point.name} = {point.value}"):
                    point.load()
        return self._known

    def __getitem__(self, name: str) -> Value:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def load_plugin(path: Path) -> ModuleType:
    """Run a Python file once, so that it can register what it defines; a warning says where it has changed since.

    Raises:
        ConfigError: there is no such file, or running it fails.
    """
    path = path.resolve()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            if (now := code.changed(module, path)) is not None:
                _warn_of_change(path, now)
            return module
    if not path.is_file():
        raise ConfigError(f"plugin {path}: no such file")
    name = f"headdiv_plugin_{path.stem}_{short_hash(str(path))}"  # two folders may have a file of one name
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _named(f"plugin {path}"):
            code.remember(module, path)
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@cache  # once for each content
def _warn_of_change(path: Path, content: str) -> None:
    log.warning(
        "plugin %s: has changed since it was loaded; this process goes on with what it was then, and a new one (in a "
        "notebook, after a restart of the kernel) takes what it is now",
        path,
    )


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn any error into a ConfigError that names ``what`` it came from: a `sys.exit` would end headdiv silently."""
    try:
        yield
    except (HeaddivError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(f"{what}: {type(error).__name__} ({' '.join(str(error).split())})") from error
