"""Options of the losses on heads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headdiv.methods.options.base import MethodOptions
from headdiv.nn.sizes import ATTENTION_KINDS, Kind

Term = Literal["subspace", "position", "output"]


class HeadLossOptions(MethodOptions):
    """No paper gives a λ for DPP; 1 is that of Li et al. for disagreement."""

    repeatable = True

    term: Term = Field(description="what is compared: values, attention weights or head outputs")
    weight: float = Field(1.0, gt=0, description="λ")
    kinds: tuple[Kind, ...] = Field(
        ATTENTION_KINDS, min_length=1, description="kinds of attention that it is taken over"
    )

    @property
    def needs_weights(self) -> bool:
        """Whether attention weights are compared, as shares of attention."""
        return self.term == "position"


class DppOptions(HeadLossOptions):
    """The same; the quality of a head is computed from its weights."""

    label = "DPP"

    @property
    def needs_weights(self) -> bool:
        """Always."""
        return True


class HsicOptions(HeadLossOptions):
    """Attention weights are not rows of a fixed width, so they cannot be compared."""

    label = "HSIC"
    term: Literal["subspace", "output"] = Field(description="what is compared: values or head outputs")


def no_values_to_compare(other: MethodOptions, name: str, others_name: str) -> str | None:
    """The conflict between method ``name``, whose heads all have the same values, and a loss that compares values."""
    if isinstance(other, HeadLossOptions) and other.term == "subspace":
        return f"{others_name!r} compares the heads' values, which all experts of {name!r} share; expected another term"
    return None


def no_shares_of_attention(other: MethodOptions, name: str, others_name: str) -> str | None:
    """The conflict between method ``name``, whose weights can be negative, and a loss on weights."""
    if isinstance(other, HeadLossOptions) and other.needs_weights:
        return f"{others_name!r} takes weights for shares of attention, and those of {name!r} can be negative"
    return None
