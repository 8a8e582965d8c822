"""What the routers of a mixture of heads learnt: how evenly they choose, how surely, and which words go where."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from headdiv.core.errors import DataError
from headdiv.report.groups import KINDS, Groups, by_place, chosen, kinds_of, labels_of, title
from headdiv.report.heads import BLUE, SMALL

SHOWN = 3  # experts of a module whose words are drawn
COLUMNS = 3  # of modules, where all are of one kind
LINE = 40  # characters
LEAST, MOST = 0.0, 2.0  # that the colours reach at least, in even shares


def router_words(profile: str, experiment: str, variant: str, seed: int | None = None) -> pd.DataFrame:
    """What every expert of a stored run serves, module by module, the busiest expert first.

    Args:
        profile: name or path of a profile.
        experiment: ``<paper>/<task>``.
        variant: one whose heads are chosen by routers.
        seed: of the run; the profile's first where left out.

    Returns:
        One line an expert: module ("cross 2"), expert (from 1), load (share of the module's choices), gate (mean where
        it is chosen), and words: its most typical ones, each with how many times more often than the average expert
        it serves them.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: the run is not stored, or has no routers.
    """
    runs = chosen(profile, experiment, "router_words", [variant], "router")[variant]
    found = [run for run in runs if seed in (None, run["seed"])]
    if not found:
        seeds = ", ".join(str(run["seed"]) for run in runs)
        raise DataError(f"router_words: seed {seed} of {variant} is not stored; there are: {seeds}")
    return pd.DataFrame(
        {
            "module": place,
            "expert": expert + 1,
            "load": told["load"][expert],
            "gate": told["gate"][expert],
            "words": ", ".join(f"{word['word']} ×{word['ratio']:.1f}" for word in told["words"][expert]),
        }
        for place, told in found[0]["heads"]["router"].items()
        for expert in busiest(told)
    )


def busiest(router: dict[str, Any]) -> list[int]:
    """The experts of a module from the one that is chosen most often, of equal ones the lower number first."""
    return np.argsort(-np.array(router["load"]), kind="stable").tolist()


def importance(router: dict[str, Any]) -> np.ndarray:
    """Each expert's share of the sum of all gates, (E,): its say in the output."""
    gates = np.array(router["load"]) * np.array(router["gate"])
    return gates / max(gates.sum(), np.finfo(float).tiny)


# ---- how evenly, how surely


def draw_routers(profile: str, experiment: str, variants: Sequence[str], figure: str) -> Figure:
    """Load and importance of every expert against an even share, and entropy of every router; each first seed.

    Raises:
        DataError: none of the variants is stored, or one of results without statistics of the routers.
    """
    groups = chosen(profile, experiment, figure, variants, "router")
    routers = {variant: group[0]["heads"]["router"] for variant, group in groups.items()}
    labels = labels_of(experiment, routers)
    rows = [len(modules) for modules in routers.values()]
    size = (10.5, 0.21 * sum(rows) + 0.5 * len(rows) + 1.2)
    drawn = Figure(figsize=size, layout="constrained")
    axes = drawn.subplots(len(rows), 3, squeeze=False, width_ratios=(3, 3, 2), height_ratios=rows)
    shares = {variant: [_shares(modules, measure) for measure in (_load, importance)]
              for variant, modules in routers.items()}  # fmt: skip
    top = max(MOST, *(float(matrix.max()) for pair in shares.values() for matrix in pair))
    norm = TwoSlopeNorm(1.0, LEAST, top)
    for row, (variant, modules) in zip(axes, routers.items(), strict=True):
        for ax, matrix in zip(row, shares[variant], strict=False):
            sns.heatmap(matrix, ax=ax, norm=norm, cmap="vlag", cbar=False, linewidths=0.3, yticklabels=False)
            ax.set_xticks([0.5, matrix.shape[1] - 0.5], [1, matrix.shape[1]], rotation=0)
            ax.tick_params(length=0, labelsize=SMALL)
        row[0].set_yticks(np.arange(len(modules)) + 0.5, list(modules), rotation=0, fontsize=SMALL)
        row[0].set_title(labels[variant], loc="left", fontsize=9, fontweight="bold")
        _entropies(row[2], modules)
    below = ("experts, by their load", "experts, by their importance", "entropy of the router (nats)")
    for ax, name in zip(axes[-1], below, strict=True):
        ax.set_xlabel(name, fontsize=SMALL)
    bar = drawn.colorbar(axes[0][0].collections[0], ax=axes[:, :2], location="bottom", shrink=0.5, aspect=40, pad=0.02)
    ticks = [LEAST, 0.5, 1.0, (1 + top) / 2, top]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("an expert's share of the choices, and of the gates, times E: 1 is an even share", fontsize=SMALL)
    bar.outline.set_visible(False)
    drawn.suptitle(title("Routers", groups, first=True), fontsize=10)
    return drawn


