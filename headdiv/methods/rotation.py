"""Multi-head rotation, MHR (Azov & Landau): heads are swapped during training.

A swap exchanges W^Q, W^K and W^V (with their biases) of two heads of the same kind of attention: encoder self-,
decoder self- or encoder-decoder attention, never across. W^O stays. Adam's moments of these rows move with them by
default, since they describe the parameters and not their position; the authors' code leaves them where they are, and so
does ``optimiser_state: false``. A swap and its inverse restore model and optimiser exactly.

Swaps take place between two epochs. "Epoch 3" means before the third, counting from 1, as in the authors' code.
Heads that are swapped when training ends stay where they are, since they have learnt to work there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.similarity import compare_heads
from headdiv.core.errors import TrainingError
from headdiv.core.settings import Settings
from headdiv.methods.base import EpochEnd, Method, MethodOptions, of_kinds
from headdiv.methods.registry import register
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.projections import must_be_merged
from headdiv.nn.records import attention_modules, by_name
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, Kind, Sizes

# ---- which heads are swapped, and how their projections change places


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
        heads = [head for pair in pairs for head in pair]
        for noun, largest, count in (("layer", max(self.layers), layers), ("head", max(heads), number)):
            if largest > count:
                raise ValueError(f"{self.kind} attention has {noun}s 1 to {count}, found {largest}")
        first, second = self.layers
        swaps = [(self.kind, HeadIndex(first - 1, one - 1), HeadIndex(second - 1, other - 1)) for one, other in pairs]
        if len({head for _, *pair in swaps for head in pair}) < 2 * len(swaps):
            raise ValueError("a head is swapped with itself, or twice at once")
        return swaps

    def sentence(self) -> str:
        """The swap as results keep it: "cross layers 1 and 5, all heads, epochs 3 7 9 11"."""
        first, second = self.layers
        layers = f"layer {first}" if first == second else f"layers {first} and {second}"
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
        TrainingError: the model has no such layer or head; the projections of two modules differ, hold more than weight
            and bias, or only one of them has a state in the optimiser. Nothing is swapped then.
        DataError: two modules share a name.
    """
    modules = by_name((module.spec.name, module) for module in ordinary_modules(model))
    pairs = [tuple(_projections(modules, kind, head) for head in heads) for kind, *heads in swaps]
    state = {} if optimiser is None else optimiser.state
    for (kind, one, other), (first, second) in zip(swaps, pairs, strict=True):
        what = f"heads of {kind} {one.layer + 1} and {kind} {other.layer + 1} are to be swapped, and"
        shapes = [[(len(rows), *parameter.shape[1:]) for parameter, rows in head] for head in (first, second)]
        if shapes[0] != shapes[1]:
            raise TrainingError(
                f"{what} their parameters have the shapes {shapes[0]} and {shapes[1]}; expected one width, and biases "
                "in both or in neither"
            )
        if any(bool(state.get(p)) != bool(state.get(q)) for (p, _), (q, _) in zip(first, second, strict=True)):
            raise TrainingError(
                f"{what} the optimiser has a state for one of the two; expected both trained, or optimiser_state: false"
            )
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


# ---- the methods


def _as_record(swaps: Sequence[Swap], back: bool = False) -> dict[str, Any]:
    """Swaps as the results keep them, layers and heads counted from 1."""
    pairs = [
        {"kind": kind, "one": [first.layer + 1, first.head + 1], "other": [second.layer + 1, second.head + 1]}
        for kind, first, second in swaps
    ]
    return {"swaps": pairs, "back": back} if pairs else {}


def _swaps_of(record: dict[str, Any]) -> list[Swap]:
    """The inverse of `_as_record`."""
    return [
        (pair["kind"], *(HeadIndex(layer - 1, head - 1) for layer, head in (pair["one"], pair["other"])))
        for pair in record["swaps"]
    ]


class SwappingMethod(Method):
    """The base of both rotations: they move heads of ordinary attention."""

    class Options(Method.Options):
        """Their conflicts with other methods."""

        def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
            if isinstance(other, SwappingMethod.Options):
                return (
                    f"{name!r} and {others_name!r} would each swap heads that the other has placed; "
                    "expected one of them"
                )
            if other.builds_modules:
                return (
                    f"{name!r} swaps heads of ordinary attention, and {others_name!r} builds attention modules of its "
                    "own; expected one of them"
                )
            return None

    def _swap(self, end: EpochEnd, swaps: list[Swap], back: bool = False) -> dict[str, Any]:
        swap_heads(end.model, swaps, end.optimiser if self.options.optimiser_state else None)
        return _as_record(swaps, back)


