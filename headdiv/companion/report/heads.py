"""Figures of attention heads: PCA weights, mixing matrices, confidence, distances and similarity."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.experiments.papers import BASELINE, task_of
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import as_printed
from headdiv.companion.report.groups import (
    KIND_LABELS,
    Groups,
    by_module,
    kinds_of,
    labels_of,
    place_name,
    runs_of_figure,
    title,
)
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.measures import MEASURES, measures_by_module
from headdiv.companion.report.plotting import (
    BLUE,
    SMALL,
    add_colour_bar,
    add_grid,
    add_handles,
    add_interval,
    add_title,
    half_or_zero,
    name_rows,
    new_figure,
    number_layers,
    side_by_side,
    wrapped,
)
from headdiv.plots import draw_maps

Module = tuple[str, int]  # kind of attention; layer, counted from 1


def measure_by_module(run: RunResult, measure: str) -> dict[Module, np.ndarray]:
    """A measure of every attention module: (H,) by head, or (H, H) by pair of heads."""
    return {module: np.array(values[measure]) for module, values in by_module(run.heads["measures"]).items()}


def _title(subject: str, groups: Groups) -> str:
    """The title of a figure of means over seeds; it says what the intervals are, where a variant has one."""
    several = any(len(runs) > 1 for runs in groups.values())
    return title(subject, groups) + ("; 95 % intervals over seeds" if several else "")


def _layers(modules: Iterable[Module], kind: str) -> list[int]:
    return sorted(layer for module_kind, layer in modules if module_kind == kind)


# ---- PCA weights


@figure_kind("pca-weights")
def draw_pca_weights(profile: str, figure: FigureEntry, limit: float) -> Figure:
    """Cosines between different columns of every PCA layer's weights, a row for each variant; first seeds.

    The diagonal, 1 by definition, is left out, so that the colours may show what lies off it, up to ``limit``; a cosine
    beyond that stands as a number in its cell. The paper shows one matrix an architecture and does not say of which
    attention module; here are all of them.
    """
    groups = runs_of_figure(profile, figure)
    rows: list[dict[str, np.ndarray]] = []
    for runs in groups.values():
        rows.append({})
        for layer in runs[0].heads["pca_weights"].values():
            name = place_name(layer["place"]).replace(", ", ",\n")
            cosines = np.ma.masked_array(layer["cosines"], np.eye(len(layer["cosines"]), dtype=bool))
            rows[-1][f"{name}\nmean |cos| {layer['mean_absolute_cosine']:.2f}"] = cosines
    columns = max(map(len, rows))  # a variant may have layers of its own
    labels = [f"{label}\ncomponent" for label in labels_of(figure.experiment, groups).values()]
    fig, axes = new_figure(1.3 * columns + 1.3, 1.75 * len(rows) + 0.7, len(rows), columns)
    image = draw_maps(axes, rows, limit, "component", labels)
    for line, panels in zip(axes, rows, strict=True):
        for ax, cosines in zip(line, panels.values(), strict=False):
            ax.set(xticks=[], yticks=[], aspect="equal", facecolor="0.85")  # the diagonal's
            for (i, j), cosine in np.ma.ndenumerate(cosines):
                if abs(cosine) > limit + 1e-6:
                    ax.text(j + 1, i + 1, f"{cosine:.2f}", size=4.5, color="white", ha="center", va="center")
    ticks = [-limit, -limit / 2, 0, limit / 2, limit]
    add_colour_bar(fig, image, axes, "cosine of two columns of w", extend="both", ticks=ticks)
    add_title(fig, title(f"{figure.label} · PCA weights of every attention module", groups, first=True))
    return fig


# ---- Alphas


def skew_share(matrix: np.ndarray) -> float:
    """Share of the squares off the diagonal of (H, H) that belongs to the skew-symmetric part.

    1 where a_ij = −a_ji, 0 where a_ij = a_ji, one half on average for independent entries; NaN for a diagonal matrix.
    """
    off_diagonal = matrix - np.diag(np.diag(matrix))
    total = float((off_diagonal**2).sum())
    skew = (off_diagonal - off_diagonal.T) / 2
    return float((skew**2).sum()) / total if total else float("nan")


@figure_kind(
    "alphas",
    caption=(
        "The Alphas of every attention module; the paper shows the decoder's self-attention. Row i holds the "
        "coefficients of the mixture that head i becomes. Colours show A minus the identity, where A starts: white is "
        "unchanged. Above each: its nuclear norm (at the start, the number of heads) and the share of the squared "
        "off-diagonal entries that belongs to the skew-symmetric part: 1 if opposite entries differ only in sign, 0 if "
        "they are equal, one half if they are unrelated."
    ),
)
def draw_alphas(profile: str, figure: FigureEntry) -> Figure:
    """Every Alphas matrix of the variant's first seed, as its difference from the identity that it started from."""
    groups = runs_of_figure(profile, figure)
    ((variant, runs),) = groups.items()
    modules = by_module(runs[0].heads["alphas"])
    kinds, columns = kinds_of(modules), max(layer for _, layer in modules)
    rows: list[dict[str, np.ndarray | None]] = []
    for kind in kinds:
        rows.append({})
        for layer in range(1, columns + 1):
            if (kind, layer) not in modules:
                rows[-1][f"layer {layer}"] = None
                continue
            module = modules[kind, layer]
            change = np.array(module["alphas"]) - np.eye(len(module["alphas"]))
            skew = as_printed(skew_share(change), 2)
            rows[-1][f"layer {layer}: ‖A‖∗ = {module['nuclear_norm']:.2f}\nskew share {skew}"] = change
    changes = [change for row in rows for change in row.values()]
    limit = max(float(np.abs(change).max()) for change in changes if change is not None) or 1.0
    fig, axes = new_figure(max(1.55 * columns + 1.5, 6.5), 1.95 * len(kinds) + 0.7, len(kinds), columns)
    labels = [KIND_LABELS[kind].replace(" ", "\n", 1) + "\nnew head" for kind in kinds]
    image = draw_maps(axes, rows, limit, "head", labels)
    for ax, change in zip(axes.flat, changes, strict=True):
        if change is not None:
            ax.set(xticks=[1, len(change)], yticks=[1, len(change)], aspect="equal")
    add_colour_bar(fig, image, axes, "A − identity")
    label = task_of(figure.experiment).label(variant)
    add_title(fig, title(f"{figure.label} · {label}", groups, first=True))
    return fig


