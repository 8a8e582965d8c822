"""How much each head matters: what changes when it is masked, and how many can be masked (Michel et al. 2019).

A masked head's outputs are 0 in front of the output stage; its neighbours in the module are not made up for it.
In DEACON that is before the batch normalisation, which turns 0 into a constant.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headdiv.core import progress
from headdiv.core.errors import DataError
from headdiv.core.provenance import commit
from headdiv.nn.attention import AttentionModule, attention_modules
from headdiv.tasks import TASKS
from headdiv.tasks.base import Run, Score, held_out_loss, score

Masks = Mapping[str, Sequence[float] | Tensor]  # by place ("encoder 1"): a number for each head, 0 or 1
FORMAT = 1  # of importance.json

OF_LOSS = "test_perplexity"  # needs no outputs
SCORES = {"translation": "bleu", "summarisation": "rougeL", "qa": "f1", "lm": OF_LOSS, "mlm": OF_LOSS}  # by task


class HeadChange(NamedTuple):
    """What masking one head changes; heads are counted from 1."""

    place: str
    head: int
    change: float  # of the validation loss, in nats for each prediction: above 0 where the head is of use
    score: float | None = None  # change of the task's score on the test set


class Kept(NamedTuple):
    """A point of a pruning curve."""

    kept: int  # heads of all modules
    loss: float  # on the validation split, nats for each prediction
    score: float  # on the test set


# ---- masking


def heads_of(model: nn.Module) -> dict[str, int]:
    """Number of heads of every attention module, by place, in the order of a forward pass; of a mixture, its slots."""
    return {place: module.head_slots for place, module in _modules(model).items()}


@contextlib.contextmanager
def masked_heads(model: nn.Module, masks: Masks) -> Iterator[None]:
    """While open, the outputs of heads are multiplied by ``masks``, in forward passes and in cached decoding.

    Nothing is left behind, and where it is not open nothing is computed. Records of heads (`record_heads`) show their
    outputs as they are before. Of a mixture of heads the i-th number is for the i-th of each token's chosen heads.

    Args:
        model: whatever holds attention modules.
        masks: by place ("encoder 1", "decoder 2", "cross 1"): a number for each head; 0 masks it, 1 leaves it alone.
            Places that are not named are left alone.

    Raises:
        DataError: there is no such place, or its number of heads is another.
    """
    modules = _modules(model)
    for place, mask in masks.items():
        if place not in modules:
            raise DataError(f"the model has no attention {place!r}; there are: {', '.join(modules)}")
        if len(mask) != modules[place].head_slots:
            raise DataError(f"{place} has {modules[place].head_slots} heads, found a mask of {len(mask)} numbers")
    with contextlib.ExitStack() as stack:
        for place, mask in masks.items():
            device = next(modules[place].parameters()).device
            handle = modules[place].mask_heads(torch.as_tensor(mask, device=device))
            stack.callback(handle.remove)
        yield


def _modules(model: nn.Module) -> dict[str, AttentionModule]:
    return {module.spec.place: module for module in attention_modules(model)}


def masks_without(model: nn.Module, gone: Sequence[tuple[str, int]]) -> dict[str, Tensor]:
    """The masks that take these heads (place, number from 1) away.

    Raises:
        DataError: one of them is not there.
    """
    there, masks = heads_of(model), {}
    for place, head in gone:
        if not 1 <= head <= there.get(place, 0):
            raise DataError(f"the model has no head {head} in {place!r}; there are: {_listed(model)}")
        masks.setdefault(place, torch.ones(there[place]))[head - 1] = 0
    return masks


# ---- what a model is worth with masked heads


def masked_loss(run: Run, masks: Masks | None = None) -> float:
    """Loss on the validation split with these masks, in nats for each prediction."""
    with masked_heads(run.model, masks or {}):
        return held_out_loss(TASKS[run.config.kind], run.model, run.corpus, "valid", run.config, run.device)["nll"]


def masked_score(run: Run, masks: Masks | None = None) -> Score:
    """The task's score (`SCORES`) on the test set with these masks; what the run keeps is neither read nor written."""
    task, name = TASKS[run.config.kind], SCORES[run.config.kind]
    with masked_heads(run.model, masks or {}):
        if name == OF_LOSS:
            nll = held_out_loss(task, run.model, run.corpus, "test", run.config, run.device)["nll"]
            return score(math.exp(min(nll, 700.0)), "", f"exp({task.unit}), e^700 at most; test split")
        with tempfile.TemporaryDirectory() as folder:
            return task.scores(replace(run, folder=Path(folder)))[name]


