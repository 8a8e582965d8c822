"""Permanent removal of heads from an attached model: smaller projections, the same output as with the heads masked.

Rows of the query, key and value projections and columns of the output projection are removed. Shared heads of keys and
values go with the last head that uses them; where groups become uneven, the module gets each head's keys by number.
Parameters are replaced: make the optimiser afterwards.

Letters: H heads, G heads of keys and values, K head width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headdiv.core.errors import DataError
from headdiv.core.precision import HALF, at_least_float32
from headdiv.core.tracing import uncompiled
from headdiv.nn.projections import must_be_merged
from headdiv.pretrained.attached import AttachedHeads, attachment_of
from headdiv.pretrained.projections import is_plain, kind_of, runs_by_table, sizes
from headdiv.pretrained.recorded import must_be_recorded, record_removed

TOLERANCE = 10  # square roots of the smallest difference from 1


def remove_heads(model: nn.Module, gone: Mapping[str, Sequence[int]]) -> None:
    """Remove heads of an attached model: all of them or, with an error, none.

    The architectures' code needs a head in every module: a module that loses all of them keeps the first one, with
    output weights of 0. ``config.headdiv`` records what was removed, for `headdiv.pretrained.load`.

    Args:
        model: attached.
        gone: by attention module, current numbers from 1; the remaining heads are renumbered.

    Raises:
        DataError: a projection is not a plain linear layer (quantised, adapted, or a method's output stage).
    """
    _exchange(_plan(model, gone))
    record_removed(model)


@torch.inference_mode(False)  # parameters made within it could not be trained
@torch.no_grad()
def remove_if_right(model: nn.Module, gone: Mapping[str, Sequence[int]], given: Mapping[str, Any] | None) -> None:
    """`remove_heads` if the model's output is then that of the masked model; otherwise the model stays as it was.

    Args:
        model: attached, in evaluation mode.
        gone: see `remove_heads`.
        given: arguments of a forward pass; not needed where the model reads tokens alone.

    Raises:
        DataError: the output differs, the architecture's code does not run with fewer heads, or there are no arguments
            to try it with.
    """
    attachment = attachment_of(model)
    must_be_recorded(model)
    if "flash" not in str(attachment.config._attn_implementation) and any(_halves(model)):
        wide = {name: at_least_float32(x) if isinstance(x, Tensor) else x for name, x in (given or {}).items()}
        with _in_float32(model):
            return remove_if_right(model, gone, wide or None)
    with uncompiled(), contextlib.ExitStack() as stack:
        for each in attachment.heads:
            if numbers := gone.get(each.spec.name):
                mask = torch.ones(each.spec.heads)
                mask[[number - 1 for number in numbers]] = 0
                stack.callback(each.mask_heads(mask).remove)
        tried, masked = _trial(model, given)
    changes, problem = _plan(model, gone), "was interrupted"
    _exchange(changes)
    try:
        problem = _difference(masked, _outputs(model, tried))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        problem = str(error)
    finally:
        if problem:
            _exchange(changes)
    if problem:
        raise DataError(
            f"{type(model).__name__}: its code does not work with fewer heads ({problem}); expected an architecture "
            "that takes their number from the projections, or masked heads instead"
        )
    record_removed(model)


@dataclass
class Change:
    """A value that an attribute is to have, or had before."""

    owner: Any
    name: str
    value: Any


def _exchange(changes: list[Change]) -> None:
    """Make the changes; a second time, take them back."""
    for each in changes:
        before = getattr(each.owner, each.name)
        setattr(each.owner, each.name, each.value)
        each.value = before


def _plan(model: nn.Module, gone: Mapping[str, Sequence[int]]) -> list[Change]:
    """What changes where heads are removed; raises as `remove_heads`."""
    changes = []
    for each in attachment_of(model).heads:
        if numbers := gone.get(each.spec.name):
            for projection in (*each.projections.inputs, each.projections.output):
                if not is_plain(projection):
                    raise DataError(
                        f"{each.spec.name}: heads cannot be removed from a {kind_of(projection)}; expected a plain "
                        "Linear of torch.nn"
                    )
                must_be_merged(f"{each.spec.name}: its projection", projection)
            changes += _cut_module(each, [head for head in range(each.spec.heads) if head + 1 not in numbers])
    return changes


def _halves(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.dtype]]:
    """Parameters and buffers in half precision: the module's dictionary, the name, and the type."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, x in tensors.items():
                if x is not None and x.dtype in HALF:
                    yield tensors, name, x.dtype


@contextlib.contextmanager
def _in_float32(model: nn.Module) -> Iterator[None]:
    """While open, half precision becomes float32, since rounding would hide errors. Then it is as it was.

    This takes the memory of two such models.
    """
    found = list(_halves(model))
    try:
        for tensors, name, _ in found:
            tensors[name].data = tensors[name].data.float()
        yield
    finally:
        for tensors, name, kind in found:
            tensors[name].data = tensors[name].data.to(kind)


def _trial(model: nn.Module, given: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], list[Tensor]]:
    """Arguments of a forward pass, and its outputs."""
    if given is not None:
        return given, _outputs(model, given)
    config = attachment_of(model).config
    ids = torch.arange(3, 8, device=next(model.parameters()).device)[None]
    made = {"input_ids": ids} | ({"decoder_input_ids": ids} if config.is_encoder_decoder else {})
    try:
        return made, _outputs(model, made)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"{type(model).__name__}: does not run on made-up tokens, to try it with fewer heads; expected a batch: "
            "remove(gone, batch)"
        ) from error


