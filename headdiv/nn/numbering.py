"""Layers of attention modules whose number was left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headdiv.nn.attention import HeadModule


def numbered(modules: list[HeadModule]) -> list[HeadModule]:
    """The modules; among those that share a place, the ones whose layer was left out take the next free numbers.

    Copies of one layer, as torch.nn.TransformerEncoder makes them, thus become layers 1, 2, … in the model's order.
    """
    taken = Counter((each.spec.kind, each.spec.layer) for each in modules)
    if len(taken) == len(modules) or all(each.numbered for each in modules):
        return modules
    used = {(each.spec.kind, each.spec.layer) for each in modules if each.numbered}
    for each in modules:
        if each.numbered:
            continue
        old = each.spec
        layer = next(n for n in range(len(modules)) if (old.kind, n) not in used)
        used.add((old.kind, layer))
        new = replace(old, layer=layer)
        for part in each.modules():  # output stages carry it too
            if getattr(part, "spec", None) == old:
                part.spec = new
    return modules
