"""The methods: what each changes in attention, loss or update. `headdiv.methods.base` says how to add one."""

from headdiv.methods import (  # each registers itself
    combined,
    deacon,
    differential,
    drop_head,
    gated,
    head_scale,
    homeostasis,
    losses,
    mixing,
    moa,
    moh,
    rotation,
    talking_heads,
)
from headdiv.methods.registry import METHODS, check_method, make_method, stored_method

__all__ = [
    "METHODS",
    "check_method",
    "combined",
    "deacon",
    "differential",
    "drop_head",
    "gated",
    "head_scale",
    "homeostasis",
    "losses",
    "make_method",
    "mixing",
    "moa",
    "moh",
    "rotation",
    "stored_method",
    "talking_heads",
]
