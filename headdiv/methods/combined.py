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
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.methods.base import DecodeToken, EpochEnd, Method, Picture, RequiredRecords
from headdiv.methods.options import AttentionHook, CombinedOptions
from headdiv.nn.attention import AttentionModule, AttentionSpec, BlockSpec, HeadRecord
from headdiv.nn.sizes import Kind


class Combined(Method):
    """The methods of a list, together, made from the options.

    Raises:
        ConfigError: two of them do not go together.
    """

    Options = CombinedOptions
    options: CombinedOptions

    def __init__(self, options: CombinedOptions) -> None:
        from headdiv.methods.registry import METHODS  # which has this class too

        super().__init__(options)
        made = zip(options.methods, options.parts().items(), strict=True)
        self.parts: dict[str, Method] = {name: METHODS[method["name"]](part) for method, (name, part) in made}

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

    def _maker(self, hook: AttentionHook, kind: Kind) -> Method | None:
        return next((part for part in self.parts.values() if hook in part.options.hooks_for(kind)), None)

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


def parts_of(method: Method) -> list[Method]:
    """The methods of a combination; any other method alone."""
    return list(method.parts.values()) if isinstance(method, Combined) else [method]
