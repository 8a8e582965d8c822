"""What changes when the code of a class from outside headdiv does."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import sys
from functools import cache
from pathlib import Path
from types import FunctionType

from headdiv.core.errors import ConfigError
from headdiv.core.files import checksum, short_hash

OWN = __name__.partition(".")[0]
LOADED = "__headdiv_checksum__"  # attribute of a module: its file's checksum when it was loaded


def code_of(cls: type) -> str | None:
    """Changes with the file that defines a class, or, in a notebook, with its source and that of its bases there.

    None for a class of headdiv. Comments do not count in a notebook, nor does what else of it the class names.

    Raises:
        ConfigError: the source is not to be found.
    """
    if cls.__module__.partition(".")[0] == OWN:
        return None
    return file_of(cls) or short_hash([_source(part) for part in cls.__mro__ if part.__module__ == cls.__module__])


def _source(cls: type) -> str:
    """A class of a notebook or a script as code without comments."""
    with contextlib.suppress(OSError, TypeError):
        return ast.unparse(ast.parse(inspect.cleandoc(inspect.getsource(cls))))
    # inspect finds no class of a cell, but its functions know theirs; without any, the newest cell with such a class.
    functions = (inspect.unwrap(value) for value in vars(cls).values() if callable(value))
    cells = [value.__code__.co_filename for value in functions if isinstance(value, FunctionType)]
    for name in cells or reversed(list(linecache.cache)):
        with contextlib.suppress(SyntaxError):
            for node in ast.walk(ast.parse("".join(linecache.getlines(name)))):
                if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                    return ast.unparse(node)
    raise ConfigError(f"{cls.__name__}: its source is not found; expected a class of a file or of a notebook's cell")


@cache  # of a class as it was defined: a file that changes later does not change what was loaded of it
def file_of(cls: type) -> str | None:
    """The checksum of the file that defines a class, as it is at the first call; None in a notebook or a script."""
    module = sys.modules.get(cls.__module__)
    if module is None or module.__name__ == "__main__" or not (file := getattr(module, "__file__", None)):
        return None
    return getattr(module, LOADED, None) or checksum(Path(file))