# ---- confidence


def ranked(runs: list[RunResult], measure: str) -> dict[Module, np.ndarray]:
    """A measure of each head of every module, in ascending order: (seeds, H).

    A head of one seed has no counterpart in another, but the lowest of one corresponds to the lowest of the other.
    """
    by_seed = [measure_by_module(run, measure) for run in runs]
    return {module: np.sort([values[module] for values in by_seed], axis=1) for module in by_seed[0]}


@figure_kind("confidence", compares=True)
def draw_confidence(profile: str, figure: FigureEntry) -> Figure:
    """Confidence of every head by kind and layer, and how unequal the heads of a layer are.

    Means over seeds: of heads with the same rank in their layer, and, with intervals, of the standard deviations over
    its heads.
    """
    groups = runs_of_figure(profile, figure)
    heads = {variant: ranked(runs, "confidence") for variant, runs in groups.items()}
    labels, looks = labels_of(figure.experiment, groups), looks_of(figure.experiment, groups)
    modules = dict.fromkeys(chain.from_iterable(heads.values()))  # a variant may have layers of its own
    kinds, step = kinds_of(modules), 0.8 / len(groups)
    fig, axes = new_figure(2.9 * len(kinds) + 0.5, 5.0, 2, len(kinds), sharey="row", height_ratios=(3, 2))
    for (upper, lower), kind in zip(axes.T, kinds, strict=True):
        for (variant, confidence), offset in zip(heads.items(), side_by_side(len(groups), step), strict=True):
            layers = _layers(confidence, kind)
            colour, marker = looks[variant]["color"], looks[variant]["marker"]
            for layer in layers:
                values = confidence[kind, layer].mean(axis=0)  # (H,)
                x = layer + offset
                upper.plot([x] * len(values), values, marker, ms=3.5, alpha=0.75, mew=0, color=colour)
                upper.hlines(values.mean(), x - 0.45 * step, x + 0.45 * step, color=colour, lw=1.5)
            deviations = [interval(confidence[kind, layer].std(axis=1).tolist()) for layer in layers]
            means, halves = [each.mean for each in deviations], [half_or_zero(each) for each in deviations]
            style = {"ms": 4.5, "lw": 1.2, "capsize": 2, **looks[variant]}
            lower.errorbar(np.array(layers) + offset, means, halves, label=labels[variant], **style)
        upper.set_title(KIND_LABELS[kind])
        for ax in (upper, lower):
            number_layers(ax, _layers(modules, kind))
            add_grid(ax, "y")
    axes[0, 0].set_ylabel("confidence of each head\n(0 to 1; bar: mean of the layer)")
    axes[1, 0].set_ylabel("standard deviation\nover a layer's heads")
    axes[1, 0].margins(y=0.1)
    axes[1, 0].set_ylim(bottom=0)
    add_handles(fig, axes[1, 0].get_legend_handles_labels()[0], 4)
    add_title(fig, _title(f"{figure.label} · Confidence", groups))
    return fig


