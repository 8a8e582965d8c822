"""What a method may change in a model and in its training, and how to add one.

A method is a subclass of `Method` under a name, with a nested class of ``Options`` if it has any, and `register`:

    @headdiv.register
    class PushApart(headdiv.Method):
        name = "push-apart"

        class Options(headdiv.Method.Options):
            weight: float = 0.1

Every hook has a default that does nothing; override those that the method needs.

    configuration   `Options`, with what does not fit a model's sizes or another method
    the model       `output_stage`, `before_output` or, for the method's own module, `attention`; `block_output`
    the loss        `required_records`, `aux_loss` and `counts_predictions`
    the update      `own_parameters`, `frozen_parameters`, `after_backward`
    the schedule    `after_epoch`
    the results     `artifacts`

A method's own attention module derives from `headdiv.nn.attention.AttentionModule` and needs a ``forward``; it then
runs in every task's model and in the drop-in, and what it records is measured. A module with a method
``initialise(generator)`` fills its own parameters; ordinary layers are initialised from the seed and their names.

`headdiv.insert` takes such a method only if it also has ``inserted(spec)``: what the heads of an existing model go
through in front of its output projection, with the layout of the rows, (T, H·K), `PackedRows` -> (T, H·K).

Every method works in combinations: `headdiv.methods.combined` says how the hooks of several become one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from headdiv.analysis.similarity import Observed
from headdiv.core.errors import ConfigError, TrainingError
from headdiv.core.settings import Place, Settings, Source, check, config_error
from headdiv.nn.attention import AttentionModule
from headdiv.nn.multi_head_attention import MultiHeadAttention
from headdiv.nn.records import HeadModule, HeadRecord
from headdiv.nn.sizes import ATTENTION_KINDS, AttentionSpec, BlockSpec, Kind, Sizes

AttentionHook = Literal["before_output", "output_stage", "attention"]
HOOKS: tuple[AttentionHook, ...] = ("before_output", "output_stage", "attention")
RequiredRecords = Literal["nothing", "heads", "weights"]


class MethodOptions(Settings):
    """A method's keys in a configuration, besides its name: `Method.Options`, from which a method's own derive."""

    label: ClassVar[str] = ""  # the method's name in figures; its registered name where empty
    builds: ClassVar[frozenset[AttentionHook]] = frozenset()  # the method's hooks that change attention modules
    repeatable: ClassVar[bool] = False  # whether a combination may list the method twice, with different options

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """What is wrong with these options for a model of these sizes (key, with dots, and sentence), or None.

        `Sizes` alone does not say how many layers there are.
        """
        return None

    def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
        """Why this method cannot be combined with ``other``, as a sentence with both names; None if it can."""
        return None

    @property
    def observes_heads(self) -> bool:
        """Whether the method observes the heads between epochs: a trainer then needs held-out batches."""
        return False

    def hooks_for(self, kind: Kind) -> frozenset[AttentionHook]:
        """Which hooks change attention modules of this kind: `builds`, if the option ``kinds`` is absent or has it.

        Two methods with the same hook cannot be combined.
        """
        return self.builds if kind in getattr(self, "kinds", ATTENTION_KINDS) else frozenset()

    @property
    def builds_modules(self) -> bool:
        """Whether the method builds its own attention modules, not ordinary heads with something after them."""
        return any("attention" in self.hooks_for(kind) for kind in ATTENTION_KINDS)

    def complete(self, model: Sizes, at: Place = (), source: Source | None = None) -> dict[str, Any]:
        """All options as plain data, checked against the model's sizes.

        Raises:
            ConfigError: what `check` finds.
        """
        if problem := self.check(model):
            key, sentence = problem
            keys = (int(part) if part.isdigit() else part for part in key.split("."))
            raise config_error((*at, *keys), sentence, source)
        return self.model_dump(mode="json")

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Complete options as results keep them; a run's hash is computed from them."""
        return options


@dataclass(frozen=True)
class EpochEnd:
    """What a method gets between two epochs."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    epoch: int  # the one that has just ended, from 1
    epochs: int
    seed: int
    history: list[dict[str, Any]]  # what `after_epoch` returned after the earlier epochs
    observe: Callable[[], Iterator[Observed]]  # the heads on this rank's share of the validation split


@dataclass(frozen=True)
class ValidationSplit:
    """What a trained model's heads do on the validation split, for `Method.artifacts`."""

    observe: Callable[[], Iterator[Observed]]  # without attention weights; the model runs only as far as it is read
    vocabulary: int  # above every word index of any kind
    decode_token: Callable[[str, int], str]  # kind of attention and index of a word -> text


