"""Training settings: optimiser, schedule, precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from headdiv.core.settings import Settings, hash_neutral, nearest

# The base class; one that needs a closure; one for sparse gradients, and one only for matrices.
_UNSUPPORTED = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
OPTIMISERS: dict[str, type[torch.optim.Optimizer]] = {
    name: member
    for name, member in sorted(vars(torch.optim).items())
    if isinstance(member, type) and issubclass(member, torch.optim.Optimizer) and name not in _UNSUPPORTED
}
Decay = Annotated[float, Field(ge=0, lt=1)]


class TrainerConfig(Settings):
    """Settings of `headdiv.Trainer`: epochs, optimiser, schedule and precision."""

    of_no_effect: ClassVar[tuple[str, ...]] = ("checkpoint_seconds",)  # settings that do not change results

    epochs: int = Field(30, ge=1)
    patience: int | None = hash_neutral(
        None,
        ge=1,
        description="stop after so many epochs without a lower validation loss, and take the best epoch's parameters; "
        "schedules remain those of all epochs",
    )
    average: int | None = hash_neutral(
        None,
        ge=2,
        description="keep the mean of the parameters after each of the last so many epochs beside the others",
    )
    optimiser: dict[str, Any] | None = hash_neutral(
        None,
        description="name and options of a class of torch.optim; absent: AdamW with betas, epsilon and weight_decay",
    )
    learning_rate: float = Field(5e-4, gt=0, description="the optimiser's step at its peak")
    schedule: Literal["constant", "inverse_sqrt", "linear"] = Field(
        "inverse_sqrt", description="after the warm-up: stay, fall with 1/√step, or fall to 0 in a line"
    )
    warmup_steps: int = Field(400, ge=0, description="linear rise from 0")
    betas: tuple[Decay, Decay] = Field((0.9, 0.98), description="AdamW's decay rates")
    epsilon: float = Field(1e-9, gt=0, description="AdamW's ε")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay")
    clip_norm: float | None = Field(1.0, gt=0, description="largest norm of the gradient; null: no clipping")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16: activations and matrix products; parameters and their updates stay float32"
    )
    accumulate: int = hash_neutral(
        1, ge=1, description="batches whose gradients are added up before the optimiser's step"
    )
    checkpoint_seconds: float = Field(120.0, gt=0, description="longest work lost when a run is killed")

    @field_validator("optimiser", mode="before")
    @classmethod
    def _known_optimiser(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if value == {"name": "AdamW"}:
            return None  # the default, which must not change the hash
        if isinstance(value, dict):
            check_optimiser(value)
        return value

    @model_validator(mode="after")
    def _adamw_alone_has_these_keys(self) -> TrainerConfig:
        name, _ = self.optimiser_options()
        for key, option in (("betas", "betas"), ("epsilon", "eps"), ("weight_decay", "weight_decay")):
            if getattr(self, key) == type(self).model_fields[key].default:
                continue
            if name != "AdamW":
                raise ValueError(f"{key}: is an option of AdamW; expected options of {name} under 'optimiser'")
            if option in (self.optimiser or {}):
                raise ValueError(f"{key}: stands under 'optimiser' too, as {option}; expected it once")
        return self

    def optimiser_options(self) -> tuple[str, dict[str, Any]]:
        """Name of the optimiser's class and its options, without the learning rate."""
        options = dict(self.optimiser or {})
        name = options.pop("name", "AdamW")
        if name == "AdamW":
            fused = not (options.get("foreach") or options.get("differentiable"))  # one pass over memory
            defaults = {"betas": self.betas, "eps": self.epsilon, "weight_decay": self.weight_decay, "fused": fused}
            options = defaults | options
        return name, options


def check_optimiser(settings: Mapping[str, Any]) -> None:
    """Check name and options of an optimiser, {"name": …, option: value, …}.

    Raises:
        ValueError: "key: problem", with the nearest name where the class is unknown.
    """
    options = dict(settings)
    name = options.pop("name", None)
    if name not in OPTIMISERS:
        raise ValueError(f"name: unknown optimiser {name!r}{nearest(str(name), list(OPTIMISERS))}")
    try:
        OPTIMISERS[name]([nn.Parameter(torch.zeros(2, 2))], lr=1e-3, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {error}") from None