# ---- distances between heads

DISTANCES = {"cosine": "cosine difference", "l2": "Euclidean distance"}


def changes(groups: Groups, distance: str) -> dict[str, dict[Module, Interval]]:
    """By variant and module, in percent, how far its total discrepancy is above (+) or below (−) the baseline's.

    The total discrepancy of a module's heads is the L₁,₁ norm of the matrix of their distances: of 1 − cosine, or
    Euclidean ("l2"). Formed seed by seed; the mean and interval over common seeds, for common modules. A variant
    without any in common has {}.
    """

    def totals(run: RunResult) -> dict[Module, float]:
        pairs = measure_by_module(run, distance)  # each (H, H)
        return {module: float(np.abs(1 - x if distance == "cosine" else x).sum()) for module, x in pairs.items()}

    bases, percent = {run.seed: totals(run) for run in groups[BASELINE]}, {}
    for variant, runs in groups.items():
        if variant != BASELINE:
            pairs = [(totals(run), bases[run.seed]) for run in runs if run.seed in bases]
            modules = [module for module in pairs[0][0] if module in pairs[0][1]] if pairs else []
            percent[variant] = {
                module: interval([100 * (own[module] / reference[module] - 1) for own, reference in pairs])
                for module in modules
            }
    return percent


@figure_kind(
    "changes",
    caption=(
        "How far apart the heads of a layer are, against the baseline: change in percent of the L₁,₁ norm of the "
        "matrix of their outputs' distances (1 − cosine, or Euclidean), mean over the words of the validation split. "
        "Above zero the heads are further apart than the baseline's, below zero closer together."
    ),
    against_baseline=True,
    compares=True,
)
def draw_changes(profile: str, figure: FigureEntry, distance: Literal["cosine", "l2"]) -> Figure:
    """Change of the heads' total discrepancy against the baseline of the same seed, by kind and layer."""
    groups = runs_of_figure(profile, figure)
    percent = changes(groups, distance)
    labels, looks = labels_of(figure.experiment, groups), looks_of(figure.experiment, groups)
    modules = by_module(groups[BASELINE][0].heads["measures"])
    kinds, width = kinds_of(modules), 0.8 / len(percent)
    fig, axes = new_figure(2.9 * len(kinds) + 0.5, 3.4, 1, len(kinds), sharey=True)
    for ax, kind in zip(axes[0], kinds, strict=True):
        layers = _layers(modules, kind)
        for (variant, by_layer), offset in zip(percent.items(), side_by_side(len(percent), width), strict=True):
            values = [by_layer.get((kind, layer), interval([])) for layer in layers]
            heights, halves = [change.mean for change in values], [half_or_zero(change) for change in values]
            label = labels[variant] if by_layer else f"{labels[variant]}: no seed in common"
            style = {"color": looks[variant]["color"], "label": label, "capsize": 2}
            ax.bar(np.array(layers) + offset, heights, 0.92 * width, yerr=halves, **style)
        ax.axhline(0, color="0.2", lw=1)
        ax.set_title(KIND_LABELS[kind])
        add_grid(ax, "y")
        number_layers(ax, layers)
    axes[0, 0].set_ylabel(f"change of the total {DISTANCES[distance]}\nagainst the baseline (%)")
    add_handles(fig, axes[0, 0].get_legend_handles_labels()[0], 4)
    seeds = {run.seed for run in groups[BASELINE]}
    shown = {variant: [run for run in groups[variant] if run.seed in seeds] for variant in percent if percent[variant]}
    add_title(fig, _title(f"{figure.label} · Total {DISTANCES[distance]} of a layer's heads", shown or groups))
    return fig


