"""Drawings of what heads do: mixtures, confidence, distances from each other, changes of place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headdiv.core.errors import DataError
from headdiv.experiments.papers import task_of
from headdiv.experiments.results import Metrics
from headdiv.report.formats import as_printed
from headdiv.report.groups import KINDS, Groups, by_place, chosen, kinds_of, labels_of, title

SMALL = 8  # points
BLUE, ORANGE = sns.color_palette("colorblind").as_hex()[:2]
MARKS = "osD^vP"


def _layers(modules: Iterable[tuple[str, int]], kind: str) -> list[int]:
    return sorted(layer for k, layer in modules if k == kind)


def _colours(experiment: str, variants: Iterable[str]) -> dict[str, Any]:
    """A variant has one colour in all figures of a task: that of its row in the paper's file."""
    rows, palette = list(task_of(experiment).variants), sns.color_palette("colorblind")
    return {variant: palette[rows.index(variant) % len(palette)] for variant in variants}


def _whole_numbers(ax: Axes, layers: Sequence[int]) -> None:
    ax.set(xticks=layers, xlabel="layer", xlim=(layers[0] - 0.5, layers[-1] + 0.5))


def _pairs(matrix: Any, where: str) -> np.ndarray:
    """A matrix over the heads of a module, of which there must be two at least: (H, H)."""
    values = np.array(matrix)
    if len(values) < 2:
        raise DataError(f"{where} has a single head; distances are between two or more")
    return values


# ---- Alphas


def skew_share(matrix: np.ndarray) -> float:
    """How much of what is off the diagonal of (H, H) is skew-symmetric, as a share of its squares.

    1 where a_ij = −a_ji, 0 where a_ij = a_ji, one half on average for independent entries; NaN for a diagonal matrix.
    """
    off = matrix - np.diag(np.diag(matrix))
    total = float((off**2).sum())
    return float((((off - off.T) / 2) ** 2).sum()) / total if total else float("nan")


def draw_alphas(profile: str, experiment: str, variant: str, figure: str) -> Figure:
    """Every Alphas matrix of a variant's first seed, as its difference from the identity that it started from.

    Raises:
        DataError: no stored run of the variant, or one of results without Alphas.
    """
    groups = chosen(profile, experiment, figure, [variant], "alphas")
    modules = by_place(groups[variant][0]["heads"]["alphas"])
    changes = {at: np.array(told["alphas"]) - np.eye(len(told["alphas"])) for at, told in modules.items()}
    kinds, columns = kinds_of(modules), max(layer for _, layer in modules)
    size = (1.55 * columns + 1.5, 1.95 * len(kinds) + 0.7)
    drawn = Figure(figsize=(max(size[0], 6.5), size[1]), layout="constrained")
    axes = drawn.subplots(len(kinds), columns, squeeze=False)
    limit = max(float(np.abs(change).max()) for change in changes.values()) or 1.0
    for row, kind in zip(axes, kinds, strict=True):
        for layer, ax in enumerate(row, start=1):
            if (kind, layer) not in modules:
                ax.set_axis_off()
                continue
            image = ax.imshow(changes[kind, layer], cmap="vlag", vmin=-limit, vmax=limit)
            ends = [0, len(changes[kind, layer]) - 1]
            ax.set(xticks=ends, yticks=ends, xticklabels=[end + 1 for end in ends], yticklabels=[e + 1 for e in ends])
            ax.tick_params(length=0, labelsize=SMALL)
            ax.spines[:].set_visible(False)
            skew = as_printed(skew_share(changes[kind, layer]), 2)
            norm = modules[kind, layer]["nuclear_norm"]
            ax.set_title(f"layer {layer}: ‖A‖∗ = {norm:.2f}\nskew share {skew}", fontsize=SMALL)
        row[0].set_ylabel(f"{KINDS[kind].replace(' ', chr(10), 1)}\nnew head", fontsize=SMALL)
    for ax in axes[-1]:
        ax.set_xlabel("head", fontsize=SMALL)
    bar = drawn.colorbar(image, ax=axes, shrink=0.6 if len(kinds) > 1 else 1.0, pad=0.01)
    bar.set_label("A − identity", fontsize=SMALL)
    bar.outline.set_visible(False)
    label = labels_of(experiment, [variant])[variant]
    drawn.suptitle(title(f"{figure} · {label}", groups, first=True), fontsize=10)
    return drawn


