"""Several methods at once, in one model and one training.

    {name: combined, methods: [{name: deacon, architecture: direct, m: 8}, {name: disagreement, term: output}]}

Losses add up, and what methods do after a step or an epoch is done in the order in which they are listed. Inside an
attention module there are two positions: in front of the output stage, where homeostasis inhibits units of the heads,
and the output stage itself, which DEACON or mixing builds. One method can have each position of each kind of attention,
so winners are taken of the heads before they are mixed, whatever the order of the list. Mixture of attention heads
builds the whole module and leaves no position to others. Block outputs go through one method's part after the other's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core.settings import Settings, Source, config_error
from headdiv.methods.base import DecodeToken, EpochEnd, Method, Picture, RequiredRecords
from headdiv.methods.registry import METHODS, check_method, make_method, stored_method
from headdiv.nn.attention import ATTENTION_KINDS, AttentionModule, AttentionSpec, BlockSpec, HeadRecord, Kind
from headdiv.nn.sizes import Sizes


class Combined(Method):
    """The methods of a list, together.

    Args:
        options: the list.
        parts: its methods by name; made from the options where left out.

    Raises:
        ConfigError: two of them do not go together.
    """

    class Options(Settings):
        """No defaults: each method brings its own."""

        methods: list[dict[str, Any]] = Field(
            min_length=2, description="methods, each with its name and options, in the order in which they act"
        )

    options: Options

    def __init__(self, options: Settings, parts: Mapping[str, Method] | None = None) -> None:
        super().__init__(options)
        self.parts = _parts(options.methods) if parts is None else dict(parts)
        _refuse_conflicts(self.parts, ("method", "methods"))
        self.swaps_heads = any(part.swaps_heads for part in self.parts.values())
        self.observes_heads = any(part.observes_heads for part in self.parts.values())

    @classmethod
    def complete(
        cls, options: Settings, model: Sizes, at: tuple[str | int, ...] = (), source: Source | None = None
    ) -> dict[str, Any]:
        """The methods of the list, each complete.

        Raises:
            ConfigError: one of them is wrong, or does not go with an earlier one.
        """
        at, methods = (*at, "methods"), []
        for position, part in enumerate(options.methods):
            refused = {
                Method: "changes nothing; leave it out",
                cls: "stands in the list of another; list its methods here instead",
            }
            if what := refused.get(METHODS.get(str(part.get("name")))):
                raise config_error((*at, position, "name"), f"{part['name']!r} {what}", source)
            methods.append(check_method(part, model, (*at, position), source))
        _refuse_conflicts(_parts(methods), at, source)
        return {"methods": methods}

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Each method as it is stored alone."""
        return {"methods": [stored_method(method) for method in options["methods"]]}

    def misfit(self, model: Sizes) -> tuple[str, str] | None:
        """The first of a part."""
        for position, part in enumerate(self.parts.values()):
            if problem := part.misfit(model):
                return f"methods.{position}.{problem[0]}", problem[1]
        return None

    def makes(self, kind: Kind) -> set[Any]:
        """All that the parts make."""
        return set[Any]().union(*(part.makes(kind) for part in self.parts.values()))

    def refuse_no_attention(self, model: nn.Module) -> None:
        """Of each part."""
        for part in self.parts.values():
            part.refuse_no_attention(model)

    @property
    def can_be_inserted(self) -> bool:
        """Whether all parts can that build a whole attention module."""
        return all(part.can_be_inserted for part in self.parts.values() if part.builds_modules)

    def inserted(self, spec: AttentionSpec) -> nn.Module | None:
        """Of the part that builds the whole module."""
        part = self._maker("attention", spec.kind)
        return None if part is None else part.inserted(spec)

    def attention(self, spec: AttentionSpec) -> AttentionModule:
        """The module of the part that builds all of it; else ordinary heads with what the parts make of them."""
        part = self._maker("attention", spec.kind)
        return super().attention(spec) if part is None else part.attention(spec)

    def output_stage(self, spec: AttentionSpec) -> nn.Module | None:
        """Of the part that builds it."""
        return self._maker("output_stage", spec.kind).output_stage(spec)

    def before_output(self, spec: AttentionSpec) -> nn.Module | None:
        """Of the part that puts something there."""
        return self._maker("before_output", spec.kind).before_output(spec)

    def _maker(self, hook: str, kind: Kind) -> Method | None:
        return next((part for part in self.parts.values() if hook in part.makes(kind)), None)

    def block_output(self, spec: BlockSpec) -> nn.Module:
        """What the methods put there, one after the other."""
        built = [part.block_output(spec) for part in self.parts.values()]
        acting = [module for module in built if type(module) is not nn.Identity]
        if len(acting) > 1:
            return nn.Sequential(*acting)
        return acting[0] if acting else super().block_output(spec)

    def required_records(self) -> RequiredRecords:
        """The most detailed records that any of them needs."""
        return max((part.required_records() for part in self.parts.values()), key=get_args(RequiredRecords).index)

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """The sum of what they add; None where none adds anything."""
        losses = [part.aux_loss(model, records, progress, count) for part in self.parts.values()]
        added = [loss for loss in losses if loss is not None]
        return sum(added[1:], start=added[0]) if added else None

    def counts_predictions(self) -> bool:
        """Whether one of them does."""
        return any(part.counts_predictions() for part in self.parts.values())

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """All that they train themselves."""
        return [parameter for part in self.parts.values() for parameter in part.own_parameters(model)]

    def frozen_parameters(self, model: nn.Module, progress: float) -> list[nn.Parameter]:
        """All that one of them freezes."""
        return [parameter for part in self.parts.values() for parameter in part.frozen_parameters(model, progress)]

    def after_backward(self, model: nn.Module, progress: float) -> None:
        """One after the other."""
        for part in self.parts.values():
            part.after_backward(model, progress)

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """One after the other, each with its own history; what each returns, by its name, where that is anything."""
        results = {}
        for name, part in self.parts.items():
            own = replace(end, history=[point.get(name, {}) for point in end.history])
            if result := part.after_epoch(own):
                results[name] = result
        return results

    def artifacts(self, model: nn.Module) -> dict[str, Any]:
        """All of theirs, under the names that each gives."""
        return {name: found for part in self.parts.values() for name, found in part.artifacts(model).items()}

    def weight_measures(self, model: nn.Module) -> dict[str, dict[str, float]]:
        """All of theirs."""
        found: dict[str, dict[str, float]] = {}
        for part in self.parts.values():
            for place, measures in part.weight_measures(model).items():
                found.setdefault(place, {}).update(measures)
        return found

    def observed_artifacts(
        self, observed: Iterable[Observed], vocabulary: int, decode_token: DecodeToken
    ) -> dict[str, Any]:
        """All of theirs; the model runs once, and only as far as one of them reads."""
        readers = [
            part for part in self.parts.values() if type(part).observed_artifacts is not Method.observed_artifacts
        ]
        results: dict[str, Any] = {}
        for part, own in zip(readers, itertools.tee(observed, len(readers)), strict=True):
            results |= part.observed_artifacts(own, vocabulary, decode_token)
        return results

    def pictures(self, model: nn.Module, heads: dict[str, Any], history: list[dict[str, Any]]) -> list[Picture]:
        """Those of all methods."""
        found = ((part, [point.get(name, {}) for point in history]) for name, part in self.parts.items())
        return [picture for part, own in found for picture in part.pictures(model, heads, own)]


