"""What a page shows of a run: its outputs for the first test examples, and what its heads attend to in the first."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from headdiv.companion.experiments.attention_maps import attention_maps
from headdiv.companion.tasks.base import Run
from headdiv.core.errors import DataError
from headdiv.core.files import write_text

FILE = "examples.json"  # beside the model, and beside the run's metrics
EXAMPLES = 5
TOKENS = 20  # of an attention map, along each side


def showcase(run: Run) -> dict[str, Any]:
    """Columns and rows of the first test examples, the output last; attention maps of the first one by module.

    A map has the tokens that attend (``queries``), those attended to (``keys``) and the heads' weights, (H, N, S),
    cut after `TOKENS` tokens; there are none where the first example cannot be typed in.
    """
    task, maps = run.task, {}
    table = task.examples(run, EXAMPLES)
    try:
        found = attention_maps(run, *task.example_text(run))
    except DataError:
        found = {}
    for place, one in found.items():
        weights = np.round(one.weights[:, :TOKENS, :TOKENS].astype(float), 2).tolist()
        maps[place] = {"queries": one.queries[:TOKENS], "keys": one.keys[:TOKENS], "weights": weights}
    return {"columns": list(table.columns), "rows": table.to_numpy().tolist(), "attention": maps}


def write_showcase(run: Run) -> None:
    """Keep `showcase` beside the model, from where `headdiv.companion.experiments.results.record` takes it."""
    write_text(run.folder / FILE, json.dumps(showcase(run), ensure_ascii=False, separators=(",", ":")) + "\n")
