"""Methods in Lightning's training; `headdiv.pretrained.Trainer` is transformers' own trainer with a method."""

from headdiv.core import lazy as _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
