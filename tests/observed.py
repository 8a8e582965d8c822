"""What heads do with batches of sentence pairs, as the measures read it."""

import torch

from headdiv.analysis.similarity import Observed
from headdiv.companion.models.batching import make_batch
from headdiv.companion.tasks import TASKS
from headdiv.nn.records import record_heads

SPECIAL_TOKENS = TASKS["translation"].special_tokens


def observe(model, pairs, batches, window=48):
    """Batch by batch, each given by the numbers of its pairs."""
    for numbers in batches:
        batch = make_batch(pairs, numbers, window=window)
        with torch.no_grad(), record_heads(model) as records:
            model(batch)
        yield Observed(records, SPECIAL_TOKENS(batch))
