"""Figures, drawn from stored metrics: as PNG and SVG, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from headdiv.errors import DataError
from headdiv.files import replacing
from headdiv.papers import load_task
from headdiv.report.curves import draw_curves
from headdiv.report.store import stored

FIGURE_6 = ("direct-8", "average-8", "nonlinear-8")  # the paper's panels i, ii, iii

FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # and what would change their bytes

STYLE = {
    "svg.hashsalt": "headdiv",
    "svg.fonttype": "none",  # text stays text
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def deacon_figure6(profile: str) -> Figure:
    """Figure 6: how far the columns of each PCA layer's weights are from orthogonal, for M = 8.

    The paper shows one matrix an architecture and does not say of which attention module; here is every one.
    """
    runs = {m["variant"]: m for m in reversed(stored(profile, "deacon/translation"))}  # the first seed wins
    shown = [variant for variant in FIGURE_6 if variant in runs]
    if not shown:
        raise DataError(f"Figure 6 needs one of {', '.join(FIGURE_6)} among the stored runs of profile {profile}")
    labels = load_task("deacon", "translation").variants
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
        row[0].set_ylabel(f"{labels[variant].label}\ncomponent", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("component", fontsize=8)
    bar = figure.colorbar(axes[0][0].collections[0], ax=axes, shrink=0.6 if len(shown) > 1 else 1.0, pad=0.01)
    bar.set_label("cosine of two columns of w", fontsize=8)
    bar.outline.set_visible(False)
    run = runs[shown[0]]
    figure.suptitle(
        f"Figure 6 · PCA weights of every attention module: {run['config']['data']['name']}, "
        f"{len(run['curve'])} epochs, seed {run['seed']}",
        fontsize=10,
    )
    return figure


@dataclass(frozen=True)
class Drawing:
    """A figure: how it is drawn, the experiment whose runs it needs, and what it shows."""

    draw: Callable[[str], Figure]
    experiment: str
    caption: str
    variants: tuple[str, ...] = ()  # one of these must be in the profile; none named: any will do


def _curves(experiment: str, caption: str) -> Drawing:
    return Drawing(partial(draw_curves, experiment=experiment), experiment, caption)


FIGURES = {
    "deacon_figure6": Drawing(
        deacon_figure6,
        "deacon/translation",
        "Cosine between the columns of each PCA layer's weights (the paper's Figure 6). Principal components "
        "would give the identity: white off the diagonal.",
        FIGURE_6,
    ),
    "deacon_translation_curves": _curves(
        "deacon/translation",
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of target "
        "words that are the likeliest) after each epoch; dashed: what the words' frequencies alone give.",
    ),
    "deacon_summarisation_curves": _curves(
        "deacon/summarisation",
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of the "
        "summaries' words that are the likeliest) after each epoch; dashed: what the words' frequencies alone give.",
    ),
    "deacon_qa_curves": _curves(
        "deacon/qa",
        "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of questions "
        "whose first and last word are both the likeliest) after each epoch; dashed: what the frequencies of "
        "positions alone give.",
    ),
    "deacon_lm_curves": _curves(
        "deacon/lm",
        "Training loss (mean over an epoch, dropout on) and validation perplexity by token, on a logarithmic axis, "
        "after each epoch; dashed: what the tokens' frequencies alone give.",
    ),
}


def figures_of(configured: Iterable[tuple[str, str]]) -> dict[str, Drawing]:
    """The figures that a profile's runs allow.

    Args:
        configured: (experiment, variant) of every run.
    """
    there = set(configured)
    return {
        name: drawing
        for name, drawing in FIGURES.items()
        if any(e == drawing.experiment and (not drawing.variants or v in drawing.variants) for e, v in there)
    }


def drawing(name: str) -> Drawing:
    """The figure of this name.

    Raises:
        DataError: there is none.
    """
    if name not in FIGURES:
        raise DataError(f"figure {name!r} is not known; there are: {', '.join(FIGURES)}")
    return FIGURES[name]


def draw(name: str, profile: str) -> Figure:
    """Draw a figure by name.

    Raises:
        DataError: no figure of this name, or no stored results to draw it from.
    """
    told = drawing(name)
    with matplotlib.rc_context(STYLE):
        return told.draw(profile)


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
