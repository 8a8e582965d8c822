"""The methods: what each changes in attention, loss or update. `headdiv.methods.base` says how to add one."""

from headdiv.methods.combined import Combined
from headdiv.methods.registry import METHODS, check_method, classes_of, make_method, stored_method

METHODS.add("combined", Combined)

__all__ = ["METHODS", "check_method", "classes_of", "make_method", "stored_method"]
