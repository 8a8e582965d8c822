"""A tiny model one step into its training, and DEACON's options in short: shared by the tests of methods."""

import numpy as np
import torch

from headdiv.config import ModelConfig
from headdiv.data.batches import Pairs, make_batch
from headdiv.losses import linear_cross_entropy
from headdiv.methods import make_method
from headdiv.model import Transformer, initialise

ARCHITECTURES = ["direct", "average", "nonlinear"]
CONFIG = ModelConfig(d_model=12, heads=3, encoder_layers=1, decoder_layers=1, d_ff=10, dropout=0.1)


def some_pairs(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return Pairs(*([rng.integers(4, 15, rng.integers(1, 7)) for _ in range(n)] for _ in range(2)))


def trained_one_step(options, dtype=torch.float32):
    """A model with all gradients in place, and its method."""
    method = make_method(options)
    model = Transformer(CONFIG, 15, 15, method.attention)
    initialise(model, 1)
    model.to(dtype)
    torch.manual_seed(2)
    batch = make_batch(some_pairs(), range(6))
    loss, _, _ = linear_cross_entropy(model(batch), model.output_weight, batch.target_out)
    (loss / len(batch.target_out)).backward()
    return model, method


def told(architecture="direct", m=3, **options):
    return {"name": "deacon", "architecture": architecture, "m": m, **options}
