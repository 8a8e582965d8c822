"""Several methods at once, in one model and one training run.

    {name: combined, methods: [{name: deacon, architecture: direct, m: 8}, {name: disagreement, term: output}]}

Losses are added, and what methods do after a step or an epoch is done in the order in which they are listed. Inside an
attention module there are two positions: in front of the output stage, where homeostasis inhibits units of the heads,
and the output stage itself, which DEACON or mixing builds. Each position of each kind of attention can go to one
method, so winners are taken from the heads before they are mixed, whatever the order of the list. Mixture of attention
heads builds the whole module and leaves no position to others. Block outputs go through the methods' parts in turn.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

from pydantic import Field
from torch import Tensor, nn

from headdiv.core.settings import Place, Source, config_error
from headdiv.methods.base import (
    AttentionHook,
    EpochEnd,
    Method,
    MethodOptions,
    RequiredRecords,
    ValidationSplit,
    of_kinds,
)
from headdiv.methods.registry import METHODS, method_options, register, stored_method
from headdiv.nn.attention import AttentionModule
from headdiv.nn.records import HeadRecord, attention_modules
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, BlockSpec, Kind, Sizes


def part_names(names: Iterable[str]) -> dict[str, str]:
    """Methods by their names in results: the method's own; of a second "disagreement" it is "disagreement-2"."""
    counts: Counter[str] = Counter()
    parts = {}
    for name in names:
        counts[name] += 1
        parts[name if counts[name] == 1 else f"{name}-{counts[name]}"] = name
    return parts


def _conflict(part: MethodOptions, other: MethodOptions, name: str, earlier: str) -> str | None:
    """Why a method does not go with an ``earlier`` one of a list, as a sentence; None where it does."""
    if reason := part.conflict(other, name, earlier) or other.conflict(part, earlier, name):
        return reason
    for kind in ATTENTION_KINDS:
        hooks, other_hooks = part.hooks_for(kind), other.hooks_for(kind)
        if hooks and other_hooks and "attention" in hooks | other_hooks:
            whole, rest = (name, earlier) if "attention" in hooks else (earlier, name)
            return f"{whole!r} builds {kind} attention as a whole and leaves nothing for {rest!r}; expected one of them"
        if shared := hooks & other_hooks:
            verb = "build" if "output_stage" in shared else "stand in front of"
            return f"{name!r} and {earlier!r} both {verb} the output stage of {kind} attention; expected one of them"
    return None


