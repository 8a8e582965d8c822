"""Checkpoints that are whole or not there, and hold no code: safetensors, JSON, and tensors of the optimiser."""

from __future__ import annotations

import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from headdiv.errors import TrainingError
from headdiv.files import read_json, replacing, write_json

_NAME = re.compile(r"step(\d+)")


def save(folder: Path, step: int, model: nn.Module, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Write ``folder/step<step>`` and then remove older ones.

    Args:
        folder: of the run's checkpoints.
        step: optimiser steps done.
        model: parameters and buffers are kept.
        optimiser: its state is kept.
        state: everything else, as JSON; the random number generators' states are added.
    """
    with replacing(folder / f"step{step}") as temporary:
        temporary.mkdir()
        save_model(model, temporary / "model.safetensors")
        tensors = {"optimiser": optimiser.state_dict(), "random": torch.get_rng_state()}
        if torch.cuda.is_available():
            tensors["random_cuda"] = torch.cuda.get_rng_state()
        torch.save(tensors, temporary / "optimiser.pt")
        write_json(temporary / "state.json", state)
    for other, path in _all(folder).items():
        if other != step:
            shutil.rmtree(path)


def restore(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, device: torch.device
) -> dict[str, Any] | None:
    """Put the newest checkpoint into model, optimiser and generators; return its state, or None if there is none."""
    found = _all(folder)
    if not found:
        return None
    newest = found[max(found)]
    state = read_json(newest / "state.json")
    load_model(model, newest / "model.safetensors")
    path = newest / "optimiser.pt"
    try:
        tensors = torch.load(path, weights_only=True, map_location=device)
        optimiser.load_state_dict(tensors["optimiser"])
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise TrainingError(f"{path}: cannot be read ({str(error).split(chr(10))[0]})") from None
    torch.set_rng_state(tensors["random"].cpu())
    if device.type == "cuda" and "random_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random_cuda"].cpu())
    return state


def save_model(model: nn.Module, path: Path) -> None:
    """Parameters and buffers as safetensors."""
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)


def load_model(model: nn.Module, path: Path) -> None:
    """Read them back.

    Raises:
        TrainingError: the file is damaged or belongs to another model.
    """
    try:
        model.load_state_dict(load_file(path))
    except (SafetensorError, OSError) as error:
        raise TrainingError(f"{path}: cannot be read ({error})") from None
    except RuntimeError as error:
        raise TrainingError(f"{path}: does not fit this model ({str(error).splitlines()[-1].strip()})") from None


def _all(folder: Path) -> dict[int, Path]:
    paths = folder.glob("step*") if folder.is_dir() else []
    return {int(match[1]): path for path in paths if (match := _NAME.fullmatch(path.name))}
