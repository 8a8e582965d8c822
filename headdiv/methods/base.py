"""What a method may change in a model and in its training, and how to add one.

A method is a class after `Method` with its ``Options``. Hooks are neutral by default; override those that it needs.

    the model       `output_stage`, `before_output` or, for an attention module of its own, `attention`; `block_output`
    the loss        `required_records`, `aux_loss` and `counts_predictions`
    the update      `own_parameters`, `frozen_parameters`, `after_backward`
    the schedule    `after_epoch`
    the results     `artifacts`, `observed_artifacts`, `weight_measures`, `pictures`
    combinations    `makes`, `conflict`, `repeatable`
    configuration   `Options`, `check`, `stored`

An attention module of its own derives from `headdiv.nn.attention.AttentionModule`, which says what it must offer; then
it runs in every task's model and in the drop-in, and its heads are measured and masked. A module with a method
``initialise(generator)`` fills its own parameters; ordinary layers are initialised from the seed and their names.

A method of headdiv is one file here and a line in `headdiv.methods.registry`; one from elsewhere calls
`headdiv.register`. `tests/own_method.py` is an example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core.errors import TrainingError
from headdiv.core.settings import Settings, Source, check, config_error
from headdiv.nn.attention import (
    ATTENTION_KINDS,
    AttentionModule,
    AttentionSpec,
    BlockSpec,
    HeadModule,
    HeadRecord,
    Kind,
    attention_modules,
)
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.sizes import Sizes

RequiredRecords = Literal["nothing", "heads", "weights"]
DecodeToken = Callable[[str, int], str]  # kind of attention and index of a word -> text
AttentionHook = Literal["before_output", "output_stage", "attention"]
HOOKS: tuple[AttentionHook, ...] = ("before_output", "output_stage", "attention")


@dataclass(frozen=True)
class EpochEnd:
    """What a method is given between two epochs."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    epoch: int  # the one that has ended, from 1
    epochs: int
    seed: int
    history: list[dict[str, Any]]  # what `after_epoch` returned after the earlier epochs
    observe: Callable[[], Iterator[Observed]]  # the heads on this rank's share of the validation split


@dataclass(frozen=True)
class Picture:
    """What a method shows of one run, as numbers: a panel for each attention module, or for each kind of attention.

    Attributes:
        title: what is shown.
        kind: "map", panels are matrices; "lines", a panel is one line; "histogram", a panel is values to be counted.
        panels: by the panels' names.
        x: what the horizontal axis counts.
        y: the same of the vertical one; of a map, of its rows.
        limit: maps have colours from -limit to limit.
    """

    title: str
    kind: Literal["map", "lines", "histogram"]
    panels: dict[str, Any]
    x: str
    y: str
    limit: float = 1.0


