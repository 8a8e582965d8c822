"""Hugging Face models: their heads measured, masked, removed, trained with a method, saved and loaded.

Needs the extra `hf`, which is imported with the first model.
"""

from typing import TYPE_CHECKING, Any

from headdiv.analysis.masking import least_important_first
from headdiv.pretrained.insertion import inserted_method
from headdiv.pretrained.measures import attach
from headdiv.pretrained.saved import load
from headdiv.pretrained.texts import small_tokenizer, text_batches

if TYPE_CHECKING:
    from headdiv.pretrained.trainer import HeadTraining, Seq2SeqTrainer, Trainer
else:

    def __getattr__(name: str) -> Any:
        """The trainers, on first use: they derive from transformers', which takes seconds to import."""
        if name not in ("HeadTraining", "Seq2SeqTrainer", "Trainer"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from headdiv.pretrained import trainer

        return getattr(trainer, name)


__all__ = [
    "HeadTraining",
    "Seq2SeqTrainer",
    "Trainer",
    "attach",
    "inserted_method",
    "least_important_first",
    "load",
    "small_tokenizer",
    "text_batches",
]
