"""What every method's options can answer: whether they fit a model and each other. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from headdiv.core.settings import Place, Settings, Source, config_error
from headdiv.nn.sizes import ATTENTION_KINDS, Kind, Sizes

AttentionHook = Literal["before_output", "output_stage", "attention"]
HOOKS: tuple[AttentionHook, ...] = ("before_output", "output_stage", "attention")


class MethodOptions(Settings):
    """A method's keys in a configuration, besides its name. The base class is the baseline's: no keys."""

    label: ClassVar[str] = ""  # the method's name in figures; its registered name where empty
    builds: ClassVar[frozenset[AttentionHook]] = frozenset()  # the method's hooks that change attention modules
    repeatable: ClassVar[bool] = False  # whether a combination may list the method twice, with different options

    part_names: ClassVar[Mapping[str, str]] = {}  # names under which its parts are looked up: how each is written

    def check(self, model: Sizes) -> tuple[str, str] | None:
        """What is wrong with these options for a model of these sizes (key, with dots, and sentence), or None.

        `Sizes` alone does not say how many layers there are.
        """
        return None

    def complete(self, model: Sizes, at: Place = (), source: Source | None = None) -> dict[str, Any]:
        """All options as plain data, checked against the model's sizes.

        Raises:
            ConfigError: what `check` finds.
        """
        if problem := self.check(model):
            key, what = problem
            keys = (int(part) if part.isdigit() else part for part in key.split("."))
            raise config_error((*at, *keys), what, source)
        return self.model_dump(mode="json")

    @classmethod
    def stored(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Complete options as results keep them; a run's hash is computed from them."""
        return options

    def hooks_for(self, kind: Kind) -> frozenset[AttentionHook]:
        """Which hooks change attention modules of this kind: `builds`, if the option ``kinds`` is absent or has it.

        Two methods with the same hook cannot be combined.
        """
        return self.builds if kind in getattr(self, "kinds", ATTENTION_KINDS) else frozenset()

    @property
    def builds_modules(self) -> bool:
        """Whether the method builds its own attention modules, not ordinary heads with something after them."""
        return any("attention" in self.hooks_for(kind) for kind in ATTENTION_KINDS)

    @property
    def observes_heads(self) -> bool:
        """Whether the method observes the heads between epochs: a trainer then needs held-out batches."""
        return False

    def conflict(self, other: MethodOptions, name: str, others_name: str) -> str | None:
        """Why this method cannot be combined with ``other``, as a sentence with both names; None if it can."""
        return None
