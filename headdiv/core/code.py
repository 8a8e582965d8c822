"""What changes when the code of a class from outside headdiv does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from headdiv.core.files import checksum, short_hash

OWN = __name__.partition(".")[0]
LOADED = "__headdiv_checksum__"  # attribute of a module: its file's checksum when it was loaded
PLAIN = (bool, int, float, str, bytes, type(None))


@cache  # of a class as it was defined: a file that changes later does not change what was loaded of it
def code_of(cls: type) -> str | None:
    """Changes with the file that defines a class, or, in a notebook or a script, with the class and what it names.

    None for a class of headdiv.
    """
    if cls.__module__.partition(".")[0] == OWN:
        return None
    module = sys.modules.get(cls.__module__)
    if module is None or module.__name__ == "__main__" or not (file := getattr(module, "__file__", None)):
        return short_hash(list(_parts(cls, cls.__module__, set())))
    return getattr(module, LOADED, None) or checksum(Path(file))


def remember(module: ModuleType, path: Path) -> None:
    """Note what a module's file holds now, before it is run."""
    setattr(module, LOADED, checksum(path))


def _parts(value: Any, module: str, seen: set[int]) -> Iterator[str]:
    """Everything of a class or function that decides what it does, and of those of its module that it names."""
    value = getattr(value, "__func__", getattr(value, "fget", value))  # of class methods and properties
    value = getattr(value, "__wrapped__", value)  # of what a decorator returns
    if isinstance(value, PLAIN):
        yield repr(value)
    elif isinstance(value, tuple):
        yield from (part for one in value for part in _parts(one, module, seen))
    elif isinstance(value, list | dict) and id(value) not in seen:  # it may hold itself
        seen.add(id(value))
        yield from _parts(tuple(value if isinstance(value, list) else value.items()), module, seen)
    elif isinstance(value, set | frozenset):
        yield repr(sorted(map(repr, value)))
    elif isinstance(value, FunctionType | type) and value.__module__ == module and id(value) not in seen:
        seen.add(id(value))
        yield value.__qualname__
        yield from _of_class(value, module, seen) if isinstance(value, type) else _of_function(value, module, seen)


def _of_class(value: type, module: str, seen: set[int]) -> Iterator[str]:
    yield from _parts(value.__bases__, module, seen)
    for name, own in vars(value).items():
        if callable(own) or not name.startswith("__"):  # not its documentation, and the line that it stands in
            yield name
            yield from _parts(own, module, seen)


def _of_function(value: FunctionType, module: str, seen: set[int]) -> Iterator[str]:
    yield from _parts(value.__defaults__, module, seen)
    yield from _parts(tuple((value.__kwdefaults__ or {}).values()), module, seen)
    codes = [value.__code__]
    for code in codes:
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        yield from (code.co_code.hex(), repr(code.co_names), repr(code.co_varnames))
        yield from _parts(code.co_consts, module, seen)
    names = dict.fromkeys(name for code in codes for name in code.co_names)
    named = (value.__globals__[name] for name in names if name in value.__globals__)
    yield from (part for one in named for part in _parts(one, module, seen))
