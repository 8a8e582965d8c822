"""Swaps of heads: which they are, and how the projections of two heads change places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.core.errors import TrainingError
from headdiv.core.settings import Settings
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.projections import must_be_merged
from headdiv.nn.records import attention_modules, by_name
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, Kind, LMConfig, ModelConfig, Sizes


class HeadIndex(NamedTuple):
    """A head of some kind of attention, counted from 0."""

    layer: int
    head: int


class HeadGrid(NamedTuple):
    """Size of a model's attention of one kind."""

    layers: int
    heads: int


Swap = tuple[Kind, HeadIndex, HeadIndex]
From1 = Annotated[int, Field(ge=1)]


def head_grids_within(model: Sizes) -> dict[Kind, HeadGrid]:
    """The grids that a model of these sizes may have; the task decides whether a single stack is encoder or decoder.

    Empty where its layers are not known.
    """
    if isinstance(model, ModelConfig):
        layers = (model.encoder_layers, model.decoder_layers, model.decoder_layers)
    else:
        layers = (model.layers, model.layers) if isinstance(model, LMConfig) else ()
    return {kind: HeadGrid(number, model.heads) for kind, number in zip(ATTENTION_KINDS, layers, strict=False)}


class PlannedSwap(Settings):
    """Heads to swap before certain epochs; everything is counted from 1."""

    kind: Kind = Field("cross", description="of attention; the paper swaps heads of encoder-decoder attention")
    layers: tuple[From1, From1] = Field(description="of the two heads of each pair; may be equal")
    heads: Literal["all"] | tuple[tuple[From1, From1], ...] = Field(
        "all",
        min_length=1,
        description="pairs of a head of the first layer and one of the second; all: those of equal numbers",
    )
    epochs: tuple[Annotated[int, Field(ge=2)], ...] = Field(min_length=1, description="before which they are swapped")

    def swaps(self, grids: Mapping[Kind, HeadGrid]) -> list[Swap]:
        """The pairs, in a model with these layers and heads.

        Raises:
            ValueError: the model has no such kind, layer or head; or a head is in two pairs.
        """
        if self.kind not in grids:
            raise ValueError(f"the model has no {self.kind} attention, only {' and '.join(grids)}")
        layers, number = grids[self.kind]
        pairs = [(head, head) for head in range(1, number + 1)] if self.heads == "all" else self.heads
        named = [head for pair in pairs for head in pair]
        for what, largest, most in (("layer", max(self.layers), layers), ("head", max(named), number)):
            if largest > most:
                raise ValueError(f"{self.kind} attention has {what}s 1 to {most}, found {largest}")
        first, second = self.layers
        swaps = [(self.kind, HeadIndex(first - 1, one - 1), HeadIndex(second - 1, other - 1)) for one, other in pairs]
        if len({head for _, *pair in swaps for head in pair}) < 2 * len(swaps):
            raise ValueError("a head is swapped with itself, or twice at once")
        return swaps

    def sentence(self) -> str:
        """The swap as results keep it: "cross layers 1 and 5, all heads, epochs 3 7 9 11"."""
        one, other = self.layers
        layers = f"layer {one}" if one == other else f"layers {one} and {other}"
        sides = () if self.heads == "all" else zip(*self.heads, strict=True)
        heads = " with ".join(" ".join(map(str, side)) for side in sides)
        epochs = f"epoch{'s' if len(self.epochs) > 1 else ''} {' '.join(map(str, self.epochs))}"
        return f"{self.kind} {layers}, {f'heads {heads}' if heads else 'all heads'}, {epochs}"


def ordinary_modules(model: nn.Module) -> list[MultiHeadAttention]:
    """The attention modules whose heads can be swapped, in the order of a forward pass."""
    return [module for module in attention_modules(model) if isinstance(module, MultiHeadAttention)]


