"""What was changed in a model, in the configuration that is saved with it: `headdiv.pretrained.load` reads it there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

from headdiv.core.errors import DataError
from headdiv.nn.sizes import Kind
from headdiv.pretrained.attached import attachment_of, transformers
from headdiv.pretrained.projections import outermost


def changes(config: Any) -> dict[str, Any]:
    """``removed``: by attention module, numbers of heads (from 1, among all original ones); ``method``: its options."""
    return getattr(config, "headdiv", None) or {}


def record(model: nn.Module, key: str, value: Any) -> None:
    """Keep a change of an attached model with every model of transformers in it that can be saved; None: keep none."""
    for each in outermost(model):
        others = {name: x for name, x in changes(each.config).items() if name != key}
        each.config.headdiv = others if value is None else {**others, key: value}


def record_removed(model: nn.Module) -> None:
    """The same for the heads that each of these models has lost, by the names that modules have in it alone."""
    for each in outermost(model):
        inside, layers, removed = set(each.modules()), Counter[Kind](), {}
        for heads in attachment_of(model).heads:
            if heads in inside:
                layers[heads.spec.kind] += 1
                if heads.kept is not None:
                    gone = [head + 1 for head in range(heads.original) if head not in heads.kept]
                    removed[f"{heads.spec.kind} {layers[heads.spec.kind]}"] = gone
        each.config.headdiv = {**changes(each.config), "removed": removed}


def must_be_recorded(model: nn.Module) -> None:
    """Raise a DataError for a stack of T5: its configuration is a copy of the one that is saved."""
    library, attachment = transformers(), attachment_of(model)
    for each in outermost(model):
        inner = type(each).__module__.startswith("transformers.") and not hasattr(library, type(each).__name__)
        own = set(each.modules())
        if inner and any(heads in own and heads.projections.naming.shared_bias for heads in attachment.heads):
            raise DataError(
                f"{type(each).__name__}: a change of this part alone would not be in the saved model's config.json, "
                "without which its weights cannot be loaded; expected the whole model, attached after this part was "
                "detached"
            )