def _outputs(model: nn.Module, given: Mapping[str, Any]) -> list[Tensor]:
    """The outputs of a forward pass; what the model draws is the same in each."""
    with torch.random.fork_rng({parameter.device for parameter in model.parameters() if parameter.is_cuda}):
        torch.manual_seed(0)
        found = model(**given)
    values = found.values() if isinstance(found, Mapping) else found
    return [x for x in values if isinstance(x, Tensor) and x.is_floating_point()]


def _difference(expected: list[Tensor], found: list[Tensor]) -> str | None:
    for one, other in zip(expected, found, strict=True):
        most = float((one - other).abs().masked_fill(one == other, 0.0).max())  # both may be infinite
        limit = TOLERANCE * torch.finfo(one.dtype).eps ** 0.5 * max(float(one.abs().max()), 1e-3)
        if not most <= limit:
            return f"its output is another than that of the masked model, by {most:.2g}"
    return None


def _cut_module(each: AttachedHeads, left: list[int]) -> Iterator[Change]:
    """Leave these heads, from 0, of a module; of none, the first one without weights."""
    projections, H, K = each.projections, each.spec.heads, each.spec.d_head
    module, naming = projections.module, projections.naming
    empty, left = not left, left or [0]
    if naming.fused == "heads":  # for each head its query, key and value
        yield from _cut(projections.inputs[0], _rows(left, 3 * K))
    elif naming.fused == "blocks":  # one after the other, in one projection or in two
        for projection in projections.inputs:
            blocks = sizes(projection)[0] // (H * K)
            yield from _cut(projection, _rows([block * H + head for block in range(blocks) for head in left], K))
    else:
        q, k, v = projections.inputs
        G = sizes(k)[0] // K
        own = each.key_heads or [head // (H // G) for head in range(H)]
        used = sorted({own[head] for head in left})
        yield from _cut(q, _rows(left, K))
        for projection in (k, v):
            yield from _cut(projection, _rows(used, K))
        if hasattr(module, "num_key_value_groups"):
            numbers = [used.index(own[head]) for head in left]
            even = [head // max(1, len(left) // len(used)) for head in range(len(left))] == numbers
            yield Change(each, "key_heads", None if even else numbers)
            yield Change(module, "num_key_value_groups", len(left) // len(used) if even else 1)
            yield from _count(module, "num_key_value_heads", G, len(used))
    yield from _cut(projections.output, _rows(left, K), inputs=True, empty=empty)
    if naming.split_size:
        yield Change(module, naming.split_size, len(left) * K)
    yield from _count(module, "num_heads", H, len(left))
    if not runs_by_table(module):  # GPT-J
        yield from _count(module, "num_attention_heads", H, len(left))
    yield Change(each, "kept", left if each.kept is None else [each.kept[head] for head in left])
    yield Change(each, "spec", replace(each.spec, heads=len(left)))


def _count(module: nn.Module, name: str, before: int, after: int) -> Iterator[Change]:
    if getattr(module, name, None) == before:
        yield Change(module, name, after)


def _rows(heads: Sequence[int], width: int) -> Tensor:
    return (torch.tensor(heads)[:, None] * width + torch.arange(width)).flatten()


def _cut(projection: nn.Module, index: Tensor, inputs: bool = False, empty: bool = False) -> Iterator[Change]:
    """Keep these outputs of a linear layer, or these inputs; ``empty``: with weights of 0."""
    transposed = hasattr(projection, "nf")
    index = index.to(projection.weight.device)
    kept = projection.weight.detach().index_select(int(inputs != transposed), index)
    kept = torch.zeros_like(kept) if empty else kept
    yield Change(projection, "weight", nn.Parameter(kept, projection.weight.requires_grad))
    if not inputs and (b := projection.bias) is not None:
        yield Change(projection, "bias", nn.Parameter(b.detach()[index], b.requires_grad))
    names = ("nf", "nx") if transposed else ("out_features", "in_features")
    yield Change(projection, names[inputs], len(index))
