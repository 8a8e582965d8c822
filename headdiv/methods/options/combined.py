"""Options of a combination: its list of methods, and which of them go together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import Field

from headdiv.core.settings import Place, Source, config_error
from headdiv.methods.options.base import HOOKS, AttentionHook, MethodOptions
from headdiv.methods.options.table import OPTIONS, check_method, method_options, stored_method
from headdiv.nn.sizes import ATTENTION_KINDS, Kind, Sizes

TWICE = "{!r} is listed twice; expected all of its options in one place"


class CombinedOptions(MethodOptions):
    """No defaults: each method brings its own."""

    builds = frozenset(HOOKS)  # whatever its parts build

    methods: list[dict[str, Any]] = Field(
        min_length=2, description="methods, each with its name and options, in the order in which they act"
    )

    def parts(self, at: Place = ("method", "methods"), source: Source | None = None) -> dict[str, Any]:
        """The options of each method, by the names that results give them.

        Raises:
            ConfigError: one is wrong, or does not go with an earlier one.
        """
        options = [method_options(part, (*at, position), source) for position, part in enumerate(self.methods)]
        names = part_names(part["name"] for part in self.methods)
        parts = dict(zip(names, options, strict=True))
        for position, (name, part) in enumerate(parts.items()):
            for earlier, other in itertools.islice(parts.items(), position):
                twice = names[name] == names[earlier] and not part.repeatable
                if what := TWICE.format(earlier) if twice else _conflict(part, other, name, earlier):
                    raise config_error((*at, position), what, source)
        return parts

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """The first problem of a part."""
        for position, part in enumerate(self.parts().values()):
            if problem := part.check(model):
                return f"methods.{position}.{problem[0]}", problem[1]
        return None

    def complete(self, model: Sizes, at: Place = (), source: Source | None = None) -> dict[str, Any]:
        """The methods in the list, each complete.

        Raises:
            ConfigError: one of them is wrong, or does not go with an earlier one.
        """
        at, methods = (*at, "methods"), []
        refused = {
            "baseline": "changes nothing; leave it out",
            "combined": "stands in the list of another; list its methods here instead",
        }
        for position, part in enumerate(self.methods):
            if what := refused.get(str(part.get("name"))):
                raise config_error((*at, position, "name"), f"{part['name']!r} {what}", source)
            methods.append(check_method(part, model, (*at, position), source))
        CombinedOptions(methods=methods).parts(at, source)
        return {"methods": methods}

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Each method as it is stored by itself."""
        return {"methods": [stored_method(method) for method in options["methods"]]}

    def hooks_for(self, kind: Kind) -> frozenset[AttentionHook]:
        """All hooks of the parts."""
        return frozenset().union(*(part.hooks_for(kind) for part in self.parts().values()))

    @property
    def observes_heads(self) -> bool:
        """Whether one of them does."""
        return any(part.observes_heads for part in self.parts().values())


OPTIONS.add("combined", CombinedOptions)


def part_names(names: Iterable[str]) -> dict[str, str]:
    """Methods by their names in results: the method's own; a second one of a method is "disagreement-2"."""
    seen: Counter[str] = Counter()
    result = {}
    for name in names:
        seen[name] += 1
        result[name if seen[name] == 1 else f"{name}-{seen[name]}"] = name
    return result


def _conflict(part: MethodOptions, other: MethodOptions, name: str, earlier: str) -> str | None:
    if what := part.conflict(other, name, earlier) or other.conflict(part, earlier, name):
        return what
    for kind in ATTENTION_KINDS:
        made, others = part.hooks_for(kind), other.hooks_for(kind)
        if made and others and "attention" in made | others:
            one, two = (name, earlier) if "attention" in made else (earlier, name)
            return f"{one!r} builds {kind} attention as a whole and leaves nothing for {two!r}; expected one of them"
        if both := made & others:
            where = "build" if "output_stage" in both else "stand in front of"
            return f"{name!r} and {earlier!r} both {where} the output stage of {kind} attention; expected one of them"
    return None
