"""headdiv: methods that make the heads of multi-head attention less redundant, for any PyTorch model.

import headdiv

method = headdiv.make_method("deacon", m=8)
attention = headdiv.MultiheadAttention(512, 8, method)

`headdiv.companion` reproduces the papers; `headdiv.pretrained` is for Hugging Face models.
"""

from headdiv.core import lazy as _lazy

__version__ = "0.2.0"

# Names are listed in ``__init__.pyi``, for type checkers too; importing headdiv does not import torch.
__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
