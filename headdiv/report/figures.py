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

from headdiv.core.errors import DataError
from headdiv.core.files import replacing
from headdiv.report.curves import draw_curves
from headdiv.report.groups import chosen, labels_of, title
from headdiv.report.heads import draw_alphas, draw_changes, draw_confidence, draw_separation
from headdiv.report.headtohead_figures import draw_measures, draw_pareto
from headdiv.report.homeostasis import draw_activations, draw_bleu
from headdiv.report.moa import draw_routers, draw_words
from headdiv.report.pruning import draw_pruning
from headdiv.report.swaps import draw_swaps

FIGURE_6 = ("direct-8", "average-8", "nonlinear-8")  # the paper's panels i, ii, iii
CONFIDENT = ("baseline", "alphas", "manual")  # of MHR's Figure 5
PARTED = ("alphas", "cosine")  # of MHR's Figures 6 and 7, against the baseline
MOVED = ("manual", "soft", "hard", "random", "soft-confidence", "hard-confidence")

SELECTIVE = ("moa-32-4", "moa-8-4", "moa-32-4-renormalised", "moa-32-4-noisy")  # fewer heads than there are

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
    groups = chosen(profile, "deacon/translation", "Figure 6", FIGURE_6)
    runs = {variant: group[0] for variant, group in groups.items()}
    shown = list(runs)
    labels = labels_of("deacon/translation", shown)
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
    figure.suptitle(title("Figure 6 · PCA weights of every attention module", groups, first=True), fontsize=10)
    return figure


@dataclass(frozen=True)
class Drawing:
    """A figure: how it is drawn, the experiment whose runs it needs, and what it shows."""

    draw: Callable[[str], Figure]
    experiment: str
    caption: str
    variants: tuple[str, ...] = ()  # one of these must be in the profile; none named: any will do
    against: tuple[str, ...] = ()  # and all of these
    beside: tuple[str, ...] = ()  # further experiments: their runs are shown as well where the profile has them


def _curves(experiment: str, caption: str) -> Drawing:
    return Drawing(partial(draw_curves, experiment=experiment), experiment, caption)


TRANSLATION_CURVES = (
    "Training loss (mean over an epoch, dropout on), validation loss and validation accuracy (share of target "
    "words that are the likeliest) after each epoch; dashed: what the words' frequencies alone give."
)


def _alphas(variant: str, number: str, how: str) -> Drawing:
    caption = (
        f"The Alphas of every attention module, trained {how} (the paper's {number}, which shows the decoder's "
        "self-attention). Row i holds the coefficients of which head i becomes the mixture. Colours show A minus the "
        "identity that A starts from: white is as at the start. Above each, its nuclear norm (at the start: the "
        "number of heads), and how much of the squares off the diagonal belongs to the skew-symmetric part: 1 where "
        "opposite entries differ in sign only, 0 where they are equal, one half where they have nothing to do with "
        "each other."
    )
    draw = partial(draw_alphas, experiment="mhr/translation", variant=variant, figure=number)
    return Drawing(draw, "mhr/translation", caption, (variant,))


def _changes(distance: str, number: str, definition: str) -> Drawing:
    caption = (
        f"How far the heads of a layer are from each other, against the baseline (the paper's {number}): change in "
        f"percent of the L₁,₁ norm of the matrix of their distances, {definition}, mean over the words of the "
        "validation split. Above zero the heads are further apart than the baseline's, below zero closer together."
    )
    draw = partial(draw_changes, experiment="mhr/translation", variants=PARTED, distance=distance, figure=number)
    return Drawing(draw, "mhr/translation", caption, PARTED, ("baseline",))


MEMORISED = ("baseline", "kwta-20", "kwta-50")
BOOSTED = ("rfb-50", "rfb-70", "rfb-80", "rfb-90")
HOMEOSTASIS = ("memorisation", "small", "base", "big")
LARGER = ("homeostasis/base", "homeostasis/big")


def _bleu(number: int, split: str, experiment: str, *variants: str, larger: tuple[str, ...] = ()) -> Drawing:
    """BLEU by epoch; ``larger``: experiments whose baselines stand beside."""
    beside = f"; {' and '.join(larger)} where the profile has them" if larger else ""
    caption = (
        f"BLEU of greedy translations of the first pairs of the {split} text after each epoch (the paper's "
        f"Figure {number}){beside}. It is taken over the vocabulary's words, one reference each."
    )
    shown = [(experiment, variants), *((other, ["baseline"]) for other in larger)]
    draw = partial(draw_bleu, shown=shown, key=f"{split}_bleu", figure=f"Figure {number}", sizes=bool(larger))
    return Drawing(draw, experiment, caption, variants, beside=larger)


