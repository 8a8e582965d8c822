"""The methods: what each changes in attention, loss or update. `headdiv.methods.base` says how to add one."""

from headdiv.methods import (  # noqa: F401 (each registers itself)
    combined,
    deacon,
    drop_head,
    head_scale,
    homeostasis,
    losses,
    mixing,
    moa,
    rotation,
)
from headdiv.methods.registry import METHODS, check_method, make_method, stored_method

__all__ = ["METHODS", "check_method", "make_method", "stored_method"]
