"""Methods in Lightning's training; `headdiv.pretrained.Trainer` is transformers' own trainer with a method."""

from headdiv.integrations.lightning import LightningHooks, lightning_callback

__all__ = ["LightningHooks", "lightning_callback"]
