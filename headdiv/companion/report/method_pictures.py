"""What the notebook of a run shows of its method: pictures of the artifacts and of the swaps that the results keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Picture:
    """Numbers to be drawn: a panel for each attention module, or for each kind of attention.

    Attributes:
        title: what is shown.
        kind: "map", panels are matrices; "lines", a panel is one line; "histogram", a panel is values to be counted.
        panels: by the panels' names.
        x: what the horizontal axis counts.
        y: the same of the vertical one; of a map, of its rows.
        limit: maps have colours from -limit to limit.
    """

    title: str
    kind: Literal["map", "lines", "histogram"]
    panels: dict[str, Any]
    x: str
    y: str
    limit: float = 1.0


def pictures_of(heads: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """The pictures of a run, by what its results hold.

    Args:
        heads: ``heads`` of its metrics: measures and artifacts by name.
        history: what its method did after epochs 1, 2, …; of a combination, by part.
    """
    drawn = {"pca_weights": _pca_layers, "alphas": _alphas, "activations": _activations, "router": _routers}
    pictures = [picture for name, draw in drawn.items() if name in heads for picture in draw(heads[name])]
    swaps = [(epoch, swap) for epoch, record in enumerate(history, start=1) for swap in _swap_records(record)]
    return pictures + ([_swapped(swaps, heads["measures"], len(history))] if swaps else [])


def _pca_layers(weights: Mapping[str, Any]) -> list[Picture]:
    """Every PCA layer's cosines of columns, as in DEACON's Figure 6, and its singular values."""
    cosines = {layer["place"]: np.array(layer["cosines"]) for layer in weights.values()}
    lengths = {layer["place"]: np.array(layer["column_lengths"]) for layer in weights.values()}
    grams = {place: cosines[place] * np.outer(length, length) for place, length in lengths.items()}
    spectra = {place: np.sqrt(np.linalg.eigvalsh(gram).clip(0)[::-1]) for place, gram in grams.items()}
    return [
        Picture("Cosines of the columns of each PCA layer's weights", "map", cosines, "component", "component"),
        Picture("Spectra of the PCA layers' weights", "lines", spectra, "component", "singular value"),
    ]


def _alphas(layers: Mapping[str, Any]) -> list[Picture]:
    """Every Alphas matrix, as its difference from the identity that it starts from."""
    changes = {place: np.array(layer["alphas"]) - np.eye(len(layer["alphas"])) for place, layer in layers.items()}
    limit = max(float(np.abs(change).max()) for change in changes.values()) or 1.0  # white is zero, on all maps too
    return [Picture("Alphas minus the identity", "map", changes, "head", "mixture", limit)]


def _activations(found: Mapping[str, Any]) -> list[Picture]:
    """How often the units of each inhibited position were active: homeostasis brings the bars closer together."""
    shares = {place: [share for group in one["shares"] for share in group] for place, one in found.items()}
    return [Picture("How often units are active", "histogram", shares, "share of rows", "units")]


def _routers(routers: Mapping[str, Any]) -> list[Picture]:
    """How often every expert is chosen, against an even share; the words of the busiest are in the metrics."""
    loads = {place: np.array(router["load"]) for place, router in routers.items()}
    even = 1 / len(next(iter(loads.values())))
    excess = {"each row a module: " + ", ".join(loads): np.stack(list(loads.values())) - even}
    return [Picture("Experts' shares of the choices, minus an even share", "map", excess, "expert", "module", even)]


def _swap_records(record: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return [one for one in (record, *record.values()) if isinstance(one, Mapping) and one.get("swaps")]


def _swapped(swaps: Iterable[tuple[int, Mapping[str, Any]]], measures: Mapping[str, Any], epochs: int) -> Picture:
    """Which heads were swapped before which epoch: 1 where they go, -1 where they return."""
    kinds = [place.partition(" ")[0] for place in measures]
    number = len(next(iter(measures.values()))["cosine"])
    panels = {kind: np.zeros((kinds.count(kind) * number, epochs + 1)) for kind in dict.fromkeys(kinds)}
    for epoch, record in swaps:  # what was done after epoch 1 belongs to epoch 2
        for pair in record["swaps"]:
            for layer, head in (pair["one"], pair["other"]):
                panels[pair["kind"]][(layer - 1) * number + head - 1, epoch] = -1 if record["back"] else 1
    return Picture("Heads swapped before each epoch", "map", panels, "epoch", "head, layer by layer")