# ---- confidence


def ranked(runs: list[Metrics], key: str) -> dict[tuple[str, int], np.ndarray]:
    """A measure of each head of every module, in ascending order: (seeds, H).

    A head of one seed has no counterpart in another; the least of one and the least of the other have.
    """
    told = [by_place(run["heads"]["measures"]) for run in runs]
    return {at: np.sort(np.array([modules[at][key] for modules in told]), axis=1) for at in told[0]}


def draw_confidence(profile: str, experiment: str, variants: Sequence[str], figure: str) -> Figure:
    """Confidence of every head by kind and layer, and how unequal the heads of a layer are.

    Means over seeds: of heads with the same rank in their layer, and of the standard deviations over its heads.

    Raises:
        DataError: none of the variants is stored, or results without measures of the heads.
    """
    groups = chosen(profile, experiment, figure, variants, "measures")
    heads = {variant: ranked(runs, "confidence") for variant, runs in groups.items()}
    labels, colours = labels_of(experiment, groups), _colours(experiment, groups)
    there = next(iter(heads.values()))
    kinds = kinds_of(there)
    drawn = Figure(figsize=(3.6 * len(kinds) + 0.4, 5.0), layout="constrained")
    axes = drawn.subplots(2, len(kinds), sharey="row", squeeze=False, height_ratios=(3, 2))
    step = 0.8 / len(groups)
    for (upper, lower), kind in zip(axes.T, kinds, strict=True):
        layers = _layers(there, kind)
        for number, (variant, modules) in enumerate(heads.items()):
            look = {"color": colours[variant], "marker": MARKS[number % len(MARKS)]}
            x = np.array(layers) + step * (number - (len(groups) - 1) / 2)
            for at, layer in zip(x, layers, strict=True):
                each = modules[kind, layer].mean(axis=0)  # (H,)
                upper.plot([at] * len(each), each, ls="", ms=3.5, alpha=0.75, mew=0, **look)
                upper.hlines(each.mean(), at - 0.45 * step, at + 0.45 * step, color=colours[variant], lw=1.5)
            spread = [modules[kind, layer].std(axis=1).mean() for layer in layers]
            lower.plot(layers, spread, ms=4.5, lw=1.2, label=labels[variant], **look)
        upper.set_title(KINDS[kind])
        for ax in (upper, lower):
            _whole_numbers(ax, layers)
            ax.grid(axis="y", color="0.92")
            ax.set_axisbelow(True)
    axes[0][0].set_ylabel("confidence of each head\n(0 to 1; bar: mean of the layer)")
    axes[1][0].set_ylabel("standard deviation\nover a layer's heads")
    axes[1][0].margins(y=0.1)
    axes[1][0].set_ylim(bottom=0)
    handles = axes[1][0].get_legend_handles_labels()[0]
    drawn.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    drawn.suptitle(title(f"{figure} · Confidence", groups), fontsize=10)
    return drawn


# ---- distances between heads


def discrepancy(measures: dict[str, Any], distance: str, where: str) -> float:
    """Total discrepancy of a module's heads: the L₁,₁ norm of the matrix of their distances.

    Args:
        measures: of one module, as the results keep them.
        distance: "cosine": 1 − cosine, from 0 (the same direction) to 2; "l2": Euclidean.
        where: what errors call the module.

    Raises:
        DataError: there is a single head.
    """
    pairs = _pairs(measures[distance], where)
    return float(np.abs(1 - pairs if distance == "cosine" else pairs).sum())


def changes(groups: Groups, base: str, distance: str) -> dict[str, dict[tuple[str, int], float]]:
    """By variant and module, in percent, how far its total discrepancy is above (+) or below (−) that of ``base``.

    Of means over seeds.
    """
    totals = {}
    for variant, runs in groups.items():
        told = [by_place(run["heads"]["measures"]) for run in runs]
        totals[variant] = {
            at: np.mean([discrepancy(modules[at], distance, f"{variant}, {at[0]} {at[1]}") for modules in told])
            for at in told[0]
        }
    return {
        variant: {at: float(100 * (total / totals[base][at] - 1)) for at, total in modules.items()}
        for variant, modules in totals.items()
        if variant != base
    }


