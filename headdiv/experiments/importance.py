"""How much each head of a run matters: the loss and the task's score with heads masked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from headdiv.analysis.masking import (
    Head,
    HeadChange,
    Masks,
    heads_of,
    least_important_first,
    masked_heads,
    masking_changes,
    pruning_steps,
)
from headdiv.core import progress
from headdiv.core.provenance import commit
from headdiv.tasks import TASKS
from headdiv.tasks.base import Run, Score, held_out_loss, score

FORMAT = 1  # of importance.json


class Kept(NamedTuple):
    """A point of a pruning curve."""

    kept: int  # heads of all modules
    loss: float  # on the validation split, nats for each prediction
    score: float  # on the test set


def masked_loss(run: Run, masks: Masks | None = None) -> float:
    """Loss on the validation split with these masks, in nats for each prediction."""
    with masked_heads(run.model, masks or {}):
        return held_out_loss(TASKS[run.config.kind], run.model, run.corpus, "valid", run.config, run.device)["nll"]


def masked_score(run: Run, masks: Masks | None = None) -> Score:
    """The task's score on the test set (`Task.test_score`) with these masks."""
    with masked_heads(run.model, masks or {}):
        return TASKS[run.config.kind].test_score(run)


def head_importance(run: Run, gone: Sequence[Head] = (), with_score: bool = False) -> list[HeadChange]:
    """How loss and score change when one head at a time is masked, for every head, in the order of a forward pass.

    Args:
        run: a finished run.
        gone: heads (attention module, number from 1) that are masked in any case; they are not in the result.
        with_score: measure the task's score as well, which takes a search of the whole test set for each head.

    Raises:
        DataError: one of ``gone`` is not there.
    """
    measures = [lambda masks: masked_loss(run, masks), lambda masks: masked_score(run, masks)["value"]]
    return masking_changes(run.model, measures[: 1 + with_score], gone)


def pruning_order(run: Run, importance: Sequence[HeadChange] | None = None) -> list[Head]:
    """All heads (attention module, number from 1), the least important first.

    Importance is measured once more when half of the heads are masked: it depends on which others are left.

    Args:
        run: a finished run.
        importance: of all heads, if it is known already.
    """
    importance = head_importance(run) if importance is None else importance
    gone = least_important_first(importance)[: len(importance) // 2]
    return [*gone, *least_important_first(head_importance(run, gone))]


def pruning_curve(run: Run, steps: int = 10, order: Sequence[Head] | None = None) -> list[Kept]:
    """Loss and score with ever fewer heads, from all to none (Michel et al. 2019, section 4), nothing trained again.

    Args:
        run: a finished run.
        steps: in how many steps of about the same number of heads, one at least.
        order: in which heads are masked, each once at most; the curve ends where it does. `pruning_order` where left
            out.

    Raises:
        DataError: there are fewer than one step, or a head is not there or named twice.
    """
    order = pruning_order(run) if order is None else order
    return [Kept(kept, loss, result["value"]) for kept, loss, result in _points(run, steps, order)]


def _points(run: Run, steps: int, order: Sequence[Head]) -> list[tuple[int, float, Score]]:
    """Heads kept, loss and score."""
    every, points = pruning_steps(run.model, steps, order), []
    with progress.bar(len(every), "pruning") as advance:
        for kept, masks in every:
            points.append((kept, masked_loss(run, masks), masked_score(run, masks)))
            advance("")
    return points


def importance_record(run: Run, steps: int = 10, with_score: bool = False) -> dict[str, Any]:
    """Importance of every head and the pruning curve: importance.json as a dictionary.

    Args:
        run: a finished run.
        steps: of the curve.
        with_score: see `head_importance`.
    """
    task, began = TASKS[run.config.kind], time.perf_counter()
    heads = head_importance(run, with_score=with_score)
    order = pruning_order(run, heads)
    points = _points(run, steps, order)
    _, loss, whole = points[0]
    return {
        "format": FORMAT,
        **run.identity(),
        "modules": heads_of(run.model),
        "loss": score(loss, task.unit, "validation split, without label smoothing and dropout"),
        "score": {"name": task.test_score_name, **whole},
        "heads": [each._asdict() for each in heads],
        "order": [list(head) for head in order],
        "curve": [Kept(kept, loss, result["value"])._asdict() for kept, loss, result in points],
        "seconds": time.perf_counter() - began,
        "provenance": {**run.record["provenance"], "evaluated_at_commit": commit()},
    }
