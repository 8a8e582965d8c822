"""headdiv: methods that make the heads of multi-head attention less redundant, for any PyTorch model.

import headdiv

method = headdiv.make_method("deacon", m=8)
attention = headdiv.MultiheadAttention(512, 8, method)

`headdiv.pretrained` is for Hugging Face models; `headdiv.companion` reproduces the papers, and is imported by itself.
"""

from headdiv import gha, integrations, plots, pretrained
from headdiv.analysis.heads import ModelHeads
from headdiv.analysis.masking import masked_heads
from headdiv.methods.base import Method
from headdiv.methods.drop_in import MultiheadAttention
from headdiv.methods.registry import make_method, register
from headdiv.nn.folding import fold
from headdiv.nn.records import HeadRecord, record_heads
from headdiv.pretrained.insertion import insert, inserted_modules, remove_method
from headdiv.training.trainer import Trainer

__version__ = "0.2.0"
__all__ = [
    "HeadRecord",
    "Method",
    "ModelHeads",
    "MultiheadAttention",
    "Trainer",
    "fold",
    "gha",
    "insert",
    "inserted_modules",
    "integrations",
    "make_method",
    "masked_heads",
    "plots",
    "pretrained",
    "record_heads",
    "register",
    "remove_method",
]
