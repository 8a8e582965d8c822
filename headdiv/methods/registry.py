"""The methods by the name that configurations use, and what is asked of one by its configuration.

A method enters the table with `register`, whether it is headdiv's or a user's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from headdiv.core.errors import ConfigError, HeaddivError
from headdiv.core.settings import Place, Source, check, config_error, nearest
from headdiv.methods.base import Method, MethodOptions
from headdiv.methods.code import code_of, file_of
from headdiv.nn.sizes import Sizes

Registered = TypeVar("Registered", bound=Method)
GROUP = "headdiv.methods"  # of entry points


class Methods(Mapping[str, type[Method]]):
    """The table: a read-only mapping of names to classes, which only `register` extends.

    Entry points of installed packages are loaded when a name is first looked up; what they load registers itself.
    """

    def __init__(self) -> None:
        self._known: dict[str, type[Method]] = {}
        self._searched = False

    def _all(self) -> dict[str, type[Method]]:
        if not self._searched:
            self._searched = True  # first: what is loaded may look names up
            for point in entry_points(group=GROUP):
                with named_in_errors(f"entry point {point.name} = {point.value}"):
                    point.load()
        return self._known

    def __getitem__(self, name: str) -> type[Method]:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


METHODS = Methods()


def register(method: type[Registered], name: str | None = None) -> type[Registered]:
    """Register a method under its name, so that configurations can use it like a built-in one.

    A class whose definition is run again replaces the old one.
    A file that calls this takes part when it is imported, when a profile names it under ``plugins``, or when an
    installed package names its module in an entry point of the group ``headdiv.methods``.

    Args:
        method: a subclass of `Method`.
        name: by default its attribute ``name``.

    Returns:
        The class, so that this can be a decorator.

    Raises:
        ConfigError: it is not such a class, has no name, or the name is taken by another.
    """
    name = name or getattr(method, "name", None)
    if not issubclass(method, Method) or not isinstance(name, str):
        raise ConfigError(f"register: found {method!r} of the name {name!r}, expected a class after Method with a name")
    taken = METHODS._known.get(name, method)
    if (taken.__module__, taken.__qualname__) != (method.__module__, method.__qualname__):
        raise ConfigError(
            f"{name!r} cannot be registered as a method: the name is taken by {taken.__module__}.{taken.__qualname__}"
        )
    METHODS._known[name] = method
    file_of(method)  # as it is now, while it is imported: it may be edited before the first run
    return method


register(Method, "baseline")


def make_method(method: str | Mapping[str, Any], *, at: Place = ("method",), **values: Any) -> Method:
    """A method by its name and options: ``make_method("deacon", m=8)``, or as a run's configuration describes it.

    Args:
        method: its name, or {"name": …, option: value, …}.
        at: keys that lead to ``method`` in its file, for messages.
        **values: further options.

    Raises:
        ConfigError: it is not a method, the method or an option is unknown, or a value is wrong.
    """
    if isinstance(method, str):
        method = {"name": method}
    options = method_options({**method, **values} if isinstance(method, Mapping) else method, at)
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
    """The class of a configuration's method; for a combination, those of its parts."""
    return [METHODS[part["name"]] for part in method.get("methods", [method])]


def own_code(method: Mapping[str, Any]) -> list[str]:
    """What changes with the code of a configuration's methods, those of a combination too, that are not headdiv's."""
    known = [METHODS[part["name"]] for part in method.get("methods", [method]) if part["name"] in METHODS]
    return [code for cls in known if (code := code_of(cls)) is not None]


@contextlib.contextmanager
def named_in_errors(what: str) -> Iterator[None]:
    """Turn any error into a ConfigError that names ``what`` it came from: a `sys.exit` would end headdiv silently."""
    try:
        yield
    except (HeaddivError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(f"{what}: {type(error).__name__} ({' '.join(str(error).split())})") from error
