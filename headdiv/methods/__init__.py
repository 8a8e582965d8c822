"""The methods: what each changes in attention, loss or update. `headdiv.methods.base` says how to add one."""

from headdiv.methods import (  # noqa: F401 (each registers itself)
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

__all__ = ["METHODS", "check_method", "make_method", "stored_method"]
