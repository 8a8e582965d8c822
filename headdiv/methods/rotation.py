"""Multi-head rotation, MHR (Azov & Landau): heads are swapped while the model learns.

A swap exchanges W^Q, W^K and W^V (with their biases) of two heads of the same kind of attention: encoder self-,
decoder self- or encoder-decoder attention, never across. W^O stays. Adam's moments of these rows move with them by
default, since they describe the parameters and not their position; the authors' code leaves them where they are, and so
does ``optimiser_state: false``. A swap and its inverse restore model and optimiser exactly.

Swaps take place between two epochs. "Epoch 3" means before the third, counting from 1, as in the authors' code.
Heads that are swapped when the training ends stay where they are: they have learnt to work there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.similarity import measure_heads
from headdiv.core.errors import TrainingError
from headdiv.core.settings import Settings
from headdiv.methods.base import EpochEnd, Method, Picture, of_kinds
from headdiv.nn.attention import ATTENTION_KINDS, AttentionSpec, Kind, keyed_by_place
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import LMConfig, ModelConfig, Sizes


class HeadIndex(NamedTuple):
    """A head of some kind of attention, counted from 0."""

    layer: int
    head: int


Swap = tuple[Kind, HeadIndex, HeadIndex]
From1 = Annotated[int, Field(ge=1)]


def ordinary_modules(model: nn.Module) -> list[MultiHeadAttention]:
    """The attention modules whose heads can be swapped, in the order of a forward pass."""
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


@torch.no_grad()
def swap_heads(model: nn.Module, swaps: Sequence[Swap], optimiser: torch.optim.Optimizer | None = None) -> None:
    """Exchange the projections of each pair of heads, one pair after the other.

    Args:
        model: whatever holds attention modules.
        swaps: pairs of heads of one kind, counted from 0.
        optimiser: its state of these rows moves too; None: it stays.

    Raises:
        TrainingError: the model has no such layer, or the optimiser has a state of one of two modules only.
        DataError: two modules are at one place.
    """
    modules = keyed_by_place((module.spec.place, module) for module in ordinary_modules(model))
    known = optimiser.state if optimiser is not None else {}
    pairs = [(_at(modules, kind, one.layer), _at(modules, kind, other.layer)) for kind, one, other in swaps]
    for first, second in pairs:
        if (first.in_projection.weight in known) != (second.in_projection.weight in known):
            raise TrainingError(
                f"heads of {first.spec.place} and {second.spec.place} are to be swapped, and the optimiser trains one "
                "of the two modules; expected both or neither"
            )
    for (_, one, other), (first, second) in zip(swaps, pairs, strict=True):
        rows, others = _rows(first, one.head), _rows(second, other.head)
        for mine, theirs in zip(first.in_projection.parameters(), second.in_projection.parameters(), strict=True):
            _exchange(mine, rows, theirs, others)
            if mine in known:
                state, their_state = known[mine], known[theirs]
                for name, value in state.items():  # whatever has a value for each row; Adafactor's columns have none
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


def _exchange(a: Tensor, rows: Tensor, b: Tensor, others: Tensor) -> None:
    mine, theirs = a[rows], b[others]  # copies
    a[rows], b[others] = theirs, mine


class HeadGrid(NamedTuple):
    """Size of a model's attention of one kind."""

    layers: int
    heads: int


def head_grids(specs: Iterable[AttentionSpec]) -> dict[Kind, HeadGrid]:
    """Layers and heads of every kind of attention of a model with these modules."""
    specs = list(specs)
    return {spec.kind: HeadGrid(sum(other.kind == spec.kind for other in specs), spec.heads) for spec in specs}


def _head_grids_within(model: Sizes) -> dict[Kind, HeadGrid]:
    """What a model of these sizes may have; a single stack is the encoder's or the decoder's, as the task decides.

    Nothing where its layers are not known.
    """
    if isinstance(model, ModelConfig):
        layers = (model.encoder_layers, model.decoder_layers, model.decoder_layers)
    else:
        layers = (model.layers, model.layers) if isinstance(model, LMConfig) else ()
    return {kind: HeadGrid(number, model.heads) for kind, number in zip(ATTENTION_KINDS, layers, strict=False)}


def _record(swaps: Sequence[Swap], back: bool = False) -> dict[str, Any]:
    """Swaps as the results keep them, layers and heads counted from 1."""
    pairs = [
        {"kind": kind, "one": [one.layer + 1, one.head + 1], "other": [other.layer + 1, other.head + 1]}
        for kind, one, other in swaps
    ]
    return {"swaps": pairs, "back": back} if pairs else {}


