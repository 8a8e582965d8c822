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
from headdiv.nn.sizes import AttentionSpec, Kind, Sizes


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


def grids_of_config(model: Sizes) -> dict[Kind, HeadGrid]:
    """The grids that a model of these sizes may have; empty where its layers are not known."""
    return {kind: HeadGrid(layers, model.heads) for kind, layers in model.attention_layers.items()}


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


def grids_of_specs(specs: Iterable[AttentionSpec]) -> dict[Kind, HeadGrid]:
    """Layers and heads of every kind of attention of a model with these modules."""
    specs = list(specs)
    return {spec.kind: HeadGrid(sum(other.kind == spec.kind for other in specs), spec.heads) for spec in specs}


@torch.no_grad()
def swap_heads(model: nn.Module, swaps: Sequence[Swap], optimiser: torch.optim.Optimizer | None = None) -> None:
    """Exchange the projections of each pair of heads, one pair after the other.

    Args:
        model: anything that holds attention modules.
        swaps: pairs of heads of one kind, counted from 0.
        optimiser: its state for these rows moves too; None: it stays.

    Raises:
        TrainingError: the model has no such layer or head, or the projections of two modules differ or hold more than
            weight and bias. Nothing is swapped then.
        DataError: two modules share a name.
    """
    modules = by_name((module.spec.name, module) for module in ordinary_modules(model))
    pairs = [tuple(_projections(modules, kind, head) for head in heads) for kind, *heads in swaps]
    for (kind, one, other), (first, second) in zip(swaps, pairs, strict=True):
        shapes = [[(len(rows), *parameter.shape[1:]) for parameter, rows in each] for each in (first, second)]
        if shapes[0] != shapes[1]:
            raise TrainingError(
                f"heads of {kind} {one.layer + 1} and {kind} {other.layer + 1} are to be swapped, and their parameters "
                f"have the shapes {shapes[0]} and {shapes[1]}; expected one width, and biases in both or in neither"
            )
    state = {} if optimiser is None else optimiser.state
    for first, second in pairs:
        for (parameter, rows), (other_parameter, other_rows) in zip(first, second, strict=True):
            _exchange(parameter, rows, other_parameter, other_rows)
            for name, value in state.get(parameter, {}).items():
                # Anything with a value for each row; Adafactor's columns have none.
                if isinstance(value, Tensor) and value.shape[:1] == parameter.shape[:1]:
                    _exchange(value, rows, state[other_parameter][name], other_rows)


def _projections(modules: dict[str, MultiHeadAttention], kind: Kind, head: HeadIndex) -> list[tuple[Tensor, Tensor]]:
    """Weight (and bias) of the projections of a head's module, each with the head's rows: K of each block, (3·K,)."""
    name = f"{kind} {head.layer + 1}"
    if name not in modules:
        raise TrainingError(f"heads of {name!r} are to be swapped, and the model has {', '.join(modules)}")
    projection, spec = modules[name].in_projection, modules[name].spec
    if not 0 <= head.head < spec.heads:
        raise TrainingError(f"{name} has {spec.heads} heads, and number {head.head + 1} is to be swapped")
    must_be_merged(f"the projection of {name}, whose heads are to be swapped,", projection, TrainingError)
    K = spec.d_head
    first = torch.arange(head.head * K, (head.head + 1) * K, device=projection.weight.device)
    rows = torch.cat([first + block * spec.heads * K for block in range(3)])
    return [(parameter, rows) for parameter in projection.parameters()]


def _exchange(a: Tensor, rows: Tensor, b: Tensor, other_rows: Tensor) -> None:
    a_rows, b_rows = a[rows], b[other_rows]  # copies
    a[rows], b[other_rows] = b_rows, a_rows
