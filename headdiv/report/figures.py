"""Figures, drawn from stored metrics: as PNG and SVG, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from headdiv.core.errors import DataError
from headdiv.core.files import replacing
from headdiv.experiments.catalogue import FigureEntry, figure_entry
from headdiv.experiments.papers import load_paper
from headdiv.report.curves import draw_curves
from headdiv.report.groups import chosen, labels_of, title
from headdiv.report.heads import draw_alphas, draw_changes, draw_confidence, draw_separation
from headdiv.report.headtohead_figures import draw_measures, draw_pareto
from headdiv.report.homeostasis import draw_activations, draw_bleu
from headdiv.report.moa import draw_routers, draw_words
from headdiv.report.pruning import draw_pruning
from headdiv.report.swaps import draw_swaps

FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # and what would change their bytes

STYLE = {
    "svg.hashsalt": "headdiv",
    "svg.fonttype": "none",  # text stays text
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_pca_weights(profile: str, experiment: str, variants: Sequence[str], label: str) -> Figure:
    """How far the columns of each PCA layer's weights are from orthogonal.

    DEACON's paper shows one matrix an architecture and does not say of which attention module; here is every one.
    """
    groups = chosen(profile, experiment, label, variants)
    runs = {variant: group[0] for variant, group in groups.items()}
    shown = list(runs)
    labels = labels_of(experiment, shown)
    modules = list(runs[shown[0]]["heads"]["pca_weights"].values())
    figure = Figure(figsize=(1.55 * len(modules) + 1.3, 1.75 * len(shown) + 0.7), layout="constrained")
    axes = figure.subplots(len(shown), len(modules), squeeze=False)
    for row, variant in zip(axes, shown, strict=True):
        for ax, module in zip(row, runs[variant]["heads"]["pca_weights"].values(), strict=True):
            cosines = np.array(module["cosines"])
            sns.heatmap(
                cosines, ax=ax, vmin=-1, vmax=1, center=0, cmap="vlag", square=True, cbar=False,
                xticklabels=False, yticklabels=False,
            )  # fmt: skip
            ax.set_title(f"{module['place']}\noff-diagonal {module['mean_absolute_cosine']:.2f}", fontsize=8)
        row[0].set_ylabel(f"{labels[variant]}\ncomponent", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("component", fontsize=8)
    bar = figure.colorbar(axes[0][0].collections[0], ax=axes, shrink=0.6 if len(shown) > 1 else 1.0, pad=0.01)
    bar.set_label("cosine of two columns of w", fontsize=8)
    bar.outline.set_visible(False)
    figure.suptitle(title(f"{label} · PCA weights of every attention module", groups, first=True), fontsize=10)
    return figure


def _bleu(profile: str, entry: FigureEntry) -> Figure:
    """The experiment's variants, and the baselines of the experiments beside it."""
    shown = [(entry.experiment, entry.variants), *((other, ["baseline"]) for other in entry.beside)]
    key = f"{entry.options['split']}_bleu"
    return draw_bleu(profile, shown, key, entry.label, sizes=bool(entry.beside))


def _activations(profile: str, entry: FigureEntry) -> Figure:
    """Of the experiment and of those beside it, in the paper's order."""
    shown = {entry.experiment, *entry.beside}
    order = [f"{entry.paper}/{task}" for task in load_paper(entry.paper).tasks]
    return draw_activations(profile, [(name, ()) for name in order if name in shown], entry.label)


# What draws each kind of figure of the catalogue.
KINDS: dict[str, Callable[[str, FigureEntry], Figure]] = {
    "curves": lambda profile, entry: draw_curves(profile, entry.experiment),
    "pca-weights": lambda profile, entry: draw_pca_weights(profile, entry.experiment, entry.variants, entry.label),
    "alphas": lambda profile, entry: draw_alphas(profile, entry.experiment, entry.variants[0], entry.label),
    "changes": lambda profile, entry: draw_changes(
        profile, entry.experiment, entry.variants, entry.options["distance"], entry.label
    ),
    "confidence": lambda profile, entry: draw_confidence(profile, entry.experiment, entry.variants, entry.label),
    "separation": lambda profile, entry: draw_separation(profile, entry.experiment, entry.label),
    "swaps": lambda profile, entry: draw_swaps(profile, entry.experiment, entry.label),
    "bleu": _bleu,
    "activations": _activations,
    "routers": lambda profile, entry: draw_routers(profile, entry.experiment, entry.variants, entry.label),
    "words": lambda profile, entry: draw_words(profile, entry.experiment, entry.variants, entry.label),
    "pareto": lambda profile, entry: draw_pareto(profile, entry.experiment, entry.label),
    "measures": lambda profile, entry: draw_measures(profile, entry.experiment, entry.label),
    "pruning": lambda profile, entry: draw_pruning(profile, entry.paper),
}


def draw(name: str, profile: str) -> Figure:
    """Draw a figure by name.

    Raises:
        DataError: no figure of this name, or no stored results to draw it from.
    """
    entry = figure_entry(name)
    with matplotlib.rc_context(STYLE):
        return KINDS[entry.kind](profile, entry)


def write_figure(name: str, profile: str, *paths: Path) -> None:
    """Draw a figure once and write it in the format of each path's ending.

    Raises:
        DataError: no such figure, no results, or an ending that is not in `FORMATS`.
    """
    for path in paths:
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: a figure is written as one of {', '.join(FORMATS)}")
    figure = draw(name, profile)
    for path in paths:
        told = {FORMATS[path.suffix]: None}
        with matplotlib.rc_context(STYLE), replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=told, facecolor="white")
