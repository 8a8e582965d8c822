"""The option classes by method, and checks of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headdiv.core.registry import Registry
from headdiv.core.settings import Place, Source, check, config_error, nearest
from headdiv.methods.options.base import MethodOptions
from headdiv.methods.options.losses import DppOptions, HeadLossOptions, HsicOptions
from headdiv.methods.options.modules import (
    DeaconOptions,
    DifferentialOptions,
    DropHeadOptions,
    GatedOptions,
    HeadScaleOptions,
    HomeostasisOptions,
    MixingOptions,
    MoaOptions,
    MohOptions,
    TalkingHeadsOptions,
)
from headdiv.methods.options.swaps import DynamicRotationOptions, RotationOptions
from headdiv.nn.sizes import Sizes

# `headdiv.register` adds those of other methods.
OPTIONS: Registry[type[MethodOptions]] = Registry(
    "headdiv.methods",
    {
        "baseline": MethodOptions,
        "deacon": DeaconOptions,
        "rotation": RotationOptions,
        "dynamic-rotation": DynamicRotationOptions,
        "mixing": MixingOptions,
        "disagreement": HeadLossOptions,
        "dpp": DppOptions,
        "orthogonality": HeadLossOptions,
        "hsic": HsicOptions,
        "head-scale": HeadScaleOptions,
        "homeostasis": HomeostasisOptions,
        "moa": MoaOptions,
        "talking-heads": TalkingHeadsOptions,
        "drop-head": DropHeadOptions,
        "gated": GatedOptions,
        "differential": DifferentialOptions,
        "moh": MohOptions,
    },
)


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
    return {"name": method["name"], **OPTIONS[method["name"]].stored(options)}


def option_classes(method: Mapping[str, Any]) -> list[type[MethodOptions]]:
    """The option class of a configuration's method; for a combination, those of its parts."""
    return [OPTIONS[part["name"]] for part in method.get("methods", [method])]


def method_options(method: Mapping[str, Any], at: Place, source: Source | None = None) -> MethodOptions:
    """The options of a method's configuration, {"name": …, option: value, …}, with their defaults.

    Raises:
        ConfigError: it is not a method, the method or an option is unknown, or a value is wrong.
    """
    if not isinstance(method, Mapping):
        raise config_error(at, f"expected {{'name': …, option: value, …}}, found {method!r}", source)
    if "name" not in method:
        raise config_error((*at, "name"), "is missing", source)
    name = method["name"]
    if not isinstance(name, str) or name not in OPTIONS:
        for whole, options in OPTIONS.items():
            if written := options.part_names.get(str(name).lower()):
                what = f"unknown method {name!r}; it is part of {whole!r}: {{name: {whole}, {written}}}"
                raise config_error((*at, "name"), what, source)
        raise config_error((*at, "name"), f"unknown method {name!r}{nearest(str(name), list(OPTIONS))}", source)
    return check(OPTIONS[name], {k: v for k, v in method.items() if k != "name"}, at, source)
