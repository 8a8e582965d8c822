from . import companion as companion
from . import gha as gha
from . import integrations as integrations
from . import plots as plots
from . import pretrained as pretrained
from .analysis.heads import ModelHeads as ModelHeads
from .analysis.masking import masked_heads as masked_heads
from .methods.base import Method as Method
from .methods.drop_in import MultiheadAttention as MultiheadAttention
from .methods.registry import make_method as make_method
from .methods.registry import register as register
from .nn.folding import fold as fold
from .nn.records import HeadRecord as HeadRecord
from .nn.records import record_heads as record_heads
from .pretrained.insertion import insert as insert
from .pretrained.insertion import inserted_modules as inserted_modules
from .pretrained.insertion import remove_method as remove_method
from .pretrained.measures import attach as attach
from .pretrained.saved import load as load
from .training.trainer import Trainer as Trainer

__version__: str
