"""Figures of the routers of a mixture of heads: load, importance, entropy, typical words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.groups import (
    KIND_LABELS,
    by_module,
    kinds_of,
    labels_of,
    place_name,
    runs_of_figure,
    title,
)
from headdiv.companion.report.plotting import (
    BLUE,
    MEDIUM,
    SMALL,
    add_colour_bar,
    add_title,
    new_figure,
)
from headdiv.plots import draw_map

EXPERTS = 3  # of a module whose words are drawn
COLUMNS = 3  # of modules, where all are of one kind
LINE = 40  # characters
MOST = 2.0  # even shares: the colours go at least this far, and down to its inverse


RouterResult = Mapping[str, Any]  # of a module, as in `headdiv.methods.routing.router_statistics`


def busiest(router: RouterResult) -> list[int]:
    """The experts from the one that is chosen most often, of equal ones the lower number first."""
    return np.argsort(-np.array(router["load"]), kind="stable").tolist()


def importance(router: RouterResult) -> np.ndarray:
    """Each expert's share of the sum of all gates, which is its weight in the output: (E,)."""
    gates = np.array(router["load"]) * np.array(router["gate"])
    return gates / max(gates.sum(), np.finfo(float).tiny)


def _sorted_shares(shares: np.ndarray) -> np.ndarray:
    """Experts' shares in units of the even share, the largest first: (E,)."""
    return np.sort(shares)[::-1] * len(shares)


# ---- load, importance, entropy


@figure_kind(
    "routers",
    caption=(
        "How evenly and how decisively the experts of every attention module are chosen, on the validation split. "
        "Left: each expert's share of the choices, sorted within its module; middle, sorted anew: of the gates; white "
        "is an even share, and colours are logarithmic; shares below the scale have its last colour. With k = E all "
        "loads are even and only the gates differ. Right: the mean entropy of the routing probabilities; the dashed "
        "line, log E, is a router without preferences."
    ),
)
def draw_routers(profile: str, figure: FigureEntry) -> Figure:
    """Load and importance of every expert against an even share, and entropy of every router; each first seed."""
    groups = runs_of_figure(profile, figure)
    routers = {variant: runs[0].heads["router"] for variant, runs in groups.items()}
    labels = labels_of(figure.experiment, routers)
    maps = {}  # by variant: two maps, (modules, E)
    for variant, modules in routers.items():
        loads = np.array([_sorted_shares(np.array(router["load"])) for router in modules.values()])
        importances = np.array([_sorted_shares(importance(router)) for router in modules.values()])
        maps[variant] = [loads, importances]
    rows = [len(modules) for modules in routers.values()]
    height = 0.21 * sum(rows) + 0.5 * len(rows) + 1.2
    fig, axes = new_figure(9.2, height, len(rows), 3, width_ratios=(3, 3, 2), height_ratios=rows)
    top = max(MOST, *(float(shares.max()) for pair in maps.values() for shares in pair))
    norm = LogNorm(1 / top, top, clip=True)
    for (*left, right), (variant, modules) in zip(axes, routers.items(), strict=True):
        for ax, shares in zip(left, maps[variant], strict=True):
            image = draw_map(ax, shares, norm)
            ax.set(xticks=[1, shares.shape[1]], yticks=[])
            ax.tick_params(labelsize=SMALL)
        places = range(1, len(modules) + 1)
        left[0].set_yticks(places, map(place_name, modules), fontsize=SMALL)
        left[0].set_title(labels[variant], loc="left", fontsize=MEDIUM, fontweight="bold")
        max_entropy = math.log(shares.shape[1])
        right.barh(places, [router["entropy"] for router in modules.values()], height=0.7, color=BLUE)
        right.axvline(max_entropy, color="0.2", lw=1.2, ls="--")
        right.set(ylim=(len(modules) + 0.5, 0.5), yticks=[], xlim=(0, 1.08 * max_entropy or 1.0))
        right.set_title(f"log E = {max_entropy:.2f}", loc="right", fontsize=SMALL)
        right.tick_params(labelsize=SMALL)
    names = ("experts, by their load", "experts, by their importance", "entropy of the router (nats)")
    for ax, name in zip(axes[-1], names, strict=True):
        ax.set_xlabel(name, fontsize=SMALL)
    label = "an expert's share of the choices, and of the gates, times E: 1 is an even share"
    bar = add_colour_bar(fig, image, axes[:, :2], label, location="bottom", shrink=0.5, aspect=40, pad=0.02)
    ticks = [1 / top, top**-0.5, 1.0, top**0.5, top]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=SMALL)
    add_title(fig, title("Routers", groups, first=True))
    return fig


# ---- words


@figure_kind(
    "words",
    caption=(
        "Which words the experts serve: each module's most often chosen experts, with their share of the choices, and "
        "the words that they serve most often compared with the average expert. In encoder-decoder attention it is the "
        "query's word. ␣ is the space before a word, ↵ the end of a line."
    ),
)
def draw_words(profile: str, figure: FigureEntry) -> Figure:
    """The most typical words of the busiest experts of every module: first seed of the first variant that is stored."""
    variant, runs = next(iter(runs_of_figure(profile, figure).items()))
    modules = by_module(runs[0].heads["router"])
    kinds, layers = kinds_of(modules), sorted({layer for _, layer in modules})
    cells = [(kind, layer) for layer in layers for kind in kinds]
    columns = len(kinds) if len(kinds) > 1 else min(COLUMNS, len(layers))
    rows = math.ceil(len(cells) / columns)
    fig, axes = new_figure(max(3.0 * columns, 7.5), 1.2 * rows + 0.4, rows, columns)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, (kind, layer) in zip(axes.flat, cells, strict=False):
        if router := modules.get((kind, layer)):
            ax.set_title(f"{KIND_LABELS[kind]}, layer {layer}", loc="left", fontsize=MEDIUM, fontweight="bold")
            lines = []
            for expert in busiest(router)[:EXPERTS]:
                words = [word["word"] for word in router["words"][expert]]
                while len(" · ".join(words)) > LINE:
                    words.pop()
                lines.append(f"expert {expert + 1} ({100 * router['load'][expert]:.1f} %)")
                lines.append(f"   {' · '.join(words) or 'no word more than others do'}")
            ax.text(0, 1, "\n".join(lines), va="top", fontsize=SMALL, linespacing=1.3)
    label = task_of(figure.experiment).label(variant)
    add_title(fig, title(f"Words of the busiest experts · {label}", {variant: runs}, first=True))
    return fig
