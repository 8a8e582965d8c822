"""Files of a user's own, which register methods and figures."""

from __future__ import annotations

import importlib.util
import logging
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from headdiv.core.errors import ConfigError
from headdiv.core.files import checksum, short_hash
from headdiv.methods.registry import LOADED, named_in_errors

log = logging.getLogger(__name__)


def load_plugin(path: Path) -> ModuleType:
    """Run a Python file once, so that it can register what it defines; a warning says where it has changed since.

    Raises:
        ConfigError: there is no such file, or running it fails.
    """
    path = path.resolve()
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(path):
            content = _changed_content(module, path)
            if content is not None:
                _warn_of_change(path, content)
            return module
    if not path.is_file():
        raise ConfigError(f"plugin {path}: no such file")
    name = f"headdiv_plugin_{path.stem}_{short_hash(str(path))}"  # two folders may have a file of one name
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with named_in_errors(f"plugin {path}"):
            setattr(module, LOADED, checksum(path))
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


def _changed_content(module: ModuleType, path: Path) -> str | None:
    """The checksum of a module's file if it has changed since it was loaded; None if not, or if it is gone."""
    loaded = getattr(module, LOADED, None)
    current = checksum(path) if loaded and path.is_file() else None
    return None if current == loaded else current
