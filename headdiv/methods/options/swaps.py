"""Options of multi-head rotation: which heads are swapped, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from headdiv.core.settings import Settings
from headdiv.methods.options.base import MethodOptions
from headdiv.nn.sizes import ATTENTION_KINDS, Kind, LMConfig, ModelConfig, Sizes


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


class SwapOptions(MethodOptions):
    """What the two rotations share."""

    def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
        """Two methods cannot both move heads, and there must be ordinary heads to move."""
        if isinstance(other, SwapOptions):
            return f"{name!r} and {others_name!r} would each swap heads that the other has placed; expected one of them"
        if other.builds_modules:
            ordinary = f"heads of ordinary attention, of which {others_name!r} leaves none"
            return f"{name!r} swaps {ordinary}; expected one of them"
        return None


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


class RotationOptions(SwapOptions):
    """The default plan is the paper's layers 1 and 5, counted from 1, at the epochs of the authors' code.

    That code counts layers from 0, so that its "1" and "5" are the second and the sixth: ``layers: [2, 6]``.
    """

    plan: list[PlannedSwap] = Field(
        [PlannedSwap(layers=(1, 5), epochs=(3, 7, 9, 11))],
        min_length=1,
        description="which heads are swapped before which epochs",
    )
    optimiser_state: bool = Field(True, description="the optimiser's state of the heads moves with them")

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """The model must have the plan's layers and heads."""
        grids = head_grids_within(model)
        for number, planned in enumerate(self.plan if grids else ()):
            try:
                planned.swaps(grids)
            except ValueError as error:
                return f"plan.{number}", str(error)
        return None

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The plan is stored as a sentence: hashes of runs, and results made before it was a list, depend on it."""
        plan = [PlannedSwap.model_validate(planned).sentence() for planned in options["plan"]]
        return options | {"plan": "; ".join(plan)}


class DynamicRotationOptions(SwapOptions):
    """The schedule is that of the authors' code; the paper's own k and t_max are not given.

    Soft swaps are four pairs in each of three layers there (``swaps: 4, layers: 3``). Its distance compares attention
    weights and its "base" confidence is a maximum over words, where Eqs. 5 and 6 have outputs and means.
    """

    choice: Literal["hard", "soft", "random"] = Field(
        description="least with most important heads (Algorithm 1); least important ones of the i-th layer with "
        "those of the i-th from the end (2); any (3)"
    )
    measure: Literal["confidence", "l2"] = Field(
        "l2", description="importance: Eq. 5, or Eq. 6, the average distance from the other heads of the layer"
    )
    swaps: int = Field(3, ge=1, description="k: pairs of each kind of attention; soft: of each pair of layers")
    layers: int = Field(1, ge=1, description="t_max, soft only: how many of the lowest layers take part")
    first: int = Field(2, ge=2, description="epoch before which the first swap takes place")
    last: int = Field(20, ge=2, description="epoch before which the last swap may take place")
    every: int = Field(4, ge=1, description="epochs for which a swap stands")
    swap_back: bool = Field(True, description="swapped heads return when their time is over")
    rest: int = Field(1, ge=1, description="epochs after they have returned")
    kinds: tuple[Kind, ...] = Field(ATTENTION_KINDS, min_length=1, description="kinds of attention whose heads change")
    optimiser_state: bool = Field(True, description="the optimiser's state of the heads moves with them")

    @property
    def observes_heads(self) -> bool:
        """To choose heads by what they do."""
        return self.choice != "random"

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """No more pairs than there are heads for."""
        if self.last < self.first:
            return "last", f"{self.last} comes before first = {self.first}"
        return self.too_many(head_grids_within(model))

    def too_many(self, grids: Mapping[Kind, HeadGrid]) -> tuple[str, str] | None:
        """The key and the sentence if there are more pairs than these layers and heads allow, or None."""
        for kind, (layers, heads) in grids.items():
            if kind not in self.kinds:
                continue
            soft = self.choice == "soft"
            most = heads if soft else layers * heads // 2
            if self.swaps > most:
                of = f"{heads} heads of each of two layers" if soft else f"{layers} × {heads} heads"
                return "swaps", f"{self.swaps} pairs are more than the {most} that {of} make ({kind} attention)"
            if soft and self.layers > layers // 2:
                return "layers", f"{self.layers} is more than half of the {layers} layers ({kind} attention)"
        return None
