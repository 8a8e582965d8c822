"""Multi-head rotation, MHR (Azov & Landau): heads change places while the model learns.

A swap exchanges W^Q, W^K and W^V (with their biases) of two heads of the same kind of attention: encoder self-,
decoder self- or encoder-decoder attention, never across. W^O stays. What Adam remembers of these rows moves with
them by default, since it describes the parameters and not the place; the authors' code leaves it behind, and so does
``optimiser_state: false``. A swap and its inverse restore model and optimiser exactly.

Swaps take place between two epochs. "Epoch 3" means before the third, counting from 1, as in the authors' code.
Heads that are swapped when the training ends stay where they are: they have learnt to work there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from headdiv.analysis.diversity import measure_heads
from headdiv.core.errors import TrainingError
from headdiv.core.settings import Settings
from headdiv.methods.base import EpochEnd, Method
from headdiv.methods.disagreement import ALL_KINDS, of_kinds
from headdiv.methods.swap_plan import Head, PlanError, Room, Swap, parse_plan, rooms
from headdiv.nn.attention import Kind, MultiHeadAttention, attention_modules
from headdiv.nn.config import ModelConfig, Sizes


@torch.no_grad()
def swap_heads(model: nn.Module, swaps: Sequence[Swap], optimiser: torch.optim.Optimizer | None = None) -> None:
    """Exchange the projections of each pair of heads, one pair after the other.

    Args:
        model: whatever holds attention modules.
        swaps: pairs of heads of one kind, counted from 0.
        optimiser: moves what it remembers of them too; None: nothing of an optimiser is touched.
    """
    modules = {(module.spec.kind, module.spec.layer): module for module in attention_modules(model)}
    for kind, one, other in swaps:
        first, second = modules[kind, one.layer], modules[kind, other.layer]
        rows, others = _rows(first, one.head), _rows(second, other.head)
        parameters = zip(first.in_projection.parameters(), second.in_projection.parameters(), strict=True)
        for mine, theirs in parameters:
            _exchange(mine, rows, theirs, others)
            if optimiser is not None and mine in optimiser.state:
                state, their_state = optimiser.state[mine], optimiser.state[theirs]
                for name, value in state.items():  # whatever has a value for each row; Adafactor's columns have none
                    if isinstance(value, Tensor) and value.shape[:1] == mine.shape[:1]:
                        _exchange(value, rows, their_state[name], others)


def _rows(module: MultiHeadAttention, head: int) -> Tensor:
    """The rows of ``in_projection`` that belong to a head: K of each of the three blocks, (3·K,)."""
    K, width = module.spec.d_head, module.spec.heads * module.spec.d_head
    own = torch.arange(head * K, (head + 1) * K, device=module.in_projection.weight.device)
    return torch.cat([own + block * width for block in range(3)])


def _exchange(a: Tensor, rows: Tensor, b: Tensor, others: Tensor) -> None:
    mine, theirs = a[rows], b[others]  # copies
    a[rows], b[others] = theirs, mine


def _rooms_of(model: Sizes) -> dict[Kind, Room]:
    """What a model of these sizes may have; a single stack is the encoder's or the decoder's, as the task decides."""
    if isinstance(model, ModelConfig):
        layers: dict[Kind, int] = {
            "encoder": model.encoder_layers,
            "decoder": model.decoder_layers,
            "cross": model.decoder_layers,
        }
    else:
        layers = {"encoder": model.layers, "decoder": model.layers}
    return {kind: Room(number, model.heads) for kind, number in layers.items()}


def _told(swaps: Sequence[Swap], back: bool = False) -> dict[str, Any]:
    """Swaps as the results keep them, layers and heads counted from 1."""
    pairs = [
        {"kind": kind, "one": [one.layer + 1, one.head + 1], "other": [other.layer + 1, other.head + 1]}
        for kind, one, other in swaps
    ]
    return {"swaps": pairs, "back": back} if pairs else {}


def _read(told: dict[str, Any]) -> list[Swap]:
    return [
        (pair["kind"], *(Head(layer - 1, head - 1) for layer, head in (pair["one"], pair["other"])))
        for pair in told["swaps"]
    ]


class Rotation(Method):
    """Manual swaps: a plan written the way a person would."""

    class Options(Settings):
        """The default plan is that of the authors' code."""

        plan: str = Field(
            "cross layers 1 and 5, all heads, epochs 3 7 9 11",
            description="which heads change places before which epochs, all counted from 1; several parted by ';'",
        )
        optimiser_state: bool = Field(True, description="what the optimiser remembers moves with the heads")

    options: Options

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """The plan must be legible, and the model must have its layers and heads."""
        try:
            parse_plan(options.plan, _rooms_of(model))
        except PlanError as error:
            return "plan", str(error)
        return None

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """The swaps that stand in the plan for the coming epoch.

        Raises:
            TrainingError: the model's single stack is not the one that the plan names.
        """
        try:
            plan = parse_plan(self.options.plan, rooms(end.model))
        except PlanError as error:
            raise TrainingError(f"method.plan: {error}") from None
        swaps = [swap for epochs, part in plan for swap in part if end.epoch + 1 in epochs]
        swap_heads(end.model, swaps, end.optimiser if self.options.optimiser_state else None)
        return _told(swaps)