def _routers(experiment: str, *variants: str) -> Drawing:
    caption = (
        "How evenly the experts of every attention module are chosen, and how surely, on the validation split. Left, "
        "each expert's share of the choices, in its module's own order; middle, its share of the gates; white is an "
        "even share. With k = E all loads are even and only the gates differ. Right, the mean entropy of the routing "
        "probabilities; the dashed line, log E, is a router that prefers nothing."
    )
    name = f"{experiment.replace('/', '_')}_routers"
    draw = partial(draw_routers, experiment=experiment, variants=variants, figure=name)
    return Drawing(draw, experiment, caption, variants)


def _words(experiment: str, *variants: str) -> Drawing:
    caption = (
        "Which words the experts serve: of every module the experts that are chosen most often, with their share of "
        "the choices, and the words that they serve most often in comparison with the average expert. In "
        "encoder-decoder attention it is the word that asks. ␣ is the space before a word, ↵ the end of a line."
    )
    name = f"{experiment.replace('/', '_')}_words"
    return Drawing(
        partial(draw_words, experiment=experiment, variants=variants, figure=name), experiment, caption, variants
    )


FIGURES = {
    "deacon_figure6": Drawing(
        deacon_figure6,
        "deacon/translation",
        "Cosine between the columns of each PCA layer's weights (the paper's Figure 6). Principal components "
        "would give the identity: white off the diagonal.",
        FIGURE_6,
    ),
    "deacon_translation_curves": _curves("deacon/translation", TRANSLATION_CURVES),
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
    "mhr_translation_curves": _curves("mhr/translation", TRANSLATION_CURVES),
    "mhr_swaps": Drawing(
        partial(draw_swaps, experiment="mhr/translation", figure="mhr_swaps"),
        "mhr/translation",
        "Which heads changed places before which epoch, for every variant that moves heads. A band is a layer, and in "
        "it the heads stand one over the other; a line joins two heads that exchange their projections. Hollow and "
        "dotted: they return.",
        MOVED,
    ),
    "mhr_figure3": _alphas("alphas-plain", "Figure 3", "without the nuclear loss"),
    "mhr_figure4": _alphas("alphas", "Figure 4", "with the nuclear loss"),
    "mhr_figure5": Drawing(
        partial(draw_confidence, experiment="mhr/translation", variants=CONFIDENT, figure="Figure 5"),
        "mhr/translation",
        "Confidence of every head (the paper's Figure 5): the mean over the words of the validation split of the "
        "largest weight that the head gives a word. Below, its standard deviation over the heads of a layer: 0 where "
        "all are equally confident.",
        CONFIDENT,
    ),
    "mhr_figure6": _changes("cosine", "Figure 6", "which are 1 − cosine of two heads' outputs"),
    "mhr_figure7": _changes("l2", "Figure 7", "which are Euclidean, between two heads' outputs"),
    "mhr_spanish_curves": _curves("mhr/spanish", TRANSLATION_CURVES),
    "dpp_translation_curves": _curves("dpp/translation", TRANSLATION_CURVES),
    "dpp_heads": Drawing(
        partial(draw_separation, experiment="dpp/translation", figure="dpp_heads"),
        "dpp/translation",
        "What each loss did to the heads, on the words of the validation split: the mean cosine of the outputs of two "
        "heads (1: they say the same; the least for H heads is −1/(H − 1)), and the entropy of the attention (0: all "
        "of it on one word). Grey: a layer; blue: the mean over layers; dashed: that of the plain Transformer.",
    ),
    **{f"homeostasis_{task}_curves": _curves(f"homeostasis/{task}", TRANSLATION_CURVES) for task in HOMEOSTASIS},
    "homeostasis_figure1": _bleu(1, "training", "homeostasis/memorisation", *MEMORISED),
    "homeostasis_figure2": _bleu(2, "validation", "homeostasis/memorisation", *MEMORISED),
    "homeostasis_figure3": _bleu(3, "validation", "homeostasis/small", "baseline", "rfb-50", "rfb-80"),
    "homeostasis_figure4": _bleu(4, "validation", "homeostasis/small", "baseline", "rfb-50", larger=LARGER),
    "homeostasis_activations": Drawing(
        partial(draw_activations, shown=[(f"homeostasis/{task}", ()) for task in HOMEOSTASIS], figure="Activity"),
        "homeostasis/small",
        "How often the units of a model were active in the last training steps that are counted, of every variant with "
        "kWTA, RFB-kWTA or smart inhibition, all modules together. Thin: all units; thicker: nine tenths; thickest: "
        "half of them; circle: the median; black: s (of smart inhibition the median probability of being kept). What "
        "homeostasis is for is a narrow bar: no unit is idle, and none is always on. At the right of it, the standard "
        "deviation over the units.",
        BOOSTED,
        beside=tuple(f"homeostasis/{task}" for task in HOMEOSTASIS if task != "small"),
    ),
    "moa_translation_curves": _curves("moa/translation", TRANSLATION_CURVES),
    "moa_translation_routers": _routers("moa/translation", "moa-8-8", *SELECTIVE),
    "moa_translation_words": _words("moa/translation", *SELECTIVE),
    "moa_mlm_curves": _curves(
        "moa/mlm",
        "Training loss (mean over an epoch, dropout on) and validation perplexity by masked token, on a logarithmic "
        "axis, after each epoch; dashed: what the tokens' frequencies alone give.",
    ),
    "moa_mlm_routers": _routers("moa/mlm", "moa-8-8", *SELECTIVE[:2]),
    "moa_mlm_words": _words("moa/mlm", *SELECTIVE[:2]),
    "headtohead_translation_curves": _curves("headtohead/translation", TRANSLATION_CURVES),
    "headtohead_pareto": Drawing(
        partial(draw_pareto, experiment="headtohead/translation", figure="headtohead_pareto"),
        "headtohead/translation",
        "BLEU on the test set against the number of parameters (left) and the time of training (right, by the wall "
        "clock). Points are means over seeds, bars their 95 % intervals (Student's t), cut off at the border; a single "
        "seed has none. Blue, with the line through them: the Pareto front, methods for which no other has as much "
        "BLEU for less.",
    ),
    "headtohead_measures": Drawing(
        partial(draw_measures, experiment="headtohead/translation", figure="headtohead_measures"),
        "headtohead/translation",
        "What each method did to the heads, on the words of the validation split. Grey: an attention module, mean over "
        "seeds; blue: the mean over modules with its 95 % interval over seeds, if there are several; dashed: the plain "
        "Transformer's. Cosine and CKA are 1 where two heads say the same, the Jensen–Shannon distance is 0 where they "
        "look at the same words. The effective rank counts directions in which the outputs of all heads vary.",
    ),
}


