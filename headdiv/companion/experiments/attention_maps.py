"""Attention maps of a trained model for a text that is typed in."""

from __future__ import annotations

from typing import Any

import torch

from headdiv.companion.analysis.attention_maps import AttentionMap, maps_of_records
from headdiv.companion.tasks.base import Run
from headdiv.nn.records import record_heads


def attention_maps(run: Run, text: str, other: str | None = None) -> dict[str, AttentionMap]:
    """Attention weights of every attention module ("encoder 1", "decoder 2", "cross 1").

    Heads of a mixture are its slots, the token's first choice first.

    Args:
        run: a finished run.
        text: what the model reads; in question answering the passage. A masked model reads ``[MASK]`` as its mask
            token. A language model reads the end of a text that is longer than its context.
        other: translation and summarisation: the output that the decoder is given, the model's own where left out.
            Question answering: the question. Language models read none.

    Raises:
        DataError: a question or passage without words, or a text that is too long for a masked model.
    """
    return maps_of(run, run.task.example_batch(run, text, other))


@torch.no_grad()
def maps_of(run: Run, batch: Any) -> dict[str, AttentionMap]:
    """The same of a batch that `Task.example_batch` has laid out."""
    task = run.task
    run.model.eval()
    with record_heads(run.model) as records:
        run.model(batch)
    tokens = {
        kind: [task.decode_token(run.corpus, kind, index) for index in words.tolist()]
        for kind, words in task.words(batch).items()
    }
    return maps_of_records(records, tokens)
