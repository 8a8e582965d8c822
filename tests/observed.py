"""What heads do with batches of sentence pairs, as the measures read it."""

import torch
from small_model import BEGIN, END, make_batch

from headdiv.analysis.similarity import Observed
from headdiv.nn.records import record_heads


def observe(model, pairs, batches, window=48):
    """Batch by batch, each given by the numbers of its pairs; the first and last words of sentences are special."""
    for numbers in batches:
        batch = make_batch(pairs, numbers, window=window)
        with torch.no_grad(), record_heads(model) as records:
            model(batch)
        yield Observed(records, special_tokens(batch))


def special_tokens(batch):
    """Which rows of the keys of each kind of attention are no words."""
    source, target = batch.source == END, batch.target_in == BEGIN
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
