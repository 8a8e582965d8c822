"""Figures, drawn from stored metrics: as PNG and SVG, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from headdiv.core.errors import DataError
from headdiv.core.files import replacing
from headdiv.experiments.catalogue import FigureEntry, figure_entry
from headdiv.experiments.papers import load_paper
from headdiv.report.curves import draw_curves
from headdiv.report.heads import draw_alphas, draw_changes, draw_confidence, draw_pca_weights, draw_separation
from headdiv.report.headtohead_figures import draw_measures, draw_pareto
from headdiv.report.homeostasis import draw_activations, draw_bleu
from headdiv.report.moa import draw_routers, draw_words
from headdiv.report.plotting import STYLE
from headdiv.report.pruning import draw_pruning
from headdiv.report.swaps import draw_swaps

FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # and what would change their bytes


def _bleu(profile: str, entry: FigureEntry) -> Figure:
    """The experiment's variants, and the baselines of the experiments beside it."""
    shown = [(entry.experiment, entry.variants), *((other, ["baseline"]) for other in entry.beside)]
    return draw_bleu(profile, shown, entry.options["split"], entry.label, sizes=bool(entry.beside))


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
        metadata = {FORMATS[path.suffix]: None}
        with matplotlib.rc_context(STYLE), replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=metadata, facecolor="white")
