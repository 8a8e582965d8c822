"""Figures of attention heads: PCA weights, mixing matrices, confidence, distances and similarity."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Literal

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from pydantic import Field

from headdiv.companion.analysis.statistics import interval
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.run_result import Record, RunResult
from headdiv.companion.report import plotting
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import as_printed
from headdiv.companion.report.groups import KIND_LABELS, Groups, by_module, kinds_of, labels_of, place_name, title
from headdiv.companion.report.looks import looks_of
from headdiv.companion.report.measures import MEASURES, measures_by_module
from headdiv.core.errors import DataError, NotStoredError
from headdiv.core.settings import Settings

Module = tuple[str, int]  # kind of attention; layer, counted from 1


def measure_by_module(run: RunResult, measure: str) -> dict[Module, np.ndarray]:
    """A measure of every attention module: (H,) by head, or (H, H) by pair of heads."""
    return {at: np.array(values[measure]) for at, values in by_module(run.heads.measures).items()}


def _layers(modules: Iterable[Module], kind: str) -> list[int]:
    return sorted(layer for k, layer in modules if k == kind)


# ---- PCA weights


class PCAWeights(Record):
    """Artifact of DEACON: how far the columns of a PCA layer's weights are from orthogonal.

    Attributes:
        place: the attention module ("encoder 1").
        cosines: of two columns each, (m, m).
    """

    place: str
    cosines: list[list[float]]
    mean_absolute_cosine: float


class PCAOptions(Settings):
    """How the cosines of PCA weights are shown."""

    limit: float = Field(gt=0, description="of the colours; 1 is the full scale")


@figure_kind("pca-weights", Options=PCAOptions)
def draw_pca_weights(profile: str, figure: FigureEntry) -> Figure:
    """Cosines between different columns of every PCA layer's weights, a row for each variant; first seeds.

    The diagonal, 1 by definition, is left out, so that the colours may show what lies off it, up to ``limit``; a cosine
    beyond that stands as a number in its cell. ``limit: 1`` is the full scale, with the diagonal. The paper shows one
    matrix an architecture and does not say of which attention module; here is every one.
    """
    groups, limit = plotting.runs_of_figure(profile, figure, "pca_weights"), figure.options["limit"]
    labels = labels_of(figure.experiment, groups)
    weights = {
        variant: [PCAWeights.model_validate(found) for found in runs[0].heads.artifact("pca_weights").values()]
        for variant, runs in groups.items()
    }
    columns = max(map(len, weights.values()))  # a variant may have layers of its own
    drawn, axes = plotting.new_figure(1.3 * columns + 1.3, 1.75 * len(groups) + 0.7, len(groups), columns)
    for row, (variant, modules) in zip(axes, weights.items(), strict=True):
        for ax in row[len(modules) :]:
            ax.set_visible(False)
        for ax, module in zip(row, modules, strict=False):
            cosines = np.array(module.cosines)
            hidden = np.eye(len(cosines), dtype=bool) & (limit < 1)
            plotting.draw_matrix(ax, np.ma.masked_array(cosines, hidden), Normalize(-limit, limit))
            for i, j in np.argwhere(~hidden & (abs(cosines) > limit + 1e-6)):
                ax.text(j + 0.5, i + 0.5, f"{cosines[i, j]:.2f}", size=4.5, color="white", ha="center", va="center")
            ax.set(aspect="equal", facecolor="0.85")  # the diagonal's
            said = f"mean |cos| {module.mean_absolute_cosine:.2f}"
            ax.set_title(place_name(module.place).replace(", ", ",\n") + f"\n{said}", fontsize=plotting.SMALL)
        row[0].set_ylabel(f"{labels[variant]}\ncomponent", fontsize=plotting.MEDIUM)
    for ax in axes[-1]:
        ax.set_xlabel("component", fontsize=plotting.SMALL)
    extend, ticks = "neither" if limit >= 1 else "both", [-limit, -limit / 2, 0, limit / 2, limit]
    what, image = "cosine of two columns of w", axes[0][0].collections[0]
    plotting.add_colour_bar(drawn, image, axes, what, extend=extend, ticks=ticks)
    plotting.add_title(drawn, title(f"{figure.label} · PCA weights of every attention module", groups, first=True))
    return drawn


# ---- Alphas


def skew_share(matrix: np.ndarray) -> float:
    """Share of the squares off the diagonal of (H, H) that belongs to the skew-symmetric part.

    1 where a_ij = −a_ji, 0 where a_ij = a_ji, one half on average for independent entries; NaN for a diagonal matrix.
    """
    off = matrix - np.diag(np.diag(matrix))
    total = float((off**2).sum())
    return float((((off - off.T) / 2) ** 2).sum()) / total if total else float("nan")


class Alphas(Record):
    """Artifact of mixing: the coefficients of which a module's heads become mixtures, (H, H), and their norm."""

    alphas: list[list[float]]
    nuclear_norm: float