def draw_changes(profile: str, experiment: str, variants: Sequence[str], distance: str, figure: str) -> Figure:
    """Change of the heads' total discrepancy against the baseline, by kind and layer.

    Raises:
        DataError: the baseline or all of the variants are not stored, or results without measures of the heads.
    """
    groups = chosen(profile, experiment, figure, ["baseline", *variants], "measures")
    if "baseline" not in groups or len(groups) == 1:
        names = ", ".join(variants)
        raise DataError(f"{figure} needs baseline and one of {names} among the stored runs of profile {profile}")
    change = changes(groups, "baseline", distance)
    labels, colours = labels_of(experiment, groups), _colours(experiment, groups)
    there = next(iter(change.values()))
    kinds = kinds_of(there)
    drawn = Figure(figsize=(3.4 * len(kinds) + 0.4, 3.4), layout="constrained")
    axes = drawn.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    width = 0.8 / len(change)
    for ax, kind in zip(axes, kinds, strict=True):
        layers = _layers(there, kind)
        for number, (variant, modules) in enumerate(change.items()):
            x = np.array(layers) + width * (number - (len(change) - 1) / 2)
            heights = [modules[kind, layer] for layer in layers]
            ax.bar(x, heights, 0.92 * width, color=colours[variant], label=labels[variant])
        ax.axhline(0, color="0.2", lw=1)
        ax.set_title(KINDS[kind])
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
        _whole_numbers(ax, layers)
    what = {"cosine": "cosine difference", "l2": "Euclidean distance"}[distance]
    axes[0].set_ylabel(f"change of the total {what}\nagainst the baseline (%)")
    drawn.legend(handles=axes[0].get_legend_handles_labels()[0], loc="outside lower center", ncols=4, frameon=False)
    drawn.suptitle(title(f"{figure} · Total {what} of a layer's heads", groups), fontsize=10)
    return drawn


# ---- how alike and how sharp


def mean_cosine(measures: dict[str, Any], where: str) -> float:
    """Mean cosine of the outputs of two different heads of a module, from −1 to 1.

    Raises:
        DataError: there is a single head.
    """
    cosines = _pairs(measures["cosine"], where)
    H = len(cosines)
    return float((cosines.sum() - np.trace(cosines)) / (H * (H - 1)))


def mean_entropy(measures: dict[str, Any], where: str) -> float:
    """Mean over a module's heads of the entropy of their attention, in nats."""
    return float(np.mean(measures["entropy"]))


SEPARATION = {
    "mean cosine of two heads' outputs": mean_cosine,
    "entropy of the attention (nats)": mean_entropy,
}


def draw_separation(profile: str, experiment: str, figure: str) -> Figure:
    """How alike the heads of every variant are and how sharply they attend, by kind; means over seeds.

    Raises:
        DataError: no stored results, or results without measures of the heads.
    """
    groups = chosen(profile, experiment, figure, needs="measures")
    told = {variant: [by_place(run["heads"]["measures"]) for run in runs] for variant, runs in groups.items()}
    labels = labels_of(experiment, groups)
    modules = next(iter(told.values()))[0]
    kinds, y = kinds_of(modules), np.arange(len(groups))
    size = (3.2 * len(kinds) + 0.6, 2 * (0.26 * len(groups) + 0.9) + 0.4)
    drawn = Figure(figsize=size, layout="constrained")
    axes = drawn.subplots(len(SEPARATION), len(kinds), sharex="row", sharey=True, squeeze=False)
    for row, (name, measure) in zip(axes, SEPARATION.items(), strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            values = np.array([
                [
                    np.mean([measure(seed[kind, layer], f"{variant}, {kind} {layer}") for seed in seeds])
                    for layer in _layers(modules, kind)
                ]
                for variant, seeds in told.items()
            ])  # (variants, layers)  # fmt: skip
            ax.plot(values, y, "o", color="0.72", ms=3, mew=0)
            ax.plot(values.mean(axis=1), y, "D", color=BLUE, ms=5)
            if "baseline" in groups:
                ax.axvline(values[list(groups).index("baseline")].mean(), color="0.35", lw=1, ls="--", zorder=0)
            ax.set(yticks=y, yticklabels=labels.values(), ylim=(len(groups) - 0.5, -0.5), xlabel=name)
            ax.grid(axis="x", color="0.92")
            ax.set_axisbelow(True)
    for ax, kind in zip(axes[0], kinds, strict=True):
        ax.set_title(KINDS[kind])
    drawn.suptitle(title("Likeness and sharpness of the heads", groups), fontsize=10)
    return drawn
