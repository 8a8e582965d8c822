"""Permanent removal of heads from an attached model: smaller projections, the same output as with the heads masked.

Rows of the query, key and value projections and columns of the output projection are removed. Shared heads of keys and
values go with the last head that uses them; where groups become uneven, the module gets each head's keys by number.
Parameters are replaced: make the optimiser afterwards.

Letters: H heads, G heads of keys and values, K head width.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.analysis.masking import masked_heads
from headdiv.core.errors import DataError
from headdiv.core.precision import HALF, at_least_float32
from headdiv.nn.projections import keep_units, must_be_merged, units_of
from headdiv.nn.records import attention_modules
from headdiv.pretrained.attached import AttachedHeads, attachment_of
from headdiv.pretrained.projections import is_plain, kind_of, sizes

TOLERANCE = 10  # square roots of the smallest difference from 1


@torch.no_grad()
def remove_heads_checked(model: nn.Module, masks: Mapping[str, Tensor], arguments: Mapping[str, Any] | None) -> None:
    """`remove_heads`, if a copy without them gives the masked model's output; otherwise the model stays as it was.

    The copy is in float32 at least, since rounding would hide errors.

    Args:
        model: attached, in evaluation mode.
        masks: see `remove_heads`.
        arguments: of a forward pass; not needed where the model reads tokens alone.

    Raises:
        DataError: the output differs, the architecture's code does not run with fewer heads, or there are no arguments
            to try it with.
    """
    attachment_of(model).must_be_recorded()
    _must_be_plain(model, masks)
    trial = copy.deepcopy(model)
    if any(parameter.dtype in HALF for parameter in trial.parameters()):
        trial.float()
        wide = {name: at_least_float32(x) if isinstance(x, Tensor) else x for name, x in (arguments or {}).items()}
        arguments = wide or None
    with masked_heads(trial, masks):
        arguments, masked = _run(trial, arguments)
    remove_heads(trial, masks)
    try:
        problem = _difference(masked, _outputs(trial, arguments))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        problem = str(error)
    if problem:
        raise DataError(
            f"{type(model).__name__}: its code does not work with fewer heads ({problem}); expected an architecture "
            "that takes their number from the projections, or masked heads instead"
        )
    remove_heads(model, masks)


@torch.no_grad()
def remove_heads(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Remove heads of an attached model, whatever its code makes of that; ``config.headdiv`` records it.

    The architectures' code needs a head in every module: a module that loses all of them keeps the first one, with
    output weights of 0.

    Args:
        model: attached.
        masks: by attention module: for each head, 0 to remove it. The remaining ones are renumbered.
    """
    attachment = attachment_of(model)
    for attached in attachment.heads:
        mask = masks.get(attached.spec.name)
        if mask is not None and not mask.all():
            _cut_module(attached, mask.nonzero().flatten().tolist())
    attachment.record_removed()


def _must_be_plain(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Raise a DataError where a projection is quantised, adapted, or a method's output stage, or peft runs a copy."""
    running = attention_modules(model)
    for attached in attachment_of(model).heads:
        name, projections = attached.spec.name, attached.projections
        if name not in masks:
            continue
        if not any(attached is module for module in running):
            raise DataError(
                f"{name}: heads cannot be removed while adapters run a copy of the module; expected the model to be "
                "detached, the adapters merged, and the model attached anew"
            )
        for projection in (*projections.inputs, projections.output):
            if not is_plain(projection):
                raise DataError(
                    f"{name}: heads cannot be removed from a {kind_of(projection)}; expected a plain Linear of torch.nn"
                )
            must_be_merged(f"{name}: its projection", projection)


def _run(model: nn.Module, arguments: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], list[Tensor]]:
    """The arguments of a forward pass, by default some tokens, and its outputs."""
    if arguments is not None:
        return arguments, _outputs(model, arguments)
    ids = torch.arange(3, 8, device=next(model.parameters()).device)[None]
    arguments = {"input_ids": ids}
    if attachment_of(model).config.is_encoder_decoder:
        arguments["decoder_input_ids"] = ids
    try:
        return arguments, _outputs(model, arguments)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"{type(model).__name__}: does not run on made-up tokens, to try it with fewer heads; expected a batch: "
            "remove(heads, batch)"
        ) from error


def _outputs(model: nn.Module, arguments: Mapping[str, Any]) -> list[Tensor]:
    """The outputs of a forward pass; what the model draws is the same in each."""
    with torch.random.fork_rng({parameter.device for parameter in model.parameters() if parameter.is_cuda}):
        torch.manual_seed(0)
        outputs = model(**arguments)
    values = outputs.values() if isinstance(outputs, Mapping) else outputs
    return [x for x in values if isinstance(x, Tensor) and x.is_floating_point()]


def _difference(expected: list[Tensor], outputs: list[Tensor]) -> str | None:
    for masked, smaller in zip(expected, outputs, strict=True):
        largest = float((masked - smaller).abs().masked_fill(masked == smaller, 0.0).max())  # both may be infinite
        limit = TOLERANCE * torch.finfo(masked.dtype).eps ** 0.5 * max(float(masked.abs().max()), 1e-3)
        if not largest <= limit:
            return f"its output is another than that of the masked model, by {largest:.2g}"
    return None


def _cut_module(attached: AttachedHeads, kept: list[int]) -> None:
    """Keep these heads, from 0, of a module; if there are none, the first one with output weights of 0."""
    projections, H, K = attached.projections, attached.spec.heads, attached.spec.d_head
    module, naming = projections.module, projections.naming
    empty, kept = not kept, kept or [0]
    if naming.fused == "heads":  # for each head its query, key and value
        keep_units(projections.inputs[0], units_of(kept, 3 * K))
    elif naming.fused == "blocks":  # one after the other, in one projection or in two
        for projection in projections.inputs:
            blocks = sizes(projection)[0] // (H * K)
            keep_units(projection, units_of([block * H + head for block in range(blocks) for head in kept], K))
    else:
        q, k, v = projections.inputs
        G = sizes(k)[0] // K
        key_heads = attached.key_heads or [head // (H // G) for head in range(H)]
        used = sorted({key_heads[head] for head in kept})
        keep_units(q, units_of(kept, K))
        for projection in (k, v):
            keep_units(projection, units_of(used, K))
        if hasattr(module, "num_key_value_groups"):
            numbers = [used.index(key_heads[head]) for head in kept]
            even = [head // max(1, len(kept) // len(used)) for head in range(len(kept))] == numbers
            attached.key_heads = None if even else numbers
            module.num_key_value_groups = len(kept) // len(used) if even else 1
            _set_count(module, "num_key_value_heads", G, len(used))
    keep_units(projections.output, units_of(kept, K), inputs=True)
    if empty:
        projections.output.weight.zero_()
    if naming.split_size:
        setattr(module, naming.split_size, len(kept) * K)
    _set_count(module, "num_heads", H, len(kept))
    attached.kept = kept if attached.kept is None else [attached.kept[head] for head in kept]
    attached.spec = replace(attached.spec, heads=len(kept))


def _set_count(module: nn.Module, name: str, before: int, after: int) -> None:
    if getattr(module, name, None) == before:
        setattr(module, name, after)
