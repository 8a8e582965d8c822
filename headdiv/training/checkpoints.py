"""Checkpoints that are complete or absent, and hold no code: safetensors and JSON."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from headdiv.core import distributed, manifest
from headdiv.core.errors import DamageError, TrainingError
from headdiv.core.files import read_json, remove_leftovers, replacing, write_json

FILES = ("model.safetensors", "optimiser.safetensors", "state.json")
KEPT = 2  # checkpoints: if the newest is damaged, the one before it is used
_NAME = re.compile(r"step(\d+)")
_BEST = "best.safetensors"  # the parameters of the best epoch so far, in checkpoints that have them
_RECENT = "recent.safetensors"  # those of the epochs that are to be averaged, "<number>.<name>"
_SETTINGS = "settings"

Parameters = dict[str, torch.Tensor]  # and buffers of a model, as `copied` gives them

log = logging.getLogger(__name__)


def save(
    folder: Path,
    step: int,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    state: dict[str, Any],
    settings: dict[str, Any] | None = None,
    best: Parameters | None = None,
    recent: Sequence[Parameters] = (),
) -> None:
    """Write ``folder/step<step>`` and remove all but it and the one before it; called by all ranks, the first writes.

    Args:
        folder: of the run's checkpoints.
        step: optimiser steps done.
        model: parameters and buffers are kept.
        optimiser: one whose state is tensors, as that of torch's own.
        state: everything else, as JSON; the random number generators' states are added.
        settings: what must be the same when training resumes, as JSON.
        best: the model's state after its best epoch so far.
        recent: its states after the last epochs, which are to be averaged.
    """
    tensors = {"random": distributed.gathered(torch.get_rng_state())}  # (ranks, bytes)
    device = next(model.parameters()).device
    if device.type == "cuda":
        tensors["random_cuda"] = distributed.gathered(torch.cuda.get_rng_state(device))
    if not distributed.is_first():
        return
    with replacing(folder / f"step{step}") as temporary:
        temporary.mkdir()
        save_model(model, temporary / "model.safetensors")
        if best is not None:
            save_file(best, temporary / _BEST)
        if recent:
            by_key = {f"{number}.{name}": x for number, epoch in enumerate(recent) for name, x in epoch.items()}
            save_file(by_key, temporary / _RECENT)
        for number, values in optimiser.state_dict()["state"].items():
            tensors |= {f"{number}.{name}": value.contiguous() for name, value in values.items()}
        save_file(tensors, temporary / "optimiser.safetensors")
        extras = {_SETTINGS: settings} if settings else {}
        extras |= {name: True for name in (_BEST, _RECENT) if (temporary / name).is_file()}
        write_json(temporary / "state.json", state | extras)
        manifest.note(temporary)
    checkpoints = _checkpoints(folder)
    for number in sorted(checkpoints)[:-KEPT]:
        shutil.rmtree(checkpoints[number])


def restore(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    settings: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], Parameters | None, list[Parameters]] | None:
    """Put the newest checkpoint into model, optimiser and generators; None if there is none.

    A damaged one is renamed to ``damaged-step<step>`` and the one before it is used, with a warning.

    Returns:
        Its state, and ``best`` and ``recent`` of `save`.

    Raises:
        TrainingError: it was written with other settings or by another number of ranks, or does not fit the model.
    """
    if distributed.is_first():
        remove_leftovers(folder, "step*")
        _set_damaged_aside(folder)
    distributed.wait()
    checkpoints = _checkpoints(folder)
    if not checkpoints:
        return None
    newest = checkpoints[max(checkpoints)]
    state = read_json(newest / "state.json")
    _refuse_other_settings(folder, state.pop(_SETTINGS, {}), settings or {})
    tensors = _read(newest / "optimiser.safetensors")
    random, random_cuda = tensors.pop("random"), tensors.pop("random_cuda", None)  # (ranks, bytes)
    if len(random) != distributed.world():
        raise TrainingError(
            f"{newest}: written by {len(random)} ranks, found {distributed.world()}; start as many, or delete {folder}"
        )
    load_model(model, newest / "model.safetensors")
    stored = optimiser.state_dict() | {"state": {}}  # a parameter without state had taken no step
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        stored["state"].setdefault(int(number), {})[key] = value
    optimiser.load_state_dict(stored)
    rank = distributed.rank()
    torch.set_rng_state(random[rank].clone())  # torch does not take a row of another tensor
    device = next(model.parameters()).device
    if device.type == "cuda" and random_cuda is not None:
        torch.cuda.set_rng_state(random_cuda[rank].clone(), device)
    best = _read(newest / _BEST) if state.pop(_BEST, False) else None
    recent: dict[int, Parameters] = {}
    if state.pop(_RECENT, False):
        for key, value in _read(newest / _RECENT).items():
            number, _, name = key.partition(".")
            recent.setdefault(int(number), {})[name] = value
    return state, best, [recent[number] for number in sorted(recent)]


def _refuse_other_settings(folder: Path, stored: dict[str, Any], current: dict[str, Any]) -> None:
    """Raise a TrainingError where settings differ; without any on one side nothing is compared."""
    if not stored or not current:
        return
    for key in {**stored, **current}:
        if stored.get(key) != current.get(key):
            raise TrainingError(
                f"{folder}: a training with {key} = {stored.get(key)} has its checkpoints there, and this one has "
                f"{current.get(key)}; expected a folder of its own"
            )


def _set_damaged_aside(folder: Path) -> None:
    """Rename the newest checkpoints until one is intact."""
    checkpoints = _checkpoints(folder)
    while checkpoints:
        path = checkpoints.pop(max(checkpoints))
        try:
            manifest.check(path, *FILES)
            state = read_json(path / "state.json")
            manifest.check(path, *(name for name in (_BEST, _RECENT) if state.get(name)))
            return
        except DamageError as error:
            before = max(checkpoints, default=None)
            resumption = "the training begins anew" if before is None else f"the training goes on from step {before}"
            log.warning("%s; %s", error, resumption)
            damaged = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(damaged, ignore_errors=True)
            path.rename(damaged)


def copied(model: nn.Module) -> Parameters:
    """A copy of parameters and buffers in main memory; a tied parameter is included under each of its names."""
    return {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }


def averaged(states: Sequence[Parameters]) -> Parameters:
    """The mean of states as `copied` gives them, running statistics too; counters (integers) are the last one's."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if last.is_floating_point() else last
        for name, last in states[-1].items()
    }


def save_model(model: nn.Module, path: Path) -> None:
    """Parameters and buffers as safetensors; a tied parameter is written under each of its names."""
    tensors: dict[str, torch.Tensor] = {}
    written: set[int] = set()
    for name, tensor in model.state_dict().items():
        tensors[name] = tensor.clone() if tensor.data_ptr() in written else tensor.contiguous()
        if tensor.numel():
            written.add(tensors[name].data_ptr())
    save_file(tensors, path)


def load_model(model: nn.Module, path: Path) -> None:
    """Read parameters and buffers into a model.

    Raises:
        TrainingError: the file is damaged or belongs to another model.
    """
    tensors = _read(path)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise TrainingError(f"{path}: does not fit this model ({str(error).splitlines()[-1].strip()})") from None


def _read(path: Path) -> Parameters:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"{path}: cannot be read ({error})") from None


def _checkpoints(folder: Path) -> dict[int, Path]:
    """Folders of checkpoints by their steps."""
    paths = folder.glob("step*") if folder.is_dir() else []
    return {int(match[1]): path for path in paths if (match := _NAME.fullmatch(path.name))}
