"""The methods by the names that configurations use, and the checks of a method's configuration.

A method enters the table with `register`, whether it is headdiv's or a user's.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from headdiv.core.errors import ConfigError, HeaddivError
from headdiv.core.files import checksum, short_hash
from headdiv.core.settings import Place, Source, check, config_error, nearest
from headdiv.methods.base import Method, MethodOptions
from headdiv.nn.sizes import Sizes

Registered = TypeVar("Registered", bound=Method)
PACKAGE = __name__.partition(".")[0]
LOADED = "__headdiv_checksum__"  # attribute of a module: its file's checksum when it was loaded


METHODS: dict[str, type[Method]] = {"baseline": Method}  # extended by `register`


def register(method: type[Registered]) -> type[Registered]:
    """Register a method under its name, so that configurations can use it like a built-in one.

    A class whose definition is run again replaces the old one.
    A file that calls this takes part when it is imported, or when a profile names it under ``plugins``.

    Args:
        method: a subclass of `Method` with an attribute ``name``.

    Returns:
        The class, so that this can be a decorator.

    Raises:
        ConfigError: it is not such a class, has no name, or the name is taken by another.
    """
    name = getattr(method, "name", None)
    if not (isinstance(method, type) and issubclass(method, Method) and isinstance(name, str)):
        raise ConfigError(
            f"register: found {method!r:.80} of the name {name!r}, expected a subclass of headdiv.Method with a name"
        )
    taken = METHODS.get(name, method)
    if (taken.__module__, taken.__qualname__) != (method.__module__, method.__qualname__):
        raise ConfigError(
            f"{name!r} cannot be registered as a method: the name is taken by {taken.__module__}.{taken.__qualname__}"
        )
    METHODS[name] = method
    file_of(method)  # as it is now, while it is imported: it may be edited before the first run
    return method


def make_method(method: str | Mapping[str, Any], **values: Any) -> Method:
    """A method by its name and options: ``make_method("deacon", m=8)``, or as a run's configuration describes it.

    Args:
        method: its name, or {"name": …, option: value, …}.
        **values: further options.

    Raises:
        ConfigError: it is not a method, the method or an option is unknown, or a value is wrong.
    """
    if isinstance(method, str):
        method = {"name": method}
    options = method_options({**method, **values} if isinstance(method, Mapping) else method, ("method",))
    return METHODS[method["name"]](options)


def method_options(method: Mapping[str, Any], at: Place = (), source: Source | None = None) -> MethodOptions:
    """The options of a method's configuration, {"name": …, option: value, …}, with their defaults.

    Raises:
        ConfigError: it is not a method, the method or an option is unknown, or a value is wrong.
    """
    if not isinstance(method, Mapping):
        raise config_error(at, f"expected {{'name': …, option: value, …}}, found {method!r}", source)
    if "name" not in method:
        raise config_error((*at, "name"), "is missing", source)
    name = method["name"]
    if not isinstance(name, str) or name not in METHODS:
        raise config_error((*at, "name"), f"unknown method {name!r}{nearest(str(name), list(METHODS))}", source)
    values = {key: value for key, value in method.items() if key != "name"}
    return check(METHODS[name].Options, values, at, source)


def check_method(
    method: Mapping[str, Any], model: Sizes, at: Place = (), source: Source | None = None
) -> dict[str, Any]:
    """Fill in the options that ``method`` leaves out and check them against the model's sizes.

    Args:
        method: {"name": …, option: value, …}.
        model: the sizes of its model.
        at: keys that lead to ``method`` in its file.
        source: the file, if there is one.

    Raises:
        ConfigError: an unknown method or option, a wrong value, one that the model has no room for, or methods of a
            combination that do not go together.
    """
    options = method_options(method, at, source)
    return {"name": method["name"], **options.complete(model, at, source)}


def stored_method(method: Mapping[str, Any]) -> dict[str, Any]:
    """A checked method as results keep it; a run's hash is computed from it."""
    options = {key: value for key, value in method.items() if key != "name"}
    return {"name": method["name"], **METHODS[method["name"]].Options.stored(options)}


def method_classes(method: Mapping[str, Any]) -> list[type[Method]]:
    """The class of a configuration's method; for a combination, those of its parts. Unknown ones are left out."""
    return [METHODS[part["name"]] for part in method.get("methods", [method]) if part["name"] in METHODS]


def own_code(method: Mapping[str, Any]) -> list[str]:
    """`code_of` each method from outside headdiv that a configuration names, those of a combination too."""
    codes = [code_of(cls) for cls in method_classes(method)]
    return [code for code in codes if code is not None]


@contextlib.contextmanager
def named_in_errors(what: str) -> Iterator[None]:
    """Turn any error into a ConfigError that names ``what`` it came from: a `sys.exit` would end headdiv silently."""
    try:
        yield
    except (HeaddivError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(f"{what}: {type(error).__name__} ({' '.join(str(error).split())})") from error


# ---- what changes when the code of a class from outside headdiv does


def code_of(cls: type) -> str | None:
    """A checksum of the file that defines a class, or, in a notebook, of its source and that of its bases there.

    None for a class of headdiv. In a notebook, comments do not count, nor do other definitions that the class uses.

    Raises:
        ConfigError: the source is not to be found.
    """
    if cls.__module__.partition(".")[0] == PACKAGE:
        return None
    return file_of(cls) or short_hash([_source(part) for part in cls.__mro__ if part.__module__ == cls.__module__])


def _source(cls: type) -> str:
    """A class of a notebook or a script as code without comments."""
    with contextlib.suppress(OSError, TypeError):
        return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(cls))))
    # inspect finds no class of a cell, but a function knows its cell; without any, the newest cell with such a class.
    functions = (inspect.unwrap(value) for value in vars(cls).values() if callable(value))
    cells = [value.__code__.co_filename for value in functions if isinstance(value, FunctionType)]
    for name in cells or reversed(list(linecache.cache)):
        with contextlib.suppress(SyntaxError):
            for node in ast.walk(ast.parse("".join(linecache.getlines(name)))):
                if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                    return ast.unparse(node)
    raise ConfigError(f"{cls.__name__}: its source is not found; expected a class of a file or of a notebook's cell")


@cache  # a file that changes later does not change the class that was loaded from it
def file_of(cls: type) -> str | None:
    """The checksum of the file that defines a class, as it is at the first call; None in a notebook or a script."""
    module = sys.modules.get(cls.__module__)
    if module is None or module.__name__ == "__main__" or not (file := getattr(module, "__file__", None)):
        return None
    return getattr(module, LOADED, None) or checksum(Path(file))