def _pruning(experiment: str) -> Drawing:
    caption = (
        "The score on the test set with ever fewer heads: after training, heads are masked in the order of how little "
        "masking each alone adds to the validation loss, measured anew when half of them are gone, and nothing is "
        "trained again. Dashed: models of DEACON, by the number m of components that they were trained with."
    )
    return Drawing(partial(draw_pruning, paper=experiment.partition("/")[0]), experiment, caption)


# Drawn when they are asked for, from what `headdiv importance` stores; no run of a profile makes it.
TRANSLATIONS = ("deacon/translation", "mhr/translation", "dpp/translation", "homeostasis/small", "moa/translation")
ON_REQUEST = {f"{experiment.partition('/')[0]}_pruning": _pruning(experiment) for experiment in TRANSLATIONS}


def figures_of(configured: Iterable[tuple[str, str]]) -> dict[str, Drawing]:
    """The figures that a profile's runs allow.

    Args:
        configured: (experiment, variant) of every run.
    """
    variants: dict[str, set[str]] = {}
    for experiment, variant in configured:
        variants.setdefault(experiment, set()).add(variant)
    return {
        name: drawing
        for name, drawing in FIGURES.items()
        if (there := variants.get(drawing.experiment))
        and (not drawing.variants or there & set(drawing.variants))
        and there.issuperset(drawing.against)
    }


def drawing(name: str) -> Drawing:
    """The figure of this name.

    Raises:
        DataError: there is none.
    """
    known = FIGURES | ON_REQUEST
    if name not in known:
        raise DataError(f"figure {name!r} is not known; there are: {', '.join(known)}")
    return known[name]


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
