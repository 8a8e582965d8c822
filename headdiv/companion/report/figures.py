"""Figures, drawn from stored metrics: as PNG and SVG, the same bytes for the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

from headdiv.companion.experiments import figure_kinds
from headdiv.companion.experiments.catalogue import FigureEntry, figure_entry
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import stored_files
from headdiv.companion.report import (
    curves,
    differences,
    diversity,
    heads,
    homeostasis,
    moa,
    pruning,
    swaps,
)
from headdiv.companion.report.groups import labels_of
from headdiv.companion.report.plotting import STYLE, add_title
from headdiv.core.errors import ConfigError, DataError
from headdiv.core.files import replacing
from headdiv.core.settings import check, nearest

_NO_TEXT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
COMPARING = ("bleu", "changes", "confidence")  # kinds that are about what they set side by side
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # and what would change their bytes

# By `FigureEntry.kind`; each raises `DataError` where what it draws is not stored, or lacks what it needs.
DRAWN_BY_KIND: dict[str, Callable[[str, FigureEntry], Figure]] = {
    "curves": curves.draw_curves, "heads-by-epoch": curves.draw_heads, "differences": differences.draw_differences,
    "diversity": diversity.draw_diversity,
    "levels": differences.draw_levels, "level-curves": curves.draw_level_curves,
    "measures": heads.draw_measures,
    "pca-weights": heads.draw_pca_weights, "alphas": heads.draw_alphas, "confidence": heads.draw_confidence,
    "changes": heads.draw_changes, "swaps": swaps.draw_swaps,
    "bleu": homeostasis.draw_bleu, "activations": homeostasis.draw_activations,
    "routers": moa.draw_routers, "words": moa.draw_words, "pruning": pruning.draw_pruning,
}  # fmt: skip


def draw(name: str, profile: str, **options: Any) -> Figure:
    """Draw a figure by name.

    Args:
        name: of the figure.
        profile: name or path of a profile.
        options: in the place of the figure's own ``options``.

    Raises:
        ConfigError: the figure has no such option, or it cannot have this value.
        DataError: no figure of this name, or no stored results to draw it from.
    """
    entry = figure_entry(name, profile)
    if unknown := [option for option in options if option not in entry.options]:
        raise ConfigError(
            f"figure {name}: option {unknown[0]!r} is not known{nearest(unknown[0], list(entry.options))}"
        )
    try:
        own = figure_kinds.FigureKind(entry.kind)  # one's own have no options
        kind = figure_kinds.FIGURE_KINDS.get(entry.kind, own)
        checked = check(kind.Options, entry.options | options)
    except ConfigError as error:
        raise ConfigError(f"figure {name}: option {error}") from None
    entry = replace(entry, options=checked.model_dump())
    with matplotlib.rc_context(STYLE):
        figure = (entry.draw or DRAWN_BY_KIND[entry.kind])(profile, entry)
        if entry.kind in COMPARING and (lacking := _lacking(profile, entry)):
            add_title(figure, f"{figure.get_suptitle()}\nIncomplete; not stored in this profile: {', '.join(lacking)}")
    for one in figure.findobj(Text):  # what results say is no formula, and can be written as XML
        one.set_text(_NO_TEXT.sub("\ufffd", one.get_text()).replace("$", r"\$"))
    return figure


def _lacking(profile: str, figure: FigureEntry) -> list[str]:
    """The variants and further experiments that a figure is about and the profile has no results of."""
    runs = Runs(profile)
    stored = {
        experiment: {config.variant for config in stored_files(profile, runs.of(experiment)).values()}
        for experiment in figure.experiments_in(runs.experiments())
    }
    labels = labels_of(figure.experiment, dict.fromkeys((*figure.against, *figure.variants)))
    variants = [label for variant, label in labels.items() if variant not in stored[figure.experiment]]
    return variants + [experiment for experiment in figure.beside if not stored.get(experiment)]


def write_figure(name: str, profile: str, *paths: Path, **options: Any) -> None:
    """Draw a figure once and write it in the format of each path's ending.

    Raises:
        ConfigError: the figure has no such option, or it cannot have this value.
        DataError: no such figure, no results, or an ending that is not in `FORMATS`.
    """
    for path in paths:
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: a figure is written as one of {', '.join(FORMATS)}")
    figure = draw(name, profile, **options)
    for path in paths:
        metadata = {FORMATS[path.suffix]: None}
        with matplotlib.rc_context(STYLE), replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=metadata, facecolor="white")