class Method:
    """The plain Transformer. A method overrides what it needs; one object belongs to one model."""

    name: ClassVar[str]  # in configurations, for `register`
    Options: ClassVar[type[MethodOptions]] = MethodOptions  # the method's own keys in a configuration

    options: Any  # an ``Options``

    def __init__(self, options: MethodOptions | None = None, **values: Any) -> None:
        """The ``options``, or the ``values`` that differ from their defaults: Deacon(m=8)."""
        if options is not None and (values or not isinstance(options, MethodOptions)):
            name, extra = type(self).__name__, " and values beside it" if values else ""
            raise ConfigError(
                f"{name}: found {options!r:.80}{extra}; expected its options by name, {name}(option=value, …), or one "
                f"object of {name}.Options"
            )
        self.options = check(type(self).Options, values) if options is None else options

    def __repr__(self) -> str:
        options = self.options.model_dump(mode="json", exclude_defaults=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in options.items())})"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give each method a class of options of its own, which knows the hooks of attention that it overrides."""
        super().__init_subclass__(**kwargs)
        if not issubclass(cls.Options, MethodOptions):
            raise ConfigError(
                f"{cls.__name__}.Options: found {cls.Options!r}, expected a subclass of headdiv.Method.Options"
            )
        if cls.Options.__qualname__ != f"{cls.__qualname__}.Options":  # inherited, or another method's
            place = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Options"}
            cls.Options = type("Options", (cls.Options,), {**place, "__doc__": cls.Options.__doc__})
        cls.Options.builds = frozenset(hook for hook in HOOKS if getattr(cls, hook) is not getattr(Method, hook))

    # ---- the model

    def attention(self, spec: AttentionSpec) -> AttentionModule:
        """The attention module for the position that ``spec`` describes."""
        hooks = self.options.hooks_for(spec.kind)
        return MultiHeadAttention(
            spec,
            self.output_stage(spec) if "output_stage" in hooks else None,
            self.before_output(spec) if "before_output" in hooks else None,
        )

    def output_stage(self, spec: AttentionSpec) -> nn.Module | None:
        """Module that combines the heads into one output, (T, H·K) -> (T, D), in place of W^O; None: W^O.

        For `headdiv.insert` it is an nn.Linear or has ``init_from(weight, bias)``: start from an existing W^O.
        """
        return None

    def before_output(self, spec: AttentionSpec) -> nn.Module | None:
        """What the heads go through in front of the output stage, (T, H·K) -> (T, H·K); None: nothing."""
        return None

    def block_output(self, spec: BlockSpec) -> nn.Module:
        """What the output of the layer that ``spec`` describes goes through: (rows, D) -> (rows, D).

        In headdiv's own models only; `headdiv.MultiheadAttention` and `headdiv.insert` refuse all but an Identity.
        """
        return nn.Identity()

    # ---- the loss

    def required_records(self) -> RequiredRecords:
        """Which head records `aux_loss` needs; "weights" includes values and outputs."""
        return "nothing"

    def aux_loss(self, model: nn.Module, records: list[HeadRecord], progress: float, count: int) -> Tensor | None:
        """What is added to the loss (nats for each prediction); None: nothing.

        With several ranks, each adds its own and the mean over the ranks counts, so multiply a sum over examples by the
        number of ranks.

        Args:
            model: the model in training.
            records: of this batch, as `required_records` asks for.
            progress: fraction of the training that is done, from 0 to 1.
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

        Gradients are already clipped in headdiv's trainer, and not yet in that of transformers.
        By default it removes the gradients of `frozen_parameters`, so that a loop need not ask for them.
        """
        for parameter in self.frozen_parameters(model, progress):
            parameter.grad = None

    def before_optimizer_step(self, model: nn.Module, progress: float) -> None:
        """`after_backward`, under a name that says when your own loop calls it; ``progress`` is checked."""
        if not 0 <= progress <= 1:  # a number of steps would change results silently
            raise ValueError(
                f"progress: found {progress!r:.80}, expected the share of the training that is done, 0 to 1"
            )
        self.after_backward(model, progress)

    # ---- between epochs, and results

    def after_epoch(self, end: EpochEnd) -> dict[str, Any]:
        """Called between two epochs, after validation; what it returns (JSON) is kept with the epoch's results."""
        return {}

    def artifacts(self, model: nn.Module, validation: ValidationSplit | None = None) -> dict[str, Any]:
        """What the results keep (JSON) of a trained model, by name, from its parameters and from what its heads do.

        Args:
            model: trained.
            validation: the validation split; None: from the parameters alone.
        """
        return {}


WithSpec = TypeVar("WithSpec", bound=HeadRecord | HeadModule)
Item = TypeVar("Item")


def of_kinds(items: Iterable[WithSpec], kinds: tuple[Kind, ...]) -> list[WithSpec]:
    """The records or modules of attention of these kinds.

    Raises:
        TrainingError: there are none.
    """
    items = list(items)
    chosen = [item for item in items if item.spec.kind in kinds]
    if not chosen and items:
        present = " and ".join(kind for kind in ATTENTION_KINDS if kind in {item.spec.kind for item in items})
        raise TrainingError(f"method.kinds: the model has no {' or '.join(kinds)} attention, only {present}")
    if not chosen:
        raise TrainingError("the method found no heads: no attention that headdiv built or attached, or no words")
    return chosen


def acts_on_block(method: Method, block: BlockSpec) -> bool:
    """Whether a method changes the output of this layer, which only headdiv's own models give it."""
    return type(method.block_output(block)) is not nn.Identity


def groups(items: Iterable[Item], key: Callable[[Item], Any]) -> list[list[Item]]:
    """Group items by key, keys and items in the order in which they come."""
    by_key: dict[Any, list[Item]] = {}
    for item in items:
        by_key.setdefault(key(item), []).append(item)
    return list(by_key.values())
