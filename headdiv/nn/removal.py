"""Heads of an attached model taken out for good: smaller projections, the same output as with the heads masked.

Rows of the query, key and value projections and columns of the output projection go. Heads of keys and values that are
shared go with the last head that uses them; where groups become uneven, the module is given each head's keys by number.
Parameters are replaced: make the optimiser afterwards.

Letters: H heads, G heads of keys and values, K head width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headdiv.core.errors import DataError
from headdiv.nn.attached import AttachedHeads, attachment_of, bias, sizes

CUTTABLE = ("Linear", "Conv1D")  # class names


def remove_heads(model: nn.Module, gone: Mapping[str, Sequence[int]]) -> None:
    """Remove heads of an attached model.

    The architectures' code needs a head in every module: of a module that loses all of them the first one stays, with
    output weights of 0. ``config.headdiv`` says what was removed, for `headdiv.pretrained.load`.

    Args:
        model: attached.
        gone: by attention module, numbers from 1 as they are now; those of the heads that are left close up.

    Raises:
        DataError: a projection is no plain linear layer (quantised, adapted, or a method's output stage).
    """
    attachment = attachment_of(model)
    heads = {each.spec.place: each for each in attachment.heads}
    gone = {place: numbers for place, numbers in gone.items() if numbers}
    for place in gone:
        for projection in (*heads[place].projections.inputs, heads[place].projections.output):
            if type(projection).__name__ not in CUTTABLE:
                raise DataError(f"{place}: heads cannot be removed from a {type(projection).__name__}; expected Linear")
    for place, numbers in gone.items():
        each = heads[place]
        left = [head for head in range(each.spec.heads) if head + 1 not in numbers]
        if not left:
            left = [0]
            with torch.no_grad():
                each.projections.output.weight.zero_()
        _cut_module(each, left)
    config = attachment.config
    config.headdiv = {**(getattr(config, "headdiv", None) or {}), "removed": removed_heads(model)}


def removed_heads(model: nn.Module) -> dict[str, list[int]]:
    """By attention module, the numbers (from 1, of all heads that there were) of those that were removed."""
    return {
        each.spec.place: [head + 1 for head in range(each.original) if head not in each.kept]
        for each in attachment_of(model).heads
        if each.kept is not None
    }


def _cut_module(each: AttachedHeads, left: list[int]) -> None:
    projections, H, K = each.projections, each.spec.heads, each.spec.d_head
    module, naming = projections.module, projections.naming
    key_heads = each.key_heads
    if naming.fused == "heads":  # of each head its query, key and value
        _cut(projections.inputs[0], _rows(left, 3 * K))
    elif naming.fused == "blocks":  # one after the other, in one projection or in two
        for projection in projections.inputs:
            blocks = sizes(projection)[0] // (H * K)
            _cut(projection, _rows([block * H + head for block in range(blocks) for head in left], K))
    else:
        q, k, v = projections.inputs
        G = sizes(k)[0] // K
        own = key_heads or [head // (H // G) for head in range(H)]
        used = sorted({own[head] for head in left})
        _cut(q, _rows(left, K))
        for projection in (k, v):
            _cut(projection, _rows(used, K))
        if hasattr(module, "num_key_value_groups"):
            numbers = [used.index(own[head]) for head in left]
            even = [head // max(1, len(left) // len(used)) for head in range(len(left))] == numbers
            each.key_heads = None if even else numbers
            module.num_key_value_groups = len(left) // len(used) if even else 1
    _cut(projections.output, _rows(left, K), inputs=True)
    if naming.split_size:
        setattr(module, naming.split_size, len(left) * K)
    each.kept = left if each.kept is None else [each.kept[head] for head in left]
    each.spec = replace(each.spec, heads=len(left))


def _rows(heads: Sequence[int], width: int) -> Tensor:
    return (torch.tensor(heads)[:, None] * width + torch.arange(width)).flatten()


def _cut(projection: nn.Module, index: Tensor, inputs: bool = False) -> None:
    """Keep these outputs of a linear layer, or these inputs."""
    transposed = hasattr(projection, "nf")
    index = index.to(projection.weight.device)
    kept = projection.weight.detach().index_select(int(inputs != transposed), index)
    projection.weight = nn.Parameter(kept, projection.weight.requires_grad)
    if not inputs and (b := bias(projection)) is not None:
        projection.bias = nn.Parameter(b.detach()[index], b.requires_grad)
    names = ("nf", "nx") if transposed else ("out_features", "in_features")
    setattr(projection, names[inputs], len(index))