class AlphasOptions(Settings):
    """What the caption says of Alphas."""

    how: str = Field("", description="they were trained: 'with the nuclear loss'")


@figure_kind(
    "alphas",
    caption=(
        "mixing matrices"
        "The Alphas of every attention module, trained {how} (the paper's {label}, which shows the decoder's "
        "self-attention). Row i holds the coefficients of the mixture that head i becomes. Colours show A minus the "
        "identity, where A starts: white is unchanged. Above each: its nuclear norm (at the start, the number of "
        "heads) and the share of the squared off-diagonal entries that belongs to the skew-symmetric part: 1 if "
        "opposite entries differ only in sign, 0 if they are equal, one half if they are unrelated."
    ),
    Options=AlphasOptions,
)
def draw_alphas(profile: str, figure: FigureEntry) -> Figure:
    """Every Alphas matrix of the variant's first seed, as its difference from the identity that it started from."""
    groups = plotting.runs_of_figure(profile, figure, "alphas")
    ((variant, runs),) = groups.items()
    found = by_module(runs[0].heads.artifact("alphas"))
    modules = {at: Alphas.model_validate(values) for at, values in found.items()}
    changes = {at: np.array(module.alphas) - np.eye(len(module.alphas)) for at, module in modules.items()}
    kinds, columns = kinds_of(modules), max(layer for _, layer in modules)
    drawn, axes = plotting.new_figure(max(1.55 * columns + 1.5, 6.5), 1.95 * len(kinds) + 0.7, len(kinds), columns)
    limit = max(float(np.abs(change).max()) for change in changes.values()) or 1.0
    for row, kind in zip(axes, kinds, strict=True):
        for layer, ax in enumerate(row, start=1):
            if (kind, layer) not in modules:
                ax.set_axis_off()
                continue
            change = changes[kind, layer]
            image = plotting.draw_matrix(ax, change, Normalize(-limit, limit))
            middles = [0.5, len(change) - 0.5]  # of the first head's cell and the last one's
            ax.set_xticks(middles, [1, len(change)])
            ax.set_yticks(middles, [1, len(change)])
            ax.tick_params(length=0, labelsize=plotting.SMALL)
            ax.set_aspect("equal")
            norm, skew = modules[kind, layer].nuclear_norm, as_printed(skew_share(change), 2)
            ax.set_title(f"layer {layer}: ‖A‖∗ = {norm:.2f}\nskew share {skew}", fontsize=plotting.SMALL)
        row[0].set_ylabel(f"{KIND_LABELS[kind].replace(' ', chr(10), 1)}\nnew head", fontsize=plotting.SMALL)
    for ax in axes[-1]:
        ax.set_xlabel("head", fontsize=plotting.SMALL)
    plotting.add_colour_bar(drawn, image, axes, "A − identity")
    label = labels_of(figure.experiment, [variant])[variant]
    plotting.add_title(drawn, title(f"{figure.label} · {label}", groups, first=True))
    return drawn


# ---- confidence


def ranked(runs: list[RunResult], measure: str) -> dict[Module, np.ndarray]:
    """A measure of each head of every module, in ascending order: (seeds, H).

    A head of one seed has no counterpart in another; the lowest of one and the lowest of the other have.
    """
    by_seed = [measure_by_module(run, measure) for run in runs]
    return {at: np.sort([values[at] for values in by_seed], axis=1) for at in by_seed[0]}