@register
class Rotation(SwappingMethod):
    """Manual swaps, following a plan."""

    name = "rotation"

    class Options(SwappingMethod.Options):
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
            grids = grids_of_config(model)
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

    options: Options

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """The swaps that the plan has for the coming epoch.

        Raises:
            TrainingError: the model has no such attention, layer or head; see also `swap_heads`.
        """
        grids, swaps = grids_of_specs(module.spec for module in ordinary_modules(end.model)), list[Swap]()
        for number, planned in enumerate(self.options.plan):
            try:
                pairs = planned.swaps(grids)
            except ValueError as error:
                raise TrainingError(f"method.plan.{number}: {error}") from None
            swaps += pairs if end.epoch + 1 in planned.epochs else []
        return self._swap(end, swaps)


def _standing_swaps(history: list[dict[str, Any]]) -> tuple[int | None, list[Swap]]:
    """The epoch of the last choice, and the swaps not yet undone, from what was recorded after epochs 1, 2, …"""
    epoch, swaps = None, list[Swap]()
    for number, record in enumerate(history, start=2):  # what was done after epoch 1 belongs to epoch 2
        if record.get("swaps"):
            epoch, swaps = (epoch, []) if record["back"] else (number, _swaps_of(record))
    return epoch, swaps


@register
class DynamicRotation(SwappingMethod):
    """Swaps chosen by what the heads do on the validation split."""

    name = "dynamic-rotation"

    class Options(SwappingMethod.Options):
        """The schedule is that of the authors' code; the paper's own k and t_max are not given.

        Soft swaps are four pairs in each of three layers there (``swaps: 4, layers: 3``). Its distance compares
        attention weights and its "base" confidence is a maximum over words, where Eqs. 5 and 6 have outputs and means.
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

        @property
        def observes_heads(self) -> bool:
            return self.choice != "random"

        def check(self, model: Sizes) -> tuple[str, str] | None:
            if self.last < self.first:
                return "last", f"{self.last} comes before first = {self.first}"
            return self.too_many(grids_of_config(model))

        def too_many(self, grids: Mapping[Kind, HeadGrid]) -> tuple[str, str] | None:
            """The key and the sentence if there are more pairs than these layers and heads allow, or None."""
            for kind, (layers, heads) in grids.items():
                if kind not in self.kinds:
                    continue
                soft = self.choice == "soft"
                limit = heads if soft else layers * heads // 2
                if self.swaps > limit:
                    available = f"{heads} heads of each of two layers" if soft else f"{layers} × {heads} heads"
                    return (
                        "swaps",
                        f"{self.swaps} pairs are more than the {limit} that {available} make ({kind} attention)",
                    )
                if soft and self.layers > layers // 2:
                    return "layers", f"{self.layers} is more than half of the {layers} layers ({kind} attention)"
            return None

    options: Options

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Swap, swap back, or rest.

        Raises:
            TrainingError: the model has no attention of these kinds; see also `choose` and `swap_heads`.
        """
        options, epoch = self.options, end.epoch + 1
        chosen, standing = _standing_swaps(end.history)
        age = None if chosen is None else epoch - chosen  # epochs since the last choice
        if standing and options.swap_back and (age >= options.every or epoch > options.last):
            return self._swap(end, standing[::-1], back=True)
        rest = options.rest if options.swap_back else 0
        due = epoch == options.first if age is None else age >= options.every + rest
        return self._swap(end, self.choose(end)) if due and epoch <= options.last else {}

    def choose(self, end: EpochEnd) -> list[Swap]:
        """Pairs of heads by the configured measure on the validation split.

        Raises:
            TrainingError: there are too few, or modules of one kind differ in their number of heads.
        """
        specs = [module.spec for module in of_kinds(ordinary_modules(end.model), self.options.kinds)]
        for kind in ATTENTION_KINDS:
            numbers = {spec.heads for spec in specs if spec.kind == kind}
            if len(numbers) > 1:
                found = " and ".join(map(str, sorted(numbers)))
                raise TrainingError(f"{kind} attention has modules of {found} heads; expected one number")
        if problem := self.options.too_many(grids_of_specs(specs)):
            raise TrainingError(f"method.{problem[0]}: {problem[1]}")
        importance = self._importance(end, specs)
        swaps: list[Swap] = []
        for number, kind in enumerate(ATTENTION_KINDS):
            grid = np.array([importance[spec] for spec in specs if spec.kind == kind])  # (layers, H)
            if grid.size:
                swaps += self._choose(kind, grid, np.random.default_rng([end.seed, end.epoch, number]))
        return swaps

    def _importance(self, end: EpochEnd, specs: list[AttentionSpec]) -> dict[AttentionSpec, list[float]]:
        """Of each module's heads, on the validation split."""
        if not self.options.observes_heads:
            return {spec: [0.0] * spec.heads for spec in specs}
        measured = dict(compare_heads(end.observe(), end.model))
        if unseen := [spec.name for spec in specs if not measured[spec].queries]:
            raise TrainingError(
                f"observe: found no words for the heads of {', '.join(unseen)}; expected a function that yields "
                "held-out batches anew in every call, not what is left of one generator"
            )
        if self.options.measure == "confidence":
            return {spec: measured[spec].confidence.tolist() for spec in specs}
        return {spec: measured[spec].average_l2().tolist() for spec in specs}

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
