"""Hugging Face models: their heads measured, masked, removed, trained with a method, saved and loaded.

Needs the extra `hf`.
"""

from headdiv.core import lazy as _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__, "hf")
