from .lightning import LightningHooks as LightningHooks
from .lightning import lightning_callback as lightning_callback
