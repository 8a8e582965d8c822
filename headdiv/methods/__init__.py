"""The methods, by the name that configurations use; those from outside are added by `headdiv.register`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headdiv.core.registry import Registry
from headdiv.core.settings import Settings, Source, check, mistake, nearest
from headdiv.methods.base import Method
from headdiv.methods.combined import Combined, conflict, needless, part_names
from headdiv.methods.deacon import Deacon
from headdiv.methods.disagreement import Disagreement
from headdiv.methods.dpp import Dpp
from headdiv.methods.homeostasis import Homeostasis
from headdiv.methods.mixing import Mixing
from headdiv.methods.moa import Moa
from headdiv.methods.rotation import DynamicRotation, Rotation
from headdiv.nn.config import Sizes

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
        "homeostasis": Homeostasis,
        "moa": Moa,
        "combined": Combined,
    },
)


def check_method(
    told: Mapping[str, Any], model: Sizes, at: tuple[str | int, ...] = (), source: Source | None = None
) -> dict[str, Any]:
    """Fill in the options that ``told`` leaves out and hold them against the model's sizes.

    Args:
        told: {"name": …, option: value, …}.
        model: the sizes that the method will meet.
        at: keys that lead to ``told`` in its file.
        source: the file, if there is one.

    Raises:
        ConfigError: an unknown method or option, a wrong value, one that the model has no room for, or methods of a
            combination that do not go together.
    """
    options = _options(told, at, source)
    if isinstance(options, Combined.Options):
        return {"name": told["name"], "methods": _check_parts(options, model, (*at, "methods"), source)}
    problem = METHODS[told["name"]].check(options, model)
    if problem:
        key, what = problem
        raise mistake((*at, key), what, source)
    return {"name": told["name"], **options.model_dump(mode="json")}


def make_method(told: Mapping[str, Any]) -> Method:
    """The method of a run's configuration."""
    options = _options(told, ("method",))
    if isinstance(options, Combined.Options):
        return Combined(options, _parts(options.methods))
    return METHODS[told["name"]](options)


def _parts(methods: list[dict[str, Any]]) -> dict[str, Method]:
    names = part_names(part["name"] for part in methods)
    return {name: make_method(part) for name, part in zip(names, methods, strict=True)}


def _check_parts(
    options: Combined.Options, model: Sizes, at: tuple[str | int, ...], source: Source | None
) -> list[dict[str, Any]]:
    """The methods of a combination, each complete and in keeping with the others."""
    checked = []
    for place, part in enumerate(options.methods):
        if what := needless(part.get("name")):
            raise mistake((*at, place, "name"), what, source)
        checked.append(check_method(part, model, (*at, place), source))
    if problem := conflict(_parts(checked), model):
        place, what = problem
        raise mistake((*at, place), what, source)
    return checked


def _options(told: Mapping[str, Any], at: tuple[str | int, ...], source: Source | None = None) -> Settings:
    name = told.get("name")
    if not isinstance(name, str) or name not in METHODS:
        raise mistake((*at, "name"), f"unknown method {name!r}{nearest(str(name), list(METHODS))}", source)
    return check(METHODS[name].Options, {k: v for k, v in told.items() if k != "name"}, at, source)