def head_importance(run: Run, gone: Sequence[tuple[str, int]] = (), with_score: bool = False) -> list[HeadChange]:
    """What masking one head at a time changes, for every head, in the order of a forward pass.

    Args:
        run: a finished run.
        gone: heads (place, number from 1) that are masked in any case; they have no line.
        with_score: measure the task's score as well, which takes a search of the whole test set for each head.

    Raises:
        DataError: one of ``gone`` is not there.
    """
    heads = [(place, head) for place, count in heads_of(run.model).items() for head in range(1, count + 1)]
    measured: list[Callable[[Run, Masks], float]] = [masked_loss]
    if with_score:
        measured.append(lambda run, masks: masked_score(run, masks)["value"])
    before = [measure(run, masks_without(run.model, gone)) for measure in measured]
    found = []
    left = [head for head in heads if head not in set(gone)]
    with progress.bar(len(left), "masking heads") as advance:
        for place, head in left:
            masks = masks_without(run.model, [*gone, (place, head)])
            after = [measure(run, masks) for measure in measured]
            found.append(HeadChange(place, head, *(b - a for a, b in zip(before, after, strict=True))))
            advance("")
    return found


def _listed(model: nn.Module) -> str:
    return ", ".join(f"{count} in {place}" for place, count in heads_of(model).items())


# ---- how many may go


def pruning_order(run: Run, importance: Sequence[HeadChange] | None = None) -> list[tuple[str, int]]:
    """All heads (place, number from 1), the one that matters least first.

    Importance is measured once more when half of the heads are masked: it depends on which others are left.

    Args:
        run: a finished run.
        importance: of all heads, if it is known already.
    """
    told = head_importance(run) if importance is None else importance
    gone = _least_first(told)[: len(told) // 2]
    return [*gone, *_least_first(head_importance(run, gone))]


def _least_first(importance: Sequence[HeadChange]) -> list[tuple[str, int]]:
    return [(each.place, each.head) for each in sorted(importance, key=lambda each: each.change)]


def pruning_curve(run: Run, steps: int = 10, order: Sequence[tuple[str, int]] | None = None) -> list[Kept]:
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
    return [Kept(kept, loss, told["value"]) for kept, loss, told in _points(run, steps, order)]


def _points(run: Run, steps: int, order: Sequence[tuple[str, int]]) -> list[tuple[int, float, Score]]:
    """Heads kept, loss and score."""
    if steps < 1:
        raise DataError(f"steps: {steps}, expected 1 at least")
    twice = [f"{place} {head}" for (place, head), count in Counter(order).items() if count > 1]
    if twice:
        raise DataError(f"order: {', '.join(twice)} stands in it more than once")
    masks_without(run.model, order)  # refuses what is not there before anything is measured
    heads = sum(heads_of(run.model).values())
    counts = sorted({round(step * len(order) / steps) for step in range(steps + 1)})
    points = []
    with progress.bar(len(counts), "pruning") as advance:
        for count in counts:
            masks = masks_without(run.model, order[:count])
            points.append((heads - count, masked_loss(run, masks), masked_score(run, masks)))
            advance("")
    return points


def importance_record(run: Run, steps: int = 10, with_score: bool = False) -> dict[str, Any]:
    """Importance of every head and the pruning curve: importance.json as a dictionary.

    Args:
        run: a finished run.
        steps: of the curve.
        with_score: see `head_importance`.
    """
    config, task, began = run.config, TASKS[run.config.kind], time.perf_counter()
    heads = head_importance(run, with_score=with_score)
    order = pruning_order(run, heads)
    points = _points(run, steps, order)
    _, loss, whole = points[0]
    return {
        "format": FORMAT,
        **run.identity(),
        "modules": heads_of(run.model),
        "loss": score(loss, task.unit, "validation split, without label smoothing and dropout"),
        "score": {"name": SCORES[config.kind], **whole},
        "heads": [each._asdict() for each in heads],
        "order": [list(head) for head in order],
        "curve": [Kept(kept, loss, told["value"])._asdict() for kept, loss, told in points],
        "seconds": time.perf_counter() - began,
        "provenance": {**run.record["provenance"], "evaluated_at_commit": commit()},
    }
