from .lightning import LightningCallback as LightningCallback
from .lightning import LightningHooks as LightningHooks
from .transformers import TransformersCallback as TransformersCallback
