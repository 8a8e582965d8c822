"""The methods, by the name that configurations use; those from outside are added by `headdiv.register`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headdiv.core.errors import ConfigError
from headdiv.core.registry import Registry
from headdiv.core.settings import Settings, Source, check, config_error, nearest
from headdiv.methods.base import Method
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
from headdiv.methods.orthogonality import Orthogonality
from headdiv.methods.rotation import DynamicRotation, Rotation
from headdiv.methods.talking_heads import TalkingHeads
from headdiv.nn.sizes import Sizes

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
    },
)


def register(method: type[Registered], name: str | None = None) -> type[Registered]:
    """Make a method known under its name, so that configurations can use it like a built-in one.

    A file that calls this takes part when it is imported, when a profile names it under ``plugins``, or when an
    installed package names its module in an entry point of the group ``headdiv.methods``.

    Args:
        method: a class after `Method`.
        name: its attribute ``name`` where left out.

    Returns:
        The class, so that it can be decorated.

    Raises:
        ConfigError: no such class, one without a name, or a name that is taken by another.
    """
    if not isinstance(method, type) or not issubclass(method, Method):
        raise ConfigError(f"register: found {method!r}, expected a class after Method")
    name = name or getattr(method, "name", None)
    if not isinstance(name, str):
        raise ConfigError(f"register: {method!r} has no name")
    return METHODS.add(name, method)


def check_method(
    method: Mapping[str, Any], model: Sizes, at: tuple[str | int, ...] = (), source: Source | None = None
) -> dict[str, Any]:
    """Fill in the options that ``method`` leaves out and check them against the model's sizes.

    Args:
        method: {"name": …, option: value, …}.
        model: the sizes of the model that it is for.
        at: keys that lead to ``method`` in its file.
        source: the file, if there is one.

    Raises:
        ConfigError: an unknown method or option, a wrong value, one that the model has no room for, or methods of a
            combination that do not go together.
    """
    options = _options(method, at, source)
    return {"name": method["name"], **METHODS[method["name"]].complete(options, model, at, source)}


def make_method(method: str | Mapping[str, Any], at: tuple[str | int, ...] = ("method",), **values: Any) -> Method:
    """A method by its name and options: ``make_method("deacon", m=8)``, or as a run's configuration describes it.

    Args:
        method: its name, or {"name": …, option: value, …}.
        at: keys that lead to ``method`` in its file, for messages.
        **values: further options.

    Raises:
        ConfigError: it is none, the method or an option is unknown, or a value is wrong.
    """
    if isinstance(method, str):
        method = {"name": method}
    options = _options({**method, **values} if isinstance(method, Mapping) else method, at)
    return METHODS[method["name"]](options)


def classes_of(method: Mapping[str, Any]) -> list[type[Method]]:
    """The class of a configuration's method; of a combination those of its parts."""
    return [METHODS[part["name"]] for part in method.get("methods", [method])]


def stored_method(method: Mapping[str, Any]) -> dict[str, Any]:
    """A checked method as results keep it, of which a run's hash is taken."""
    options = {key: value for key, value in method.items() if key != "name"}
    return {"name": method["name"], **METHODS[method["name"]].stored(options)}


def _options(method: Mapping[str, Any], at: tuple[str | int, ...], source: Source | None = None) -> Settings:
    if not isinstance(method, Mapping):
        raise config_error(at, f"expected {{'name': …, option: value, …}}, found {method!r}", source)
    if "name" not in method:
        raise config_error((*at, "name"), "is missing", source)
    name = method["name"]
    if not isinstance(name, str) or name not in METHODS:
        raise config_error((*at, "name"), f"unknown method {name!r}{nearest(str(name), list(METHODS))}", source)
    return check(METHODS[name].Options, {k: v for k, v in method.items() if k != "name"}, at, source)
