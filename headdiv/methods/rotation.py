"""Multi-head rotation, MHR (Azov & Landau): heads are swapped during training.

A swap exchanges W^Q, W^K and W^V (with their biases) of two heads of the same kind of attention: encoder self-,
decoder self- or encoder-decoder attention, never across. W^O stays. Adam's moments of these rows move with them by
default, since they describe the parameters and not their position; the authors' code leaves them where they are, and so
does ``optimiser_state: false``. A swap and its inverse restore model and optimiser exactly.

Swaps take place between two epochs. "Epoch 3" means before the third, counting from 1, as in the authors' code.
Heads that are swapped when training ends stay where they are, since they have learnt to work there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import measure_heads
from headdiv.core.errors import TrainingError
from headdiv.methods.base import EpochEnd, Method, of_kinds
from headdiv.methods.options.swaps import DynamicRotationOptions, HeadGrid, HeadIndex, RotationOptions, Swap
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.records import attention_modules, keyed_by_place
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, Kind


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
        TrainingError: the model has no such layer or head, the projections of two modules differ or hold something
            that has no row for each of a head's outputs, such as an adapter of PEFT, or the optimiser has a state for
            only one of them. Nothing is swapped then.
        DataError: two modules share a place.
    """
    modules = keyed_by_place((module.spec.place, module) for module in ordinary_modules(model))
    known = optimiser.state if optimiser is not None else {}
    pairs = [(_at(modules, kind, one.layer), _at(modules, kind, other.layer)) for kind, one, other in swaps]
    for (_, one, other), (first, second) in zip(swaps, pairs, strict=True):
        both = f"heads of {first.spec.place} and {second.spec.place} are to be swapped, and"
        for module, head in ((first, one.head), (second, other.head)):
            if not 0 <= head < module.spec.heads:
                raise TrainingError(
                    f"{both} {module.spec.place} has {module.spec.heads} heads, found number {head + 1}"
                )
            if not _is_by_row(module):
                raise TrainingError(
                    f"{both} the projection of {module.spec.place} is a {type(module.in_projection).__name__} of "
                    f"{_shown(module)}; expected a Linear, each of whose rows belongs to one head, without adapters"
                )
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


def _is_by_row(module: MultiHeadAttention) -> bool:
    """Whether everything in the projection has a row for each number that its heads' projections put out, 3·H·K."""
    rows = 3 * module.spec.heads * module.spec.d_head
    by_row = all(x.shape[:1] == (rows,) for x in _tensors(module).values())
    return by_row and isinstance(module.in_projection, nn.Linear)


def _tensors(module: MultiHeadAttention) -> dict[str, Tensor]:
    """What a swap exchanges rows of: parameters, and buffers such as the masks of `torch.nn.utils.prune`."""
    return dict(module.in_projection.named_parameters()) | dict(module.in_projection.named_buffers())


def _pairs(first: MultiHeadAttention, second: MultiHeadAttention) -> Iterable[tuple[Tensor, Tensor]]:
    return zip(_tensors(first).values(), _tensors(second).values(), strict=True)


def _shapes(module: MultiHeadAttention) -> dict[str, tuple[int, ...]]:
    """The shapes of a head's part, which another head's must equal; modules may have different numbers of heads."""
    return {name: (module.spec.d_head, *x.shape[1:]) for name, x in _tensors(module).items()}


def _shown(module: MultiHeadAttention) -> str:
    return " and ".join(f"{name} {tuple(x.shape)}" for name, x in _tensors(module).items())


def _exchange(a: Tensor, rows: Tensor, b: Tensor, others: Tensor) -> None:
    mine, theirs = a[rows], b[others]  # copies
    a[rows], b[others] = theirs, mine


def head_grids(specs: Iterable[AttentionSpec]) -> dict[Kind, HeadGrid]:
    """Layers and heads of every kind of attention of a model with these modules."""
    specs = list(specs)
    return {spec.kind: HeadGrid(sum(other.kind == spec.kind for other in specs), spec.heads) for spec in specs}


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

    def _swap(self, end: EpochEnd, swaps: list[Swap], back: bool = False) -> dict[str, Any]:
        swap_heads(end.model, swaps, end.optimiser if self.options.optimiser_state else None)
        return _record(swaps, back)


class Rotation(SwappingMethod):
    """Manual swaps, following a plan."""

    Options = RotationOptions
    options: RotationOptions

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """The swaps that the plan has for the coming epoch.

        Raises:
            TrainingError: the model's single stack is not the one that the plan names.
        """
        grids, swaps = head_grids(module.spec for module in ordinary_modules(end.model)), list[Swap]()
        for number, planned in enumerate(self.options.plan):
            try:
                pairs = planned.swaps(grids)
            except ValueError as error:
                raise TrainingError(f"method.plan.{number}: {error}") from None
            swaps += pairs if end.epoch + 1 in planned.epochs else []
        return self._swap(end, swaps)


def _held(history: list[dict[str, Any]]) -> tuple[int | None, list[Swap]]:
    """The epoch of the last choice, and the swaps not yet undone, from what was recorded after epochs 1, 2, …"""
    epoch, swaps = None, list[Swap]()
    for number, record in enumerate(history, start=2):  # what was done after epoch 1 belongs to epoch 2
        if record.get("swaps"):
            epoch, swaps = (epoch, []) if record["back"] else (number, _swaps_of(record))
    return epoch, swaps


class DynamicRotation(SwappingMethod):
    """Swaps chosen by what the heads do on the validation split."""

    Options = DynamicRotationOptions
    options: DynamicRotationOptions

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
            TrainingError: the model has no attention of these kinds, too few heads for so many pairs, or no words were
                observed.
        """
        specs = [module.spec for module in of_kinds(ordinary_modules(end.model), self.options.kinds)]
        for kind in ATTENTION_KINDS:
            if len(numbers := sorted({spec.heads for spec in specs if spec.kind == kind})) > 1:
                raise TrainingError(
                    f"{kind} attention has layers of {numbers} heads; expected one number to choose from"
                )
        if problem := self.options.too_many(head_grids(specs)):
            raise TrainingError(f"method.{problem[0]}: {problem[1]}")
        if not self.options.observes_heads:
            by_spec = {spec: [0.0] * spec.heads for spec in specs}
        else:
            found = dict(measure_heads(end.observe(), end.model))
            if unseen := [spec.place for spec in specs if not found[spec].queries]:
                raise TrainingError(
                    f"observe: found no words for the heads of {', '.join(unseen)}; expected a function that yields "
                    "held-out batches anew in every call, not what is left of one generator"
                )
            by_spec = {
                spec: (measured.confidence if self.options.measure == "confidence" else measured.average_l2()).tolist()
                for spec, measured in found.items()
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
