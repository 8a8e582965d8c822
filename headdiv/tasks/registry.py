"""`register`: how a task or a method from outside the package takes part."""

from __future__ import annotations

from typing import Any, TypeVar

from headdiv.core.errors import ConfigError
from headdiv.methods import METHODS
from headdiv.methods.base import Method
from headdiv.tasks import TASKS
from headdiv.tasks.base import Task

Registered = TypeVar("Registered", bound=Task[Any] | type[Method])


def register(new: Registered, name: str | None = None) -> Registered:
    """Make a task or a method known under its name, so that profiles and papers can use it like a built-in one.

    A file that calls this takes part when it is imported, when a profile names it under ``plugins``, or when an
    installed package names its module in an entry point of the group ``headdiv.tasks`` or ``headdiv.methods``.

    Args:
        new: an instance of a `Task`, or a class after `Method`.
        name: its ``name`` where left out.

    Returns:
        ``new``, so that a method's class can be decorated.

    Raises:
        ConfigError: neither a task nor a method, one without a name, or a name that is taken by another.
    """
    registry = TASKS if isinstance(new, Task) else METHODS
    if not isinstance(new, Task) and not (isinstance(new, type) and issubclass(new, Method)):
        raise ConfigError(f"register: found {new!r}, expected an instance of a Task or a class after Method")
    name = name or getattr(new, "name", None)
    if not isinstance(name, str):
        raise ConfigError(f"register: {new!r} has no name")
    return registry.add(name, new)
