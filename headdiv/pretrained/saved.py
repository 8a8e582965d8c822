"""transformers models that were saved after heads were removed or a method was inserted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.core.errors import DataError
from headdiv.pretrained.attached import attach_heads, changes, detach_heads, transformers
from headdiv.pretrained.insertion import insert
from headdiv.pretrained.removal import remove_heads


def load(folder: str | Path) -> nn.Module:
    """A model that ``save_pretrained`` wrote after heads were removed or a method was inserted, in evaluation mode.

    The model has its heads and methods as before: `headdiv.pretrained.attach` and `inserted_method` find them. For any
    other model, by name or folder, the result is ``from_pretrained``'s.

    Raises:
        DataError: the weights are not those of the model that ``config.json`` describes.
    """
    library = transformers()
    config = library.AutoConfig.from_pretrained(folder)
    cls = getattr(library, (config.architectures or ["AutoModel"])[0], library.AutoModel)
    if not any(changes(part) for part in _configs(config, library)):
        return cls.from_pretrained(folder)
    built: dict[str, Tensor] = {}

    class Changed(cls):  # type: ignore[misc, valid-type]
        """Builds the saved model for transformers' own loader, which alone knows older names of parameters."""

        def __new__(_, config: Any) -> nn.Module:
            with torch.device("cpu"):  # the loader makes models without memory, from which a method cannot start
                model = cls(config)
                _change(model, library)
            built.update([*model.named_parameters(), *model.named_buffers()])
            return model

    model, report = Changed.from_pretrained(
        folder, config=config, ignore_mismatched_sizes=True, output_loading_info=True
    )
    for problem, names in (("is not there", report["missing_keys"]), ("is unknown", report["unexpected_keys"])):
        if names:
            raise DataError(f"{folder}: the weights do not fit config.json's model: {min(names)} {problem}")
    for name, *shapes in report["mismatched_keys"]:
        shape, expected = map(tuple, shapes)
        raise DataError(
            f"{folder}: the weights do not fit config.json's model: {name} has shape {shape}, expected {expected}"
        )
    stored = model.state_dict(keep_vars=True)
    for name, x in built.items():  # position tables and the like, which no file holds
        if not getattr(stored.get(name), "_is_hf_initialized", False):  # the loader's mark
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, x)
    return model.eval()


def _configs(config: Any, library: Any) -> Iterator[Any]:
    """A model's configuration and those of its parts."""
    yield config
    for value in vars(config).values():
        if isinstance(value, library.PreTrainedConfig):
            yield from _configs(value, library)


def _change(model: nn.Module, library: Any) -> None:
    """Make the changes that the configurations of the model, and of parts that were attached alone, record."""
    recorded = {id(config) for config in _configs(model.config, library) if changes(config)}
    parts: dict[int, nn.Module] = {}
    for part in model.modules():
        if isinstance(part, library.PreTrainedModel) and id(part.config) in recorded:
            parts.setdefault(id(part.config), part)
    methods = [(part, changes(part.config).get("method")) for part in parts.values()]
    for part in parts.values():
        removed = changes(part.config).get("removed", {})
        kept = {attached.spec.name: attached.kept or range(attached.original) for attached in attach_heads(part).heads}
        masks = {name: torch.tensor([head + 1 not in removed[name] for head in kept[name]]) for name in removed}
        remove_heads(part, masks)
        if len(parts) > 1:
            detach_heads(part)
    for part, method in methods:
        if method is not None:
            insert(part, method)
