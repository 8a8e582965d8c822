"""What a method may change in a model and in its training; every hook is neutral by default."""

from __future__ import annotations

from torch import nn

from headdiv.attention import AttentionSpec, MultiHeadAttention
from headdiv.config import Sizes
from headdiv.settings import Settings


class Method:
    """The plain Transformer. A method overrides what it needs; one object lives as long as its model."""

    class Options(Settings):
        """The method's own keys in a configuration, beside its name."""

    def __init__(self, options: Settings) -> None:
        self.options = options

    @classmethod
    def check(cls, options: Settings, model: Sizes) -> tuple[str, str] | None:
        """What is wrong with these options for a model of these sizes (key and sentence), or None."""
        return None

    def attention(self, spec: AttentionSpec) -> nn.Module:
        """The attention module to put at the place that ``spec`` describes."""
        return MultiHeadAttention(spec)

    def own_parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Parameters that the method trains itself; clipping and the optimiser leave them alone."""
        return []

    def after_backward(self, model: nn.Module, progress: float) -> None:
        """Called with all gradients in place, before the optimiser's step.

        Args:
            model: the model in training.
            progress: share of the training that is done, from 0 to 1.
        """
