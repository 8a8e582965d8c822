"""Attention maps of a trained model for a text that is typed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headdiv.companion.tasks.base import Run
from headdiv.nn.records import record_heads


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of the heads of one module over the tokens of one example.

    Attributes:
        queries: N tokens that attend, including special tokens such as ``<s>``, as the model reads them.
        keys: S tokens that are attended to.
        weights: (H, N, S); a row of a head sums to 1.
    """

    queries: list[str]
    keys: list[str]
    weights: np.ndarray


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
    """The same for a batch from `Task.example_batch`."""
    task = run.task
    run.model.eval()
    with record_heads(run.model) as records:
        run.model(batch)
    tokens = {
        kind: [task.decode_token(run.corpus, kind, index) for index in words.tolist()]
        for kind, words in task.words(batch).items()
    }
    maps = {}
    for record in records:
        kind = record.spec.kind
        weights = record.weights[0].float().cpu().numpy()  # (H, N, S), of the only window
        maps[record.spec.name] = AttentionMap(tokens[kind], tokens["encoder" if kind == "cross" else kind], weights)
    return maps