def _swaps_of(record: dict[str, Any]) -> list[Swap]:
    return [
        (pair["kind"], *(HeadIndex(layer - 1, head - 1) for layer, head in (pair["one"], pair["other"])))
        for pair in record["swaps"]
    ]


class SwappingMethod(Method):
    """What the two rotations share: they move heads of ordinary attention."""

    swaps_heads = True

    def conflict(self, other: Method, name: str, others_name: str) -> str | None:
        """Two methods cannot both move heads, and there must be ordinary heads to move."""
        if other.swaps_heads:
            return f"{name!r} and {others_name!r} would each swap heads that the other has placed; expected one of them"
        if other.builds_modules:
            ordinary = f"heads of ordinary attention, of which {others_name!r} leaves none"
            return f"{name!r} swaps {ordinary}; expected one of them"
        return None

    def _swap(self, end: EpochEnd, swaps: list[Swap], back: bool = False) -> dict[str, Any]:
        swap_heads(end.model, swaps, end.optimiser if self.options.optimiser_state else None)
        return _record(swaps, back)

    def pictures(self, model: nn.Module, heads: dict[str, Any], history: list[dict[str, Any]]) -> list[Picture]:
        """Which heads were swapped before which epoch: 1 where they go, -1 where they return."""
        sizes = head_grids(module.spec for module in ordinary_modules(model))
        swapped = {kind: np.zeros((layers * H, len(history) + 1)) for kind, (layers, H) in sizes.items()}
        for epoch, record in enumerate(history, start=1):  # what was done after epoch 1 belongs to epoch 2
            for kind, *pair in _swaps_of(record) if record else []:
                for head in pair:
                    swapped[kind][head.layer * sizes[kind][1] + head.head, epoch] = -1 if record["back"] else 1
        return [Picture("Heads swapped before each epoch", "map", swapped, "epoch", "head, layer by layer")]


class PlannedSwap(Settings):
    """Heads that are swapped before certain epochs; everything is counted from 1."""

    kind: Kind = Field("cross", description="of attention; the paper swaps heads of encoder-decoder attention")
    layers: tuple[From1, From1] = Field(description="of the two heads of each pair; may be equal")
    heads: Literal["all"] | tuple[tuple[From1, From1], ...] = Field(
        "all",
        min_length=1,
        description="pairs of a head of the first layer and one of the second; all: those of equal numbers",
    )
    epochs: tuple[Annotated[int, Field(ge=2)], ...] = Field(min_length=1, description="before which they are swapped")

    def swaps(self, rooms: Mapping[Kind, HeadGrid]) -> list[Swap]:
        """The pairs, in a model with this room.

        Raises:
            ValueError: the model has no such kind, layer or head; or a head stands in two pairs.
        """
        if self.kind not in rooms:
            raise ValueError(f"the model has no {self.kind} attention, only {' and '.join(rooms)}")
        layers, number = rooms[self.kind]
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