@figure_kind("confidence", compares=True)
def draw_confidence(profile: str, figure: FigureEntry) -> Figure:
    """Confidence of every head by kind and layer, and how unequal the heads of a layer are.

    Means over seeds: of heads with the same rank in their layer, and of the standard deviations over its heads.
    """
    groups = plotting.runs_of_figure(profile, figure, "measures")
    heads = {variant: ranked(runs, "confidence") for variant, runs in groups.items()}
    labels, look = labels_of(figure.experiment, groups), looks_of(figure.experiment, groups)
    every = dict.fromkeys(chain.from_iterable(heads.values()))  # a variant may have layers of its own
    kinds = kinds_of(every)
    drawn, axes = plotting.new_figure(2.9 * len(kinds) + 0.5, 5.0, 2, len(kinds), sharey="row", height_ratios=(3, 2))
    step = 0.8 / len(groups)
    for (upper, lower), kind in zip(axes.T, kinds, strict=True):
        for (variant, confidence), offset in zip(heads.items(), plotting.side_by_side(len(groups), step), strict=True):
            colour, marker, layers = look[variant]["color"], look[variant]["marker"], _layers(confidence, kind)
            for at, layer in zip(np.array(layers) + offset, layers, strict=True):
                each = confidence[kind, layer].mean(axis=0)  # (H,)
                upper.plot([at] * len(each), each, ls="", ms=3.5, alpha=0.75, mew=0, color=colour, marker=marker)
                upper.hlines(each.mean(), at - 0.45 * step, at + 0.45 * step, color=colour, lw=1.5)
            deviations = [confidence[kind, layer].std(axis=1).mean() for layer in layers]
            lower.plot(layers, deviations, ms=4.5, lw=1.2, label=labels[variant], **look[variant])
        upper.set_title(KIND_LABELS[kind])
        for ax in (upper, lower):
            plotting.number_layers(ax, _layers(every, kind))
            plotting.add_grid(ax, "y")
    axes[0][0].set_ylabel("confidence of each head\n(0 to 1; bar: mean of the layer)")
    axes[1][0].set_ylabel("standard deviation\nover a layer's heads")
    axes[1][0].margins(y=0.1)
    axes[1][0].set_ylim(bottom=0)
    plotting.add_legend(drawn, axes[1][:1])
    plotting.add_title(drawn, title(f"{figure.label} · Confidence", groups))
    return drawn


# ---- distances between heads


DISTANCES = {"cosine": "cosine difference", "l2": "Euclidean distance"}


def discrepancy(pairs: np.ndarray, distance: str) -> float:
    """Total discrepancy of a module's heads: the L₁,₁ norm of the matrix of their distances.

    Args:
        pairs: cosines or Euclidean distances of every two heads' outputs, (H, H).
        distance: "cosine": of 1 − cosine, from 0 (the same direction) to 2; "l2": of Euclidean distances.
    """
    return float(np.abs(1 - pairs if distance == "cosine" else pairs).sum())


def changes(groups: Groups, base: str, distance: str) -> dict[str, dict[Module, float]]:
    """By variant and module, in percent, how far its total discrepancy is above (+) or below (−) that of ``base``.

    Formed seed by seed; mean over the seeds that both have, for the modules that both have. A variant that has none in
    common has {}.

    Raises:
        DataError: a module has a single head.
    """
    totals: dict[str, dict[int, dict[Module, float]]] = {}
    for variant, runs in groups.items():
        pairs = {run.seed: measure_by_module(run, distance) for run in runs}
        for (kind, layer), values in pairs[runs[0].seed].items():
            if len(values) < 2:
                raise DataError(f"{variant}, {kind} {layer} has a single head; distances are between two or more")
        totals[variant] = {
            seed: {at: discrepancy(values, distance) for at, values in modules.items()}
            for seed, modules in pairs.items()
        }
    bases, found = totals.pop(base), {}
    for variant, by_seed in totals.items():
        both = [(mine, bases[seed]) for seed, mine in by_seed.items() if seed in bases]
        modules = [at for at in both[0][0] if at in both[0][1]] if both else []
        found[variant] = {at: float(np.mean([100 * (mine[at] / its[at] - 1) for mine, its in both])) for at in modules}
    return found


class ChangesOptions(Settings):
    """Which distance of heads is compared."""

    distance: Literal["cosine", "l2"]
    definition: str = Field("", description="of the distances, for the caption")