def part_names(names: Iterable[str]) -> list[str]:
    """What results call the parts: by their methods; a second one of a method "disagreement-2"."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return result


def _parts(methods: list[dict[str, Any]]) -> dict[str, Method]:
    made = [make_method(part, ("method", "methods", position)) for position, part in enumerate(methods)]
    return dict(zip(part_names(part["name"] for part in methods), made, strict=True))


# ---- what goes together


def _refuse_conflicts(parts: Mapping[str, Method], at: tuple[str | int, ...], source: Source | None = None) -> None:
    """ConfigError for the first method of a list that does not go with one before it."""
    for position, (name, part) in enumerate(parts.items()):
        for earlier, other in itertools.islice(parts.items(), position):
            if what := _conflict(part, other, name, earlier):
                raise config_error((*at, position), what, source)


def _conflict(part: Method, other: Method, name: str, earlier: str) -> str | None:
    if type(part) is type(other) and not part.repeatable:
        return f"{earlier!r} is listed twice; expected all of its options in one place"
    if what := part.conflict(other, name, earlier) or other.conflict(part, earlier, name):
        return what
    for kind in ATTENTION_KINDS:
        made, others = part.makes(kind), other.makes(kind)
        if made and others and "attention" in made | others:
            one, two = (name, earlier) if "attention" in made else (earlier, name)
            return f"{one!r} builds {kind} attention as a whole and leaves nothing for {two!r}; expected one of them"
        if both := made & others:
            where = "build" if "output_stage" in both else "stand in front of"
            return f"{name!r} and {earlier!r} both {where} the output stage of {kind} attention; expected one of them"
    return None