# ---- all measures

KIND_MARKERS = {"encoder": "o", "decoder": "^", "cross": "s"}


@figure_kind("measures")
def draw_measures(profile: str, figure: FigureEntry) -> Figure:
    """Every head measure by variant: each module, and their mean with its interval over seeds.

    What no run has is left out.
    """
    groups = runs_of_figure(profile, figure)
    labels = labels_of(figure.experiment, groups)
    kinds = {  # of a variant's modules; it may have layers of its own
        variant: [place.partition(" ")[0] for place in runs[0].heads["measures"]] for variant, runs in groups.items()
    }
    panels = {}
    for name, (label, _) in MEASURES.items():
        values = {  # (seeds, modules)
            variant: np.array([measures_by_module(run, name) for run in runs]) for variant, runs in groups.items()
        }
        if not all(np.isnan(modules).all() for modules in values.values()):
            panels[wrapped(label, 26)] = values
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    fig, axes = new_figure(9.2, rows * (0.24 * len(groups) + 0.9) + 0.6, rows, columns, sharey=True)
    for ax, (label, values) in zip(axes.flat, panels.items(), strict=False):
        for row, (variant, modules) in enumerate(values.items()):
            for mean, kind in zip(modules.mean(axis=0), kinds[variant], strict=True):
                ax.plot(mean, row + 0.3, KIND_MARKERS[kind], color="0.7", ms=3, mew=0)
            add_interval(ax, row, interval(modules.mean(axis=1).tolist()), "D", color=BLUE)
        if BASELINE in values:
            ax.axvline(values[BASELINE].mean(), color="0.35", lw=1, ls="--", zorder=0)
        name_rows(ax, [wrapped(name, 26) for name in labels.values()], xlabel=label)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.tick_params(labelsize=SMALL)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    handles = [
        Line2D([], [], marker=KIND_MARKERS[kind], label=KIND_LABELS[kind], ls="none", color="0.7", ms=4)
        for kind in dict.fromkeys(chain.from_iterable(kinds.values()))
    ]
    handles.append(Line2D([], [], marker="D", ls="-", color=BLUE, ms=4, label="mean over modules"))
    if BASELINE in groups:
        handles.append(Line2D([], [], ls="--", lw=1, color="0.35", label=labels[BASELINE]))
    add_handles(fig, handles, 5, SMALL)
    add_title(fig, _title("Heads, variant by variant", groups))
    return fig