@register
class Combined(Method):
    """The methods of a list, together, built from the options.

    Raises:
        ConfigError: two of them do not go together.
    """

    name = "combined"

    class Options(Method.Options):
        """No defaults: each method brings its own."""

        methods: list[dict[str, Any]] = Field(
            min_length=2, description="methods, each with its name and options, in the order in which they act"
        )

        @cached_property
        def parts(self) -> dict[str, MethodOptions]:
            """The options of each method, by the names that results give them; raises as `parts_at`."""
            return self.parts_at(("method", "methods"))

        def parts_at(self, at: Place, source: Source | None = None) -> dict[str, MethodOptions]:
            """The same, where the list is at this place of a file.

            Raises:
                ConfigError: one is wrong, or does not go with an earlier one.
            """
            refused = {
                "baseline": "changes nothing; leave it out",
                "combined": "stands in the list of another; list its methods here instead",
            }
            for position, part in enumerate(self.methods):
                if reason := refused.get(str(part.get("name"))):
                    raise config_error((*at, position, "name"), f"{part['name']!r} {reason}", source)
            options = [method_options(part, (*at, position), source) for position, part in enumerate(self.methods)]
            names = part_names(part["name"] for part in self.methods)
            parts = dict(zip(names, options, strict=True))
            for position, (name, part) in enumerate(parts.items()):
                for earlier, other in itertools.islice(parts.items(), position):
                    if names[name] == names[earlier] and not part.repeatable:
                        reason = f"{earlier!r} is listed twice; expected all of its options in one place"
                    else:
                        reason = _conflict(part, other, name, earlier)
                    if reason:
                        raise config_error((*at, position), reason, source)
            return parts

        def check(self, model: Sizes) -> tuple[str, str] | None:
            for position, part in enumerate(self.parts.values()):
                if problem := part.check(model):
                    return f"methods.{position}.{problem[0]}", problem[1]
            return None

        def complete(self, model: Sizes, at: Place = (), source: Source | None = None) -> dict[str, Any]:
            """The methods in the list, each complete.

            Raises:
                ConfigError: one of them is wrong, or does not go with an earlier one.
            """
            at = (*at, "methods")
            methods = zip(self.methods, self.parts_at(at, source).values(), strict=True)
            return {
                "methods": [
                    {"name": part["name"], **options.complete(model, (*at, position), source)}
                    for position, (part, options) in enumerate(methods)
                ]
            }

        @classmethod
        def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
            return {"methods": [stored_method(method) for method in options["methods"]]}

        def hooks_for(self, kind: Kind) -> frozenset[AttentionHook]:
            return frozenset().union(*(part.hooks_for(kind) for part in self.parts.values()))

        @property
        def observes_heads(self) -> bool:
            return any(part.observes_heads for part in self.parts.values())

    options: Options

    def __init__(self, options: MethodOptions | None = None, **values: Any) -> None:
        super().__init__(options, **values)
        configured = zip(self.options.methods, self.options.parts.items(), strict=True)
        self.parts: dict[str, Method] = {name: METHODS[method["name"]](part) for method, (name, part) in configured}

    def _build(self, hook: AttentionHook, spec: AttentionSpec) -> Any:
        """What the part with this hook builds for a position; None if no part has it."""
        parts = (part for part in self.parts.values() if hook in part.options.hooks_for(spec.kind))
        return next((getattr(part, hook)(spec) for part in parts), None)

    def attention(self, spec: AttentionSpec) -> AttentionModule:
        """The module of the part that builds it as a whole; else ordinary heads with the parts' additions."""
        return self._build("attention", spec) or super().attention(spec)

    def output_stage(self, spec: AttentionSpec) -> nn.Module | None:
        return self._build("output_stage", spec)

    def before_output(self, spec: AttentionSpec) -> nn.Module | None:
        return self._build("before_output", spec)

    def block_output(self, spec: BlockSpec) -> nn.Module:
        modules = [part.block_output(spec) for part in self.parts.values()]
        acting = [module for module in modules if type(module) is not nn.Identity]
        if len(acting) > 1:
            return nn.Sequential(*acting)
        return acting[0] if acting else nn.Identity()

    def required_records(self) -> RequiredRecords:
        return max((part.required_records() for part in self.parts.values()), key=get_args(RequiredRecords).index)

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        losses = [part.aux_loss(model, records, progress, count) for part in self.parts.values()]
        added = [loss for loss in losses if loss is not None]
        return sum(added) if added else None

    def counts_predictions(self) -> bool:
        return any(part.counts_predictions() for part in self.parts.values())

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        return [parameter for part in self.parts.values() for parameter in part.own_parameters(model)]

    def frozen_parameters(self, model: nn.Module, progress: float) -> list[nn.Parameter]:
        return [parameter for part in self.parts.values() for parameter in part.frozen_parameters(model, progress)]

    def after_backward(self, model: nn.Module, progress: float) -> None:
        for part in self.parts.values():
            part.after_backward(model, progress)

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        artifacts = {}
        for part in self.parts.values():
            artifacts |= part.artifacts(model, validation)
        return artifacts

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """One after the other, each with its own history; what each returns, by its name, unless empty."""
        results = {}
        for name, part in self.parts.items():
            own_history = [record.get(name, {}) for record in end.history]
            if result := part.after_epoch(replace(end, history=own_history)):
                results[name] = result
        return results


def parts_of(method: Method) -> list[Method]:
    """The methods of a combination; any other method by itself."""
    return list(method.parts.values()) if isinstance(method, Combined) else [method]


def refuse_no_attention(method: Method, model: nn.Module) -> None:
    """Raise a TrainingError where a method changes attention modules and the model has none of those kinds."""
    for part in parts_of(method):
        kinds = tuple(kind for kind in ATTENTION_KINDS if part.options.hooks_for(kind))
        if kinds:
            of_kinds(attention_modules(model), kinds)