@dataclass(frozen=True)
class Held:
    """What dynamic rotation has done so far: the epoch of its last choice, and swaps not yet swapped back."""

    epoch: int | None
    swaps: list[Swap]

    @classmethod
    def after(cls, history: list[dict[str, Any]]) -> Held:
        """Read it from what was recorded after epochs 1, 2, …"""
        epoch, swaps = None, list[Swap]()
        for number, told in enumerate(history, start=2):  # what was done after epoch 1 belongs to epoch 2
            if told.get("swaps"):
                epoch, swaps = (epoch, []) if told["back"] else (number, _read(told))
        return cls(epoch, swaps)


class DynamicRotation(Method):
    """Swaps chosen by what the heads do on the validation split."""

    class Options(Settings):
        """The schedule is that of the authors' code; the paper's own k and t_max are not given."""

        choice: Literal["hard", "soft", "random"] = Field(
            description="least with most important heads (Algorithm 1); least important ones of the i-th layer with "
            "those of the i-th from the end (2); any (3)"
        )
        measure: Literal["confidence", "l2"] = Field(
            "l2", description="importance: Eq. 5, or Eq. 6, the average distance from the other heads of the layer"
        )
        swaps: int = Field(3, ge=1, description="k: pairs of each kind of attention; soft: of each pair of layers")
        layers: int = Field(1, ge=1, description="t_max, soft only: so many of the lowest layers take part")
        first: int = Field(2, ge=2, description="epoch before which the first swap takes place")
        last: int = Field(20, ge=2, description="epoch before which the last swap may take place")
        every: int = Field(4, ge=1, description="epochs for which a swap stands")
        swap_back: bool = Field(True, description="swapped heads return when their time is over")
        rest: int = Field(1, ge=1, description="epochs after they have returned")
        kinds: tuple[Kind, ...] = Field(ALL_KINDS, min_length=1, description="kinds of attention whose heads change")
        optimiser_state: bool = Field(True, description="what the optimiser remembers moves with the heads")

    options: Options

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """No more pairs than there are heads for."""
        if options.last < options.first:
            return "last", f"{options.last} comes before first = {options.first}"
        for kind, (layers, heads) in _rooms_of(model).items():
            if kind not in options.kinds:
                continue
            soft = options.choice == "soft"
            room = heads // 2 if soft else layers * heads // 2
            if options.swaps > room:
                of = f"{heads} heads of a layer" if soft else f"{layers} × {heads} heads"
                return "swaps", f"{options.swaps} pairs are more than the {room} that {of} make ({kind} attention)"
            if soft and options.layers > layers // 2:
                return "layers", f"{options.layers} is more than half of the {layers} layers ({kind} attention)"
        return None

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Swap, swap back, or rest.

        Raises:
            TrainingError: the model has no attention of these kinds.
        """
        options, coming, held = self.options, end.epoch + 1, Held.after(end.history)
        stood = None if held.epoch is None else coming - held.epoch  # epochs since the last choice
        if held.swaps and options.swap_back and (stood >= options.every or coming > options.last):
            return self._swap(end, held.swaps[::-1], back=True)
        rest = options.rest if options.swap_back else 0
        due = coming == options.first if stood is None else stood >= options.every + rest
        return self._swap(end, self.choose(end)) if due and coming <= options.last else {}

    def _swap(self, end: EpochEnd, swaps: list[Swap], back: bool = False) -> dict[str, Any]:
        swap_heads(end.model, swaps, end.optimiser if self.options.optimiser_state else None)
        return _told(swaps, back)

    def choose(self, end: EpochEnd) -> list[Swap]:
        """Pairs of heads by the configured measure on the validation split."""
        specs = [module.spec for module in of_kinds(attention_modules(end.model), self.options.kinds)]
        if self.options.choice == "random":  # no head needs to be looked at
            by_spec = {spec: [0.0] * spec.heads for spec in specs}
        else:
            by_spec = {
                spec: (measured.confidence if self.options.measure == "confidence" else measured.average_l2()).tolist()
                for spec, measured in measure_heads(end.observe(), end.model)
            }
        swaps: list[Swap] = []
        for number, kind in enumerate(ALL_KINDS):
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
                (kind, Head(low, int(one)), Head(layers - 1 - low, int(other)))
                for low in range(self.options.layers)
                for one, other in zip(least[low], least[layers - 1 - low], strict=True)
            ]
        hard = self.options.choice == "hard"
        order = importance.argsort(axis=None, kind="stable") if hard else rng.permutation(importance.size)
        heads = [Head(*divmod(int(i), H)) for i in order]
        return [(kind, heads[i], heads[-1 - i]) for i in range(k)]
