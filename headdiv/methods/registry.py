"""The methods, by the name that configurations use; `headdiv.register` adds those from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headdiv.core.code import code_of, file_of
from headdiv.core.errors import ConfigError
from headdiv.core.registry import Registry
from headdiv.methods.base import Method
from headdiv.methods.combined import Combined
from headdiv.methods.deacon import Deacon
from headdiv.methods.differential import Differential
from headdiv.methods.disagreement import Disagreement
from headdiv.methods.dpp import Dpp
from headdiv.methods.drop_head import DropHead
from headdiv.methods.gated import Gated
from headdiv.methods.head_scale import HeadScale
from headdiv.methods.homeostasis import Homeostasis
from headdiv.methods.hsic import Hsic
from headdiv.methods.mixing import Mixing
from headdiv.methods.moa import Moa
from headdiv.methods.moh import Moh
from headdiv.methods.options import OPTIONS, method_options
from headdiv.methods.orthogonality import Orthogonality
from headdiv.methods.rotation import DynamicRotation, Rotation
from headdiv.methods.talking_heads import TalkingHeads

Registered = TypeVar("Registered", bound=Method)

METHODS: Registry[type[Method]] = Registry(
    "headdiv.methods",
    {
        "baseline": Method,
        "deacon": Deacon,
        "rotation": Rotation,
        "dynamic-rotation": DynamicRotation,
        "mixing": Mixing,
        "disagreement": Disagreement,
        "dpp": Dpp,
        "orthogonality": Orthogonality,
        "hsic": Hsic,
        "head-scale": HeadScale,
        "homeostasis": Homeostasis,
        "moa": Moa,
        "talking-heads": TalkingHeads,
        "drop-head": DropHead,
        "gated": Gated,
        "differential": Differential,
        "moh": Moh,
        "combined": Combined,
    },
)


def register(method: type[Registered], name: str | None = None) -> type[Registered]:
    """Register a method under its name, so that configurations can use it like a built-in one.

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
    if not isinstance(method, type) or not issubclass(method, Method):
        raise ConfigError(f"register: found {method!r}, expected a class after Method")
    name = name or getattr(method, "name", None)
    if not isinstance(name, str):
        raise ConfigError(f"register: {method!r} has no name")
    METHODS.add(name, method)
    file_of(method)  # as it is now, while it is imported: it may be edited before the first run
    OPTIONS.add(name, method.Options)
    return method


def own_code(method: Mapping[str, Any]) -> list[str]:
    """What changes with the code of a configuration's methods, those of a combination too, that are not headdiv's."""
    classes = (METHODS.get(part["name"]) for part in method.get("methods", [method]))
    return [code for one in classes if one and (code := code_of(one))]


def make_method(method: str | Mapping[str, Any], at: tuple[str | int, ...] = ("method",), **values: Any) -> Method:
    """A method by its name and options: ``make_method("deacon", m=8)``, or as a run's configuration describes it.

    Args:
        method: its name, or {"name": …, option: value, …}.
        at: keys that lead to ``method`` in its file, for messages.
        **values: further options.

    Raises:
        ConfigError: it is not a method, the method or an option is unknown, or a value is wrong.
    """
    if not isinstance(at, tuple):
        raise ConfigError(
            f"make_method: found {at!r:.80} after the method; expected its options by name, make_method('deacon', m=8)"
            ", or beside it, make_method({'name': 'deacon', 'm': 8})"
        )
    if isinstance(method, str):
        method = {"name": method}
    options = method_options({**method, **values} if isinstance(method, Mapping) else method, at)
    return METHODS[method["name"]](options)