@torch.no_grad()
def swap_heads(model: nn.Module, swaps: Sequence[Swap], optimiser: torch.optim.Optimizer | None = None) -> None:
    """Exchange the projections of each pair of heads, one pair after the other.

    Args:
        model: anything that holds attention modules.
        swaps: pairs of heads of one kind, counted from 0.
        optimiser: its state for these rows moves too; None: it stays.

    Raises:
        TrainingError: the model has no such layer or head, the projections of two modules differ or hold more than
            weight and bias, or the optimiser has a state for only one of them. Nothing is swapped then.
        DataError: two modules share a place.
    """
    modules = by_name((module.spec.name, module) for module in ordinary_modules(model))
    known = optimiser.state if optimiser is not None else {}
    pairs = [(_at(modules, kind, one.layer), _at(modules, kind, other.layer)) for kind, one, other in swaps]
    for (_, one, other), (first, second) in zip(swaps, pairs, strict=True):
        both = f"heads of {first.spec.name} and {second.spec.name} are to be swapped, and"
        for module, head in ((first, one.head), (second, other.head)):
            if not 0 <= head < module.spec.heads:
                raise TrainingError(f"{both} {module.spec.name} has {module.spec.heads} heads, found number {head + 1}")
            must_be_merged(f"{both} the projection of {module.spec.name}", module.in_projection, TrainingError)
        if _shapes(first) != _shapes(second):
            raise TrainingError(
                f"{both} their projections are {_shown(first)} and {_shown(second)}; expected heads of one width, and "
                "biases in both or in neither"
            )
        if any((mine in known) != (theirs in known) for mine, theirs in _pairs(first, second)):
            raise TrainingError(f"{both} the optimiser trains one of the two modules; expected both or neither")
    for (_, one, other), (first, second) in zip(swaps, pairs, strict=True):
        rows, others = _rows(first, one.head), _rows(second, other.head)
        for mine, theirs in _pairs(first, second):
            _exchange(mine, rows, theirs, others)
            if mine in known:
                state, their_state = known[mine], known[theirs]
                for name, value in state.items():  # anything with a value for each row; Adafactor's columns have none
                    if isinstance(value, Tensor) and value.shape[:1] == mine.shape[:1]:
                        _exchange(value, rows, their_state[name], others)


def _at(modules: dict[str, MultiHeadAttention], kind: Kind, layer: int) -> MultiHeadAttention:
    place = f"{kind} {layer + 1}"
    if place not in modules:
        raise TrainingError(f"heads of {place!r} are to be swapped, and the model has {', '.join(modules)}")
    return modules[place]


def _rows(module: MultiHeadAttention, head: int) -> Tensor:
    """The rows of ``in_projection`` that belong to a head: K of each of the three blocks, (3·K,)."""
    K, width = module.spec.d_head, module.spec.heads * module.spec.d_head
    own = torch.arange(head * K, (head + 1) * K, device=module.in_projection.weight.device)
    return torch.cat([own + block * width for block in range(3)])


def _pairs(first: MultiHeadAttention, second: MultiHeadAttention) -> Iterable[tuple[Tensor, Tensor]]:
    return zip(first.in_projection.parameters(), second.in_projection.parameters(), strict=True)


def _shapes(module: MultiHeadAttention) -> dict[str, tuple[int, ...]]:
    """The shapes of a head's part, which another head's must equal; modules may have different numbers of heads."""
    return {name: (module.spec.d_head, *x.shape[1:]) for name, x in module.in_projection.named_parameters()}


def _shown(module: MultiHeadAttention) -> str:
    return " and ".join(f"{name} {tuple(x.shape)}" for name, x in module.in_projection.named_parameters())


def _exchange(a: Tensor, rows: Tensor, b: Tensor, others: Tensor) -> None:
    mine, theirs = a[rows], b[others]  # copies
    a[rows], b[others] = theirs, mine


def head_grids(specs: Iterable[AttentionSpec]) -> dict[Kind, HeadGrid]:
    """Layers and heads of every kind of attention of a model with these modules."""
    specs = list(specs)
    return {spec.kind: HeadGrid(sum(other.kind == spec.kind for other in specs), spec.heads) for spec in specs}
