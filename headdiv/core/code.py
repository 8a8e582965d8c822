"""What changes when the code of a class from outside headdiv does."""

from __future__ import annotations

import contextlib
import dis
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, partial, partialmethod
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from headdiv.core.files import checksum, short_hash

OWN = __name__.partition(".")[0]
LOADED = "__headdiv_checksum__"  # attribute of a module: its file's checksum when it was loaded
PLAIN = (bool, int, float, str, bytes, type(None))
# What stands for functions, and its attributes that have them and what they are called with.
WRAPPERS = (property, classmethod, staticmethod, MethodType, partial, partialmethod, cached_property, type(cache(len)))
WRAPPED = ("fget", "fset", "fdel", "__func__", "__self__", "func", "args", "keywords", "__wrapped__")
GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")  # instructions that look a name up in the module
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

Seen = dict[int, tuple[int, Any]]  # by id: its number, and what it is, since an id is another's once its object is gone


def code_of(cls: type) -> str | None:
    """Changes with the file that defines a class, or, in a notebook or a script, with the class and what it names.

    None for a class of headdiv. What a notebook's class names is looked at as it is now, since another cell may have
    changed it; what comes from other modules counts by its name.
    """
    if cls.__module__.partition(".")[0] == OWN:
        return None
    return file_of(cls) or short_hash(list(_parts(cls, cls.__module__, {})))


@cache  # of a class as it was defined: a file that changes later does not change what was loaded of it
def file_of(cls: type) -> str | None:
    """The checksum of the file that defines a class, as it is at the first call; None in a notebook or a script."""
    module = sys.modules.get(cls.__module__)
    if module is None or module.__name__ == "__main__" or not (file := getattr(module, "__file__", None)):
        return None
    return getattr(module, LOADED, None) or checksum(Path(file))


def remember(module: ModuleType, path: Path) -> None:
    """Note what a module's file holds now, before it is run."""
    setattr(module, LOADED, checksum(path))


def changed(module: ModuleType, path: Path) -> str | None:
    """The checksum of a module's file where it is no longer what `remember` noted; None where it is, or is gone."""
    noted = getattr(module, LOADED, None)
    found = checksum(path) if noted and path.is_file() else None
    return None if found == noted else found


def _parts(value: Any, module: str, seen: Seen) -> Iterator[str]:
    """Everything of a value that decides what it does, and of the classes and functions of its module that it names."""
    if isinstance(value, PLAIN):
        yield repr(value)
    elif isinstance(value, tuple):
        yield from _several("tuple", value, module, seen)
    elif id(value) in seen:
        yield f"number {seen[id(value)][0]}"
    elif isinstance(value, WRAPPERS):
        yield from _several(type(value).__name__, (getattr(value, name, None) for name in WRAPPED), module, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__
    elif hasattr(value, "dtype") and isinstance(shape := getattr(value, "shape", None), tuple):
        yield f"{value.dtype} {tuple(shape)} {_digest(value)}"
    else:
        yield from _of_object(value, module, seen)


def _several(kind: str, values: Iterable[Any], module: str, seen: Seen) -> Iterator[str]:
    yield f"{kind}("
    yield from (part for one in values for part in _parts(one, module, seen))
    yield ")"


def _digest(value: Any) -> str:
    """Of the numbers of an array or a tensor."""
    if hasattr(value, "detach"):
        import torch  # here: what plans a profile does not wait for it

        numbers = value.detach().cpu().to_dense().contiguous().flatten()
        value = numbers.view(torch.uint8).numpy()  # numpy lacks some kinds
    return sha256(value.tobytes()).hexdigest()


def _of_object(value: Any, module: str, seen: Seen) -> Iterator[str]:
    """Of what may hold itself."""
    own = getattr(value if isinstance(value, type) else type(value), "__module__", None) == module
    if own or isinstance(value, list | dict | set | frozenset | FunctionType):
        seen[id(value)] = len(seen), value
    if isinstance(value, list):
        yield from _several("list", value, module, seen)
    elif isinstance(value, dict):
        yield from _several("dict", value.items(), module, seen)
    elif isinstance(value, set | frozenset):  # in an order of its own in each process
        yield from _several("set", sorted(str(list(_parts(one, module, seen.copy()))) for one in value), module, seen)
    elif isinstance(value, FunctionType):
        yield from _of_function(value, module, seen)
    elif own and isinstance(value, type):
        yield value.__qualname__
        yield from _parts(value.__bases__, module, seen)
        # Not its documentation, and the line that it stands in.
        kept = ((name, of) for name, of in vars(value).items() if _counts(name, of))
        yield from _several("class", kept, module, seen)
    elif own:
        yield from _parts(type(value), module, seen)
        yield from _several("object", getattr(value, "__dict__", {}).items(), module, seen)
    else:
        yield ADDRESS.sub("", repr(value))


def _counts(name: str, value: Any) -> bool:
    return not name.startswith("__") or callable(value) or isinstance(value, WRAPPERS)


def _of_function(value: FunctionType, module: str, seen: Seen) -> Iterator[str]:
    where, code = value.__globals__.get("__name__"), value.__code__
    yield code.co_qualname
    closed = []
    for cell in value.__closure__ or ():
        with contextlib.suppress(ValueError):  # of an empty one
            closed.append(cell.cell_contents)
    if where != module:  # of another module: it may have been put around one of this module
        closed = [one for one in closed if isinstance(one, (*PLAIN, *WRAPPERS, FunctionType, type))]
        yield from _several(f"{where}", closed, module, seen)
        return
    yield from _several("closure", closed, module, seen)
    yield from _parts((value.__defaults__, value.__kwdefaults__), module, seen)
    codes = [code]
    for code in codes:
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        yield from (code.co_code.hex(), code.co_exceptiontable.hex(), repr(code.co_names), repr(code.co_varnames))
        yield from _parts(tuple(one for one in code.co_consts if not isinstance(one, CodeType)), module, seen)
    steps = (step for code in codes for step in dis.get_instructions(code))
    names = dict.fromkeys(step.argval for step in steps if step.opname in GLOBAL)
    named = (value.__globals__[name] for name in names if name in value.__globals__)
    yield from (part for one in named for part in _parts(one, module, seen))