class Method:
    """The plain Transformer. A method overrides what it needs; one object belongs to one model."""

    class Options(Settings):
        """The method's own keys in a configuration, beside its name."""

    label: ClassVar[str] = ""  # what figures call it; its registered name where empty
    repeatable: ClassVar[bool] = False  # whether a combination may list it twice, with different options
    swaps_heads: bool = False  # whether heads are swapped in training
    observes_heads: bool = False  # whether `after_epoch` observes what the heads do
    shares_values: ClassVar[bool] = False  # whether all heads of a module have the same values
    signed_weights: ClassVar[bool] = False  # whether attention weights can be negative
    has_components: ClassVar[bool] = False  # whether its models have PCA layers, whose components can be shown

    options: Any  # an ``Options``

    def __init__(self, options: Settings | None = None, **values: Any) -> None:
        """The ``options``, or the ``values`` that differ from their defaults: Deacon(m=8)."""
        self.options = check(type(self).Options, values) if options is None else options

    def __repr__(self) -> str:
        options = self.options.model_dump(mode="json", exclude_defaults=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in options.items())})"

    # ---- configuration

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """What is wrong with these options for a model of these sizes (key, with dots, and sentence), or None."""
        return None

    def misfit(self, model: Sizes) -> tuple[str, str] | None:
        """`check` of this method's own options. Of `Sizes` alone how many layers there are is not known."""
        return self.check(self.options, model)

    @classmethod
    def complete(
        cls, options: Settings, model: Sizes, at: tuple[str | int, ...] = (), source: Source | None = None
    ) -> dict[str, Any]:
        """All options as plain data, checked against the model's sizes.

        Raises:
            ConfigError: what `check` finds.
        """
        if problem := cls.check(options, model):
            key, what = problem
            keys = (int(part) if part.isdigit() else part for part in key.split("."))
            raise config_error((*at, *keys), what, source)
        return options.model_dump(mode="json")

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Complete options as results keep them, of which a run's hash is taken."""
        return options

    # ---- combinations

    def makes(self, kind: Kind) -> set[AttentionHook]:
        """Which hooks change attention modules of this kind; two methods with one hook cannot be combined.

        By default those that the class overrides, for the kinds in its option ``kinds`` (all where it has none).
        """
        if kind not in getattr(self.options, "kinds", ATTENTION_KINDS):
            return set()
        return {hook for hook in HOOKS if getattr(type(self), hook) is not getattr(Method, hook)}

    def refuse_no_attention(self, model: nn.Module) -> None:
        """Raise a TrainingError where the method changes attention modules, and the model has none of those kinds."""
        if kinds := tuple(kind for kind in ATTENTION_KINDS if self.makes(kind)):
            of_kinds(attention_modules(model), kinds)

    def conflict(self, other: Method, name: str, others_name: str) -> str | None:
        """Why this method cannot be combined with ``other``, as a sentence with both names; None if it can."""
        return None

    # ---- the model

    def attention(self, spec: AttentionSpec) -> AttentionModule:
        """The attention module for the position that ``spec`` describes."""
        made = self.makes(spec.kind)
        return MultiHeadAttention(
            spec,
            self.output_stage(spec) if "output_stage" in made else None,
            self.before_output(spec) if "before_output" in made else None,
        )

    def output_stage(self, spec: AttentionSpec) -> nn.Module | None:
        """Module that makes one output of the heads, (T, H·K) -> (T, D), in place of W^O; None: W^O.

        For `headdiv.insert` it is an nn.Linear or has ``take_over(weight, bias)``: start from a W^O that was there.
        """
        return None

    def before_output(self, spec: AttentionSpec) -> nn.Module | None:
        """What the heads go through in front of the output stage, (T, H·K) -> (T, H·K); None: nothing."""
        return None

    @property
    def builds_modules(self) -> bool:
        """Whether attention modules are the method's own, not ordinary heads with something after them."""
        return any("attention" in self.makes(kind) for kind in ATTENTION_KINDS)

    @property
    def can_be_inserted(self) -> bool:
        """Whether `inserted` builds something."""
        return type(self).inserted is not Method.inserted

    def inserted(self, spec: AttentionSpec) -> nn.Module | None:
        """For `headdiv.insert`: what heads of a model that is there already go through in front of its own output
        projection, with the layout of the rows: (T, H·K), `PackedLayout` -> (T, H·K). None: what the other hooks build.
        """
        return None

    def block_output(self, spec: BlockSpec) -> nn.Module:
        """What the output of the layer that ``spec`` describes goes through: (rows, D) -> (rows, D)."""
        return nn.Identity()

    # ---- the loss

    def required_records(self) -> RequiredRecords:
        """What `aux_loss` needs of the head records; "weights": values and outputs too."""
        return "nothing"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """What is added to the loss (nats for each prediction); None: nothing.

        With several ranks each adds its own, and the mean over the ranks counts: a sum over examples is multiplied by
        the number of ranks.

        Args:
            model: the model in training.
            records: of this batch, as `required_records` asks for.
            progress: share of the training that is done, from 0 to 1.
            count: predictions of the batch, on all ranks.
        """
        return None

    def counts_predictions(self) -> bool:
        """Whether what `aux_loss` adds depends on its ``count``."""
        return type(self).aux_loss is not Method.aux_loss

    # ---- the update

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Parameters that the method trains itself; clipping and the optimiser leave them alone."""
        return []

    def frozen_parameters(self, model: nn.Module, progress: float) -> list[nn.Parameter]:
        """Parameters that this step leaves as they are: they get no gradient."""
        return []

    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Called with all gradients in place, before the optimiser's step; ``progress`` from 0 to 1.

        Gradients are clipped already in headdiv's trainer, and not yet in that of transformers.
        By default it takes the gradients of `frozen_parameters` away: a loop need not ask for them.
        """
        for parameter in self.frozen_parameters(model, progress):
            parameter.grad = None

    def before_optimizer_step(self, model: nn.Module, progress: float) -> None:
        """`after_backward`, by the name that says when a loop of one's own calls it."""
        self.after_backward(model, progress)

    # ---- between epochs, and results

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Called between two epochs, after validation; what it returns (JSON) is kept with the epoch's results."""
        return {}

    def artifacts(self, model: nn.Module) -> dict[str, Any]:
        """What the results keep (JSON) of the trained model's parameters, by name."""
        return {}

    def weight_measures(self, model: nn.Module) -> dict[str, dict[str, float]]:
        """Numbers that say how alike the heads are in the method's own parameters, by place ("encoder 1") and name.

        Where a profile asks for measures by epoch (``train.epoch_heads``), they are kept beside those of the heads.
        """
        return {}

    def observed_artifacts(
        self, observed: Iterable[Observed], vocabulary: int, decode_token: DecodeToken
    ) -> dict[str, Any]:
        """What the results keep (JSON) of what the trained model's heads do, by name.

        Args:
            observed: the validation split, without attention weights; the model runs only as far as it is read.
            vocabulary: above every word index of any kind.
            decode_token: text of a word.
        """
        return {}

    def pictures(self, model: nn.Module, heads: dict[str, Any], history: list[dict[str, Any]]) -> list[Picture]:
        """What the notebook of a run shows of this method besides the similarity of heads.

        Args:
            model: trained.
            heads: ``heads`` of the run's metrics: measures and artifacts by name.
            history: what `after_epoch` returned after epochs 1, 2, …
        """
        return []


WithSpec = TypeVar("WithSpec", bound=HeadRecord | HeadModule)


def of_kinds(found: Iterable[WithSpec], kinds: tuple[Kind, ...]) -> list[WithSpec]:
    """The records or modules of attention of these kinds.

    Raises:
        TrainingError: there are none.
    """
    found = list(found)
    chosen = [one for one in found if one.spec.kind in kinds]
    if not chosen and found:
        has = " and ".join(kind for kind in ATTENTION_KINDS if kind in {one.spec.kind for one in found})
        raise TrainingError(f"method.kinds: the model has no {' or '.join(kinds)} attention, only {has}")
    if not chosen:
        raise TrainingError("the method found no heads: no attention that headdiv built or attached, or no words")
    return chosen
