"""Several methods at once, in one model and one training run.

    {name: combined, methods: [{name: deacon, architecture: direct, m: 8}, {name: disagreement, term: output}]}

Losses are added, and what methods do after a step or an epoch is done in the order in which they are listed. Inside an
attention module there are two positions: in front of the output stage, where homeostasis inhibits units of the heads,
and the output stage itself, which DEACON or mixing builds. Each position of each kind of attention can go to one
method, so winners are taken from the heads before they are mixed, whatever the order of the list. Mixture of attention
heads builds the whole module and leaves no position to others. Block outputs go through the methods' parts in turn.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import Any, get_args

from torch import Tensor, nn

from headdiv.methods.base import EpochEnd, Method, RequiredRecords
from headdiv.methods.options import AttentionHook, CombinedOptions
from headdiv.nn.attention import AttentionModule
from headdiv.nn.sizes import AttentionSpec

# ---- how the results of several become one


def in_turn(modules: list[nn.Module]) -> nn.Module:
    """The modules that do something, one after the other."""
    acting = [module for module in modules if type(module) is not nn.Identity]
    return nn.Sequential(*acting) if len(acting) > 1 else acting[0] if acting else nn.Identity()


def most_detailed(records: list[RequiredRecords]) -> RequiredRecords:
    """The most detailed records that any of them needs."""
    return max(records, key=get_args(RequiredRecords).index)


def total(losses: list[Tensor | None]) -> Tensor | None:
    """The sum of their losses; None where none adds anything."""
    added = [loss for loss in losses if loss is not None]
    return reduce(operator.add, added) if added else None


def joined(lists: list[list[Any]]) -> list[Any]:
    """All of their items."""
    return list(chain.from_iterable(lists))


def merged(artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    """All of their artifacts, under the names that each gives."""
    return {name: one for found in artifacts for name, one in found.items()}


def of_all(hook: str, rule: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A combination's hook: the parts' hooks, called in the order of the list, and ``rule`` of their results."""

    def call(self: Combined, *arguments: Any) -> Any:
        return rule([getattr(part, hook)(*arguments) for part in self.parts.values()])

    return call


# ---- the method


class Combined(Method):
    """The methods of a list, together, built from the options.

    Raises:
        ConfigError: two of them do not go together.
    """

    Options = CombinedOptions
    options: CombinedOptions

    def __init__(self, options: CombinedOptions | None = None, **values: Any) -> None:
        from headdiv.methods.registry import METHODS  # which has this class too

        super().__init__(options, **values)
        made = zip(self.options.methods, self.options.parts().items(), strict=True)
        self.parts: dict[str, Method] = {name: METHODS[method["name"]](part) for method, (name, part) in made}

    block_output = of_all("block_output", in_turn)
    required_records = of_all("required_records", most_detailed)
    aux_loss = of_all("aux_loss", total)
    counts_predictions = of_all("counts_predictions", any)
    own_parameters = of_all("own_parameters", joined)
    frozen_parameters = of_all("frozen_parameters", joined)
    after_backward = of_all("after_backward", lambda _: None)
    artifacts = of_all("artifacts", merged)

    def _built(self, hook: AttentionHook, spec: AttentionSpec) -> Any:
        """What the one part with this hook builds for a position; None where there is none."""
        parts = (part for part in self.parts.values() if hook in part.options.hooks_for(spec.kind))
        return next((getattr(part, hook)(spec) for part in parts), None)

    def attention(self, spec: AttentionSpec) -> AttentionModule:
        """The module of the part that builds all of it; else ordinary heads with what the parts add."""
        return self._built("attention", spec) or super().attention(spec)

    def output_stage(self, spec: AttentionSpec) -> nn.Module | None:
        """That of the part that builds it."""
        return self._built("output_stage", spec)

    def before_output(self, spec: AttentionSpec) -> nn.Module | None:
        """That of the part that puts something there."""
        return self._built("before_output", spec)

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """One after the other, each with its own history; what each returns, by its name, unless empty."""
        results = {}
        for name, part in self.parts.items():
            own = replace(end, history=[point.get(name, {}) for point in end.history])
            if result := part.after_epoch(own):
                results[name] = result
        return results


def parts_of(method: Method) -> list[Method]:
    """The methods of a combination; any other method by itself."""
    return list(method.parts.values()) if isinstance(method, Combined) else [method]