def _load(router: dict[str, Any]) -> np.ndarray:
    return np.array(router["load"])


def _shares(modules: dict[str, Any], measure: Any) -> np.ndarray:
    """Of each module the experts' shares in units of the even one, the largest first: (modules, E)."""
    return np.array([np.sort(measure(router))[::-1] * len(router["load"]) for router in modules.values()])


def _entropies(ax: Axes, modules: dict[str, Any]) -> None:
    """A bar for every module, in the rows of the heat maps, and a line at the largest entropy that there can be."""
    y = np.arange(len(modules)) + 0.5
    ax.barh(y, [router["entropy"] for router in modules.values()], height=0.7, color=BLUE)
    most = math.log(len(next(iter(modules.values()))["load"]))
    ax.axvline(most, color="0.2", lw=1.2, ls="--")
    ax.set(ylim=(len(modules), 0), yticks=[], xlim=(0, 1.08 * most or 1.0))
    ax.set_title(f"log E = {most:.2f}", loc="right", fontsize=SMALL)
    ax.tick_params(labelsize=SMALL)


# ---- which words


def draw_words(profile: str, experiment: str, variants: Sequence[str], figure: str) -> Figure:
    """The most typical words of the busiest experts of every module: first seed of the first variant that is stored.

    Raises:
        DataError: none of the variants is stored, or one of results without statistics of the routers.
    """
    variant, groups = _first(chosen(profile, experiment, figure, variants, "router"))
    modules = by_place(groups[variant][0]["heads"]["router"])
    kinds, layers = kinds_of(modules), sorted({layer for _, layer in modules})
    cells = [(kind, layer) for layer in layers for kind in kinds]
    columns = len(kinds) if len(kinds) > 1 else min(COLUMNS, len(layers))
    rows = math.ceil(len(cells) / columns)
    drawn = Figure(figsize=(max(3.0 * columns, 7.5), 1.2 * rows + 0.4), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, (kind, layer) in zip(axes.flat, cells, strict=False):
        if (kind, layer) in modules:
            ax.set_title(f"{KINDS[kind]}, layer {layer}", loc="left", fontsize=9, fontweight="bold")
            said = _said(modules[kind, layer])
            ax.text(0, 1, said, va="top", fontsize=SMALL, linespacing=1.3, parse_math=False)
    label = labels_of(experiment, [variant])[variant]
    drawn.suptitle(title(f"Words of the busiest experts · {label}", groups, first=True), fontsize=10)
    return drawn


def _first(groups: Groups) -> tuple[str, Groups]:
    variant = next(iter(groups))
    return variant, {variant: groups[variant]}


def _said(router: dict[str, Any]) -> str:
    """Two lines for each of the busiest experts."""
    lines = []
    for expert in busiest(router)[:SHOWN]:
        words = _fitting(word["word"] for word in router["words"][expert])
        lines.append(f"expert {expert + 1} ({100 * router['load'][expert]:.1f} %)\n   {words}")
    return "\n".join(lines)


def _fitting(words: Iterable[str]) -> str:
    """As many as stand on one line."""
    said = ""
    for word in words:
        longer = f"{said} · {word}" if said else word
        if len(longer) > LINE:
            break
        said = longer
    return said or "no word more than others do"