@figure_kind(
    "changes",
    caption=(
        "distances between heads"
        "How far apart the heads of a layer are, against the baseline (the paper's {label}): change in percent of the "
        "L₁,₁ norm of the matrix of their distances, {definition}, mean over the words of the validation split. Above "
        "zero the heads are further apart than the baseline's, below zero closer together."
    ),
    Options=ChangesOptions,
    compares=True,
)
def draw_changes(profile: str, figure: FigureEntry) -> Figure:
    """Change of the heads' total discrepancy against the baseline of the same seed, by kind and layer."""
    groups, (base,) = plotting.runs_of_figure(profile, figure, "measures"), figure.against
    if base not in groups or len(groups) == 1:
        names = " or ".join(figure.variants)
        raise NotStoredError(f"{figure.label} needs {base} and {names} among the stored runs of profile {profile}")
    distance = figure.options["distance"]
    change = changes(groups, base, distance)
    labels, look = labels_of(figure.experiment, groups), looks_of(figure.experiment, groups)
    modules = by_module(groups[base][0].heads.measures)
    kinds, width = kinds_of(modules), 0.8 / len(change)
    drawn, axes = plotting.new_figure(2.9 * len(kinds) + 0.5, 3.4, 1, len(kinds), sharey=True)
    for ax, kind in zip(axes[0], kinds, strict=True):
        layers = _layers(modules, kind)
        for (variant, values), offset in zip(change.items(), plotting.side_by_side(len(change), width), strict=True):
            heights = [values.get((kind, layer), np.nan) for layer in layers]
            label = labels[variant] if values else f"{labels[variant]}: no seed in common"
            ax.bar(np.array(layers) + offset, heights, 0.92 * width, color=look[variant]["color"], label=label)
        ax.axhline(0, color="0.2", lw=1)
        ax.set_title(KIND_LABELS[kind])
        plotting.add_grid(ax, "y")
        plotting.number_layers(ax, layers)
    axes[0][0].set_ylabel(f"change of the total {DISTANCES[distance]}\nagainst the baseline (%)")
    plotting.add_legend(drawn, axes[0][:1])
    seeds = {run.seed for run in groups[base]}
    shown = {variant: [run for run in groups[variant] if run.seed in seeds] for variant, of in change.items() if of}
    what = f"{figure.label} · Total {DISTANCES[distance]} of a layer's heads"
    plotting.add_title(drawn, title(what, shown or groups))
    return drawn


# ---- all measures

KIND_MARKERS = {"encoder": "o", "decoder": "^", "cross": "s"}


@figure_kind("measures")
def draw_measures(profile: str, figure: FigureEntry) -> Figure:
    """Every head measure by variant: each module, and their mean with its interval over seeds.

    What no run has is left out.
    """
    groups = plotting.runs_of_figure(profile, figure, "measures")
    labels = labels_of(figure.experiment, groups)
    kinds = {  # of a variant's modules; it may have layers of its own
        variant: [place.partition(" ")[0] for place in runs[0].heads.measures] for variant, runs in groups.items()
    }
    values = {  # (seeds, modules) by variant
        name: {variant: np.array([measures_by_module(run, name) for run in runs]) for variant, runs in groups.items()}
        for name in MEASURES
    }
    shown = {name: of for name, of in values.items() if not all(np.isnan(one).all() for one in of.values())}
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    drawn, axes = plotting.new_figure(9.2, rows * (0.24 * len(groups) + 0.9) + 0.6, rows, columns, sharey=True)
    for ax, (name, of) in zip(axes.flat, shown.items(), strict=False):
        for line, (variant, modules) in enumerate(of.items()):
            for mean, kind in zip(modules.mean(axis=0), kinds[variant], strict=True):
                ax.plot(mean, line + 0.3, KIND_MARKERS[kind], color="0.7", ms=3, mew=0)
            plotting.add_interval(ax, line, interval(modules.mean(axis=1).tolist()), "D", color=plotting.BLUE)
        if BASELINE in of:
            ax.axvline(of[BASELINE].mean(), color="0.35", lw=1, ls="--", zorder=0)
        plotting.name_rows(
            ax,
            [plotting.wrapped(label, 26) for label in labels.values()],
            xlabel=plotting.wrapped(MEASURES[name][0], 26),
        )
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.tick_params(labelsize=plotting.SMALL)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    dot = {"ls": "none", "color": "0.7", "ms": 4}
    handles = [
        Line2D([], [], marker=KIND_MARKERS[kind], label=KIND_LABELS[kind], **dot)
        for kind in dict.fromkeys(chain.from_iterable(kinds.values()))
    ]
    handles.append(Line2D([], [], marker="D", ls="-", color=plotting.BLUE, ms=4, label="mean over modules"))
    if BASELINE in groups:
        handles.append(Line2D([], [], ls="--", lw=1, color="0.35", label=labels[BASELINE]))
    plotting.add_handles(drawn, handles, 5, plotting.SMALL)
    plotting.add_title(drawn, title("Heads, variant by variant", groups))
    return drawn
