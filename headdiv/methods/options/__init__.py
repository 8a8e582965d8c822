"""What configurations say of methods, and what does not fit; importing it does not import torch.

One class for each method of headdiv; a method from elsewhere may hold its options in its own class instead.
"""

from headdiv.methods.options.base import AttentionHook, MethodOptions
from headdiv.methods.options.combined import CombinedOptions
from headdiv.methods.options.table import OPTIONS, check_method, method_options, option_classes, stored_method

__all__ = [
    "OPTIONS",
    "AttentionHook",
    "CombinedOptions",
    "MethodOptions",
    "check_method",
    "method_options",
    "option_classes",
    "stored_method",
]
