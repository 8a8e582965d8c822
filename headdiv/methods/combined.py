"""Several methods at once, in one model and one training.

    {name: combined, methods: [{name: deacon, architecture: direct, m: 8}, {name: disagreement, term: output}]}

Losses add up, and what methods do after a step or an epoch is done in the order in which they are listed. Inside an
attention module there are two places: in front of the output stage, where homeostasis inhibits units of the heads, and
the output stage itself, which DEACON or mixing builds. One method can have each place of each kind of attention, so
winners are taken of the heads before they are mixed, whatever the order of the list. Mixture of attention heads builds
the whole module and leaves no place to others. Block outputs go through one method's part after the other's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar, get_args

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.core.settings import Settings, mistake
from headdiv.methods.base import DecodeToken, EpochEnd, Method, Observed, RequiredRecords
from headdiv.methods.disagreement import ALL_KINDS, Disagreement
from headdiv.methods.dpp import Dpp
from headdiv.methods.homeostasis import InhibitedOutput
from headdiv.methods.moa import Moa
from headdiv.methods.rotation import DynamicRotation, Rotation
from headdiv.nn.attention import AttentionSpec, BlockSpec, HeadRecord, MultiHeadAttention
from headdiv.nn.config import Sizes

Role = Literal["nothing", "front", "output", "whole"]  # what of an attention module a method makes
Roles = dict[str, Role]  # by kind of attention
Told = TypeVar("Told")

LOSSES = (Disagreement, Dpp)  # these can stand twice, with different terms
MOVERS = (Rotation, DynamicRotation)


class Combined(Method):
    """The methods of a list, together.

    Args:
        options: the list as it was told.
        parts: its methods, by the names of `part_names`.
    """

    class Options(Settings):
        """No defaults: each method brings its own."""

        methods: list[dict[str, Any]] = Field(
            min_length=2, description="methods, each with its name and options, in the order in which they act"
        )

    options: Options

    def __init__(self, options: Settings, parts: Mapping[str, Method]) -> None:
        super().__init__(options)
        self.parts = dict(parts)
        for place, what in _pairs(self.parts, _clash):
            raise mistake(("method", "methods", place), what)

    def attention(self, spec: AttentionSpec) -> nn.Module:
        """The module of the method that builds its output stage, with what another puts in front of it.

        Raises:
            ConfigError: two methods want the same place; `conflict` finds that for a whole model.
        """
        modules = {name: part.attention(spec) for name, part in self.parts.items()}
        roles = {name: {spec.kind: _role(module)} for name, module in modules.items()}
        for place, what in _pairs(roles, _double):
            raise mistake(("method", "methods", place), what)
        built = {_role(module): module for module in modules.values()}
        front, behind = built.get("front"), built.get("whole") or built.get("output")
        if front is not None and behind is not None:
            put_in_front(behind.output, front.output.inhibition)
        return behind or front or super().attention(spec)

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
        added = [part.aux_loss(model, records, progress, count) for part in self.parts.values()]
        there = [loss for loss in added if loss is not None]
        return sum(there[1:], start=there[0]) if there else None

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
        """One after the other, each with its own history: what each returns, by its name; without those of nothing."""
        told = {}
        for name, part in self.parts.items():
            own = replace(end, history=[point.get(name, {}) for point in end.history])
            if done := part.after_epoch(own):
                told[name] = done
        return told

    def artifacts(self, model: nn.Module) -> dict[str, Any]:
        """All of theirs, under the names that each gives."""
        return {name: found for part in self.parts.values() for name, found in part.artifacts(model).items()}

    def observed_artifacts(
        self, observed: Iterable[Observed], vocabulary: int, decode_token: DecodeToken
    ) -> dict[str, Any]:
        """All of theirs; the model runs once, and only as far as one of them reads."""
        readers = [
            part for part in self.parts.values() if type(part).observed_artifacts is not Method.observed_artifacts
        ]
        told: dict[str, Any] = {}
        for part, seen in zip(readers, itertools.tee(observed, len(readers)), strict=True):
            told |= part.observed_artifacts(seen, vocabulary, decode_token)
        return told


def put_in_front(output: nn.Module, inhibition: nn.Module) -> None:
    """Send what an output stage is given through ``inhibition`` first.

    The stage keeps its class, its place and the names of its parameters, by which others find them and by which they
    are drawn; buffers of the inhibition have the names that they have without a stage of another method.
    """
    output.inhibition = inhibition
    output.register_forward_pre_hook(_inhibited)


def _inhibited(output: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (output.inhibition(inputs[0]), *inputs[1:])


# ---- what goes together


def part_names(names: Iterable[str]) -> list[str]:
    """What the parts are called in the results: by their methods; a second one of a method "disagreement-2"."""
    seen: Counter[str] = Counter()
    told = []
    for name in names:
        seen[name] += 1
        told.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return told


def needless(name: Any) -> str | None:
    """Why a method of this name has no place in a list, or None."""
    if name == "baseline":
        return "'baseline' changes nothing; leave it out"
    if name == "combined":
        return "'combined' stands in the list of another; list its methods here instead"
    return None


def conflict(parts: Mapping[str, Method], model: Sizes) -> tuple[int, str] | None:
    """The first method of a list that does not go with one before it: its place in the list, and a sentence; or None.

    Args:
        parts: by the names of `part_names`, each valid alone.
        model: the sizes that they meet.
    """
    roles = {name: _roles(part, model) for name, part in parts.items()}
    return min([*_pairs(parts, _clash), *_pairs(roles, _double)], key=lambda found: found[0], default=None)


def _pairs(told: Mapping[str, Told], wrong: Callable[[Told, Told, str, str], str | None]) -> Iterator[tuple[int, str]]:
    """What is ``wrong`` with a part beside an earlier one: place of the later in the list, and a sentence."""
    for (_, (earlier, other)), (place, (name, part)) in itertools.combinations(enumerate(told.items()), 2):
        if what := wrong(part, other, name, earlier):
            yield place, what


def _clash(part: Method, other: Method, name: str, earlier: str) -> str | None:
    """Of two methods whatever the model is."""
    if type(part) is type(other) and not isinstance(part, LOSSES):
        return f"{earlier!r} is listed twice; expected all of its options in one place"
    if isinstance(part, MOVERS) and isinstance(other, MOVERS):
        return f"{name!r} and {earlier!r} would each swap heads that the other has placed; expected one of them"
    for mixture, beside, said in ((part, other, earlier), (other, part, name)):
        if isinstance(mixture, Moa) and isinstance(beside, MOVERS):
            return f"{said!r} swaps heads of ordinary attention, of which 'moa' leaves none; expected one of them"
        if isinstance(mixture, Moa) and isinstance(beside, LOSSES) and beside.options.term == "subspace":
            return f"{said!r} compares the heads' values, which all experts of 'moa' share; expected another term"
    return None


def _double(roles: Roles, others: Roles, name: str, earlier: str) -> str | None:
    """Of two methods that want one place of an attention module."""
    for kind, role in roles.items():
        there = {role, others[kind]}
        if "nothing" in there or there == {"front", "output"}:
            continue
        if "whole" in there:
            one, two = (name, earlier) if role == "whole" else (earlier, name)
            return f"{one!r} builds {kind} attention as a whole and leaves nothing for {two!r}; expected one of them"
        where = "stand in front of" if role == "front" else "build"
        return f"{name!r} and {earlier!r} both {where} the output stage of {kind} attention; expected one of them"
    return None


def _roles(method: Method, model: Sizes) -> Roles:
    """What the method makes of each kind of attention; asked of modules themselves, so that any method may be asked.

    Their heads are of width 1, which changes nothing of it; what they draw at random is given back.
    """
    with torch.random.fork_rng(devices=[]):
        specs = [AttentionSpec(kind, 0, model.heads, model.heads, model.attention_bias) for kind in ALL_KINDS]
        return {spec.kind: _role(method.attention(spec)) for spec in specs}


def _role(module: nn.Module) -> Role:
    if type(module) is not MultiHeadAttention:
        return "whole"
    if isinstance(module.output, InhibitedOutput):
        return "front"
    return "nothing" if type(module.output) is nn.Linear else "output"