class Rotation(SwappingMethod):
    """Manual swaps, by a plan."""

    class Options(Settings):
        """The default plan is the paper's layers 1 and 5, counted from 1, at the epochs of the authors' code.

        That code counts layers from 0, so that its "1" and "5" are the second and the sixth: ``layers: [2, 6]``.
        """

        plan: list[PlannedSwap] = Field(
            [PlannedSwap(layers=(1, 5), epochs=(3, 7, 9, 11))],
            min_length=1,
            description="which heads are swapped before which epochs",
        )
        optimiser_state: bool = Field(True, description="the optimiser's state of the heads moves with them")

    options: Options

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """The model must have the plan's layers and heads."""
        rooms = _head_grids_within(model)
        for number, planned in enumerate(options.plan if rooms else ()):
            try:
                planned.swaps(rooms)
            except ValueError as error:
                return f"plan.{number}", str(error)
        return None

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The plan is stored as a sentence: hashes of runs, and results made before it was a list, depend on it."""
        plan = [PlannedSwap.model_validate(planned).sentence() for planned in options["plan"]]
        return options | {"plan": "; ".join(plan)}

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """The swaps that the plan has for the coming epoch.

        Raises:
            TrainingError: the model's single stack is not the one that the plan names.
        """
        rooms, swaps = head_grids(module.spec for module in ordinary_modules(end.model)), list[Swap]()
        for number, planned in enumerate(self.options.plan):
            try:
                pairs = planned.swaps(rooms)
            except ValueError as error:
                raise TrainingError(f"method.plan.{number}: {error}") from None
            swaps += pairs if end.epoch + 1 in planned.epochs else []
        return self._swap(end, swaps)


def _held(history: list[dict[str, Any]]) -> tuple[int | None, list[Swap]]:
    """The epoch of the last choice, and the swaps not yet swapped back, by what was recorded after epochs 1, 2, …"""
    epoch, swaps = None, list[Swap]()
    for number, record in enumerate(history, start=2):  # what was done after epoch 1 belongs to epoch 2
        if record.get("swaps"):
            epoch, swaps = (epoch, []) if record["back"] else (number, _swaps_of(record))
    return epoch, swaps


class DynamicRotation(SwappingMethod):
    """Swaps chosen by what the heads do on the validation split."""

    class Options(Settings):
        """The schedule is that of the authors' code; the paper's own k and t_max are not given.

        Soft swaps are four pairs in each of three layers there (``swaps: 4, layers: 3``). Its distance is one of
        attention weights and its "base" confidence a maximum over words, where Eqs. 5 and 6 have outputs and means.
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
        kinds: tuple[Kind, ...] = Field(
            ATTENTION_KINDS, min_length=1, description="kinds of attention whose heads change"
        )
        optimiser_state: bool = Field(True, description="the optimiser's state of the heads moves with them")

    options: Options

    def __init__(self, options: Settings) -> None:
        super().__init__(options)
        self.observes_heads = options.choice != "random"

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """No more pairs than there are heads for."""
        if options.last < options.first:
            return "last", f"{options.last} comes before first = {options.first}"
        return cls._too_many(options, _head_grids_within(model))

    @staticmethod
    def _too_many(options: Settings, rooms: Mapping[Kind, HeadGrid]) -> tuple[str, str] | None:
        for kind, (layers, heads) in rooms.items():
            if kind not in options.kinds:
                continue
            soft = options.choice == "soft"
            room = heads if soft else layers * heads // 2
            if options.swaps > room:
                of = f"{heads} heads of each of two layers" if soft else f"{layers} × {heads} heads"
                return "swaps", f"{options.swaps} pairs are more than the {room} that {of} make ({kind} attention)"
            if soft and options.layers > layers // 2:
                return "layers", f"{options.layers} is more than half of the {layers} layers ({kind} attention)"
        return None

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Swap, swap back, or rest.

        Raises:
            TrainingError: the model has no attention of these kinds.
        """
        options, coming, (chosen, held) = self.options, end.epoch + 1, _held(end.history)
        stood = None if chosen is None else coming - chosen  # epochs since the last choice
        if held and options.swap_back and (stood >= options.every or coming > options.last):
            return self._swap(end, held[::-1], back=True)
        rest = options.rest if options.swap_back else 0
        due = coming == options.first if stood is None else stood >= options.every + rest
        return self._swap(end, self.choose(end)) if due and coming <= options.last else {}

    def choose(self, end: EpochEnd) -> list[Swap]:
        """Pairs of heads by the configured measure on the validation split.

        Raises:
            TrainingError: the model has no attention of these kinds, or too few heads for so many pairs.
        """
        specs = [module.spec for module in of_kinds(ordinary_modules(end.model), self.options.kinds)]
        if problem := self._too_many(self.options, head_grids(specs)):
            raise TrainingError(f"method.{problem[0]}: {problem[1]}")
        if not self.observes_heads:
            by_spec = {spec: [0.0] * spec.heads for spec in specs}
        else:
            by_spec = {
                spec: (measured.confidence if self.options.measure == "confidence" else measured.average_l2()).tolist()
                for spec, measured in measure_heads(end.observe(), end.model)
            }
        swaps: list[Swap] = []
        for number, kind in enumerate(ATTENTION_KINDS):
            importance = np.array([by_spec[spec] for spec in specs if spec.kind == kind])  # (layers, H)
            if importance.size:
                swaps += self._choose(kind, importance, np.random.default_rng([end.seed, end.epoch, number]))
        return swaps

    def _choose(self, kind: Kind, importance: np.ndarray, rng: np.random.Generator) -> list[Swap]:
        """Pairs among the heads whose importance is given: (layers, H)."""
        k, (layers, H) = self.options.swaps, importance.shape
        if self.options.choice == "soft":
            least = importance.argsort(axis=1, kind="stable")[:, :k]
            return [
                (kind, HeadIndex(low, int(one)), HeadIndex(layers - 1 - low, int(other)))
                for low in range(self.options.layers)
                for one, other in zip(least[low], least[layers - 1 - low], strict=True)
            ]
        hard = self.options.choice == "hard"
        order = importance.argsort(axis=None, kind="stable") if hard else rng.permutation(importance.size)
        heads = [HeadIndex(*divmod(int(i), H)) for i in order]
        return [(kind, heads[i], heads[-1 - i]) for i in range(k)]
