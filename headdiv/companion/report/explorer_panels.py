"""What the explorer shows of a text that is typed in: panels, each a figure, a table or one line of text."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from IPython.display import HTML, Markdown
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pandas.io.formats.style import Styler
from scipy.cluster import hierarchy

from headdiv.companion.commands import run_command
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import load_run
from headdiv.companion.models.batching import UNKNOWN_WORD
from headdiv.companion.report import explorer_view as explorer
from headdiv.companion.report.explorer_view import MEASURES, View
from headdiv.companion.report.formats import plural
from headdiv.companion.report.groups import KIND_LABELS, place_name
from headdiv.companion.report.plotting import BLUE, ORANGE, SMALL, STYLE, add_grid, new_figure, whole_ticks
from headdiv.companion.report.show import as_text
from headdiv.companion.tasks import TASKS
from headdiv.methods.deacon import Deacon
from headdiv.methods.registry import method_classes
from headdiv.plots import DIVERGING, bare, write_numbers

Shown = Figure | Styler | Markdown | HTML

WEIGHTS = "Blues"  # from white at 0


def look_at(
    profile: str,
    experiment: str | None = None,
    variant: str | None = None,
    seed: int | None = None,
    text: str | None = None,
    other: str | None = None,
    place: str | None = None,
    head: int = 1,
) -> View | Markdown:
    """What the panels below show; where none of these runs is trained on this machine, a line that says so.

    Args:
        profile: name, or path of a YAML file.
        experiment: ``<paper>/<task>``.
        variant: of the experiment.
        seed: of the run. Of what is left out the first trained run is taken, DEACON's before all others, since they
            alone have PCA layers.
        text: what the model reads, in question answering the passage; the test set's first where left out.
        other: question answering: the question. Translation and summarisation: the output that the decoder is given,
            the model's own where left out.
        place: the attention module ("encoder 1", "decoder 2", "cross 1"); the last one where left out.
        head: counted from 1.

    Raises:
        ConfigError: no such profile, or it has no such run.
        DataError: the model has no such place or head.
    """
    trained = explorer.trained_runs(profile, experiment, variant, seed)
    if not trained:
        of = "".join(f" {part}" for part in (experiment, variant, seed and f"seed {seed}") if part)
        first = Runs(profile).of(experiment, variant, seed)[0]
        command = run_command("train", first.experiment, first.variant, first.seed, profile)
        return Markdown(
            f"*Profile {profile} has no trained run{of and f' of{of}'} on this machine; `{command}` trains one.*"
        )
    config = min(trained, key=lambda config: not any(issubclass(cls, Deacon) for cls in method_classes(config.method)))
    return explorer.view_of(load_run(config), text, other, place, head)


def _of_a_view(show: Callable[..., Shown]) -> Callable[..., Shown]:
    """Where there is no run there is a line instead of a view: it is shown in every place."""

    @functools.wraps(show)
    def shown(view: View | Markdown, *options: Any, **named: Any) -> Shown:
        if isinstance(view, Markdown):
            return view
        with matplotlib.rc_context(STYLE):
            return show(view, *options, **named)

    return shown


def _module(view: View) -> str:
    kind, layer = view.place.split()
    return f"{KIND_LABELS[kind]}, layer {layer}"


# ---- attention

CELL = 0.26  # inches
SMALLEST_CELL = 0.13  # on which a label can still be read
MOST_LABELS = 80
LONGEST_LABEL = 18  # characters


@_of_a_view
def show_attention(view: View | Markdown) -> Shown:
    """The head's attention map: a row for each token that looks, a column for each that is looked at.

    One scale from 0 to the largest weight of the module's heads, so that heads can be compared.
    """
    found = view.attention()
    weights = found.weights[view.head - 1]  # (N, S)
    rows, columns = weights.shape
    cell = min(CELL, max(SMALLEST_CELL, 8 / max(rows, columns)), MOST_LABELS * SMALLEST_CELL / max(rows, columns))
    font = min(9.0, max(6.0, 0.7 * 72 * cell))
    labels = [[_shortened(token, LONGEST_LABEL) for token in side] for side in (found.queries, found.keys)]
    margins = [0.0085 * font * max(map(len, side)) + 0.5 for side in labels]  # inches
    size = columns * cell + margins[0] + 0.9, rows * cell + margins[1] + 0.6
    drawn, ((ax,),) = new_figure(max(size[0], 4.2), max(size[1], 2.4))
    image = ax.imshow(weights, cmap=WEIGHTS, vmin=0, vmax=float(found.weights.max()), interpolation="nearest")
    kind, sides = view.place.split()[0], TASKS[view.run.config.kind].sides
    queries, keys = sides[kind != "encoder"], sides[kind == "decoder"]
    for axis, side, name, role in (
        (ax.yaxis, labels[0], queries, "looks"),
        (ax.xaxis, labels[1], keys, "is looked at"),
    ):
        step = math.ceil(len(side) / MOST_LABELS)
        turned = {"rotation": 90} if axis is ax.xaxis else {}
        axis.set_ticks(range(0, len(side), step), side[::step], fontsize=font, parse_math=False, **turned)
        every = "" if step == 1 else f" (one label for {step} tokens)"
        axis.set_label_text(f"{name}: token that {role}{every}", fontsize=SMALL)
    bare(ax)
    _bar(ax, image, "attention weight")
    ax.set_title(f"{_module(view)}, head {view.head}\n{view.name}", loc="left")
    return drawn


def _shortened(token: str, most: int) -> str:
    return token if len(token) <= most else f"{token[: most - 1]}…"


SMALL_MAP = 150  # pixels
SMALL_LABEL = 11  # characters, of which the widest still fit
MOST_TOKENS = 40  # of a small map


@_of_a_view
def show_maps(view: View | Markdown, beside: View | None = None) -> Shown:
    """All heads of the module as small maps, each for up to 40 tokens; below them those of another run.

    The pointer shows a cell's tokens and weight. The chosen head is orange, and where there is
    room for words (up to 16 tokens), those that the model does not know.
    """
    return HTML("".join(_maps(one) for one in (view, beside) if one is not None))


def _maps(view: View) -> str:
    found = view.attention()
    weights = found.weights[:, :MOST_TOKENS, :MOST_TOKENS]
    heads, rows, columns = weights.shape
    cell, most = max(4, min(12, SMALL_MAP // max(rows, columns))), weights.max()
    side = 64 if cell > 8 else 16  # pixels beside and above the cells; of small ones there are no labels
    queries, keys = ([str(escape(token)) for token in side] for side in (found.queries, found.keys))
    labels = ""
    for i, query in enumerate(found.queries[:MOST_TOKENS] if cell > 8 else ()):
        labels += _label(side - 3, side + (i + 0.75) * cell, query, 'text-anchor="end"')
    for i, key in enumerate(found.keys[:MOST_TOKENS] if cell > 8 else ()):
        x = side + (i + 0.75) * cell
        labels += _label(x, side - 3, key, f'transform="rotate(-60 {x} {side})"')
    size = f'width="{side + columns * cell + 30}" height="{side + rows * cell + 4}"'
    maps = ""
    for head, of_head in enumerate(weights, start=1):
        cells = "".join(
            f'<rect x="{side + column * cell}" y="{side + row * cell}" width="{cell}" height="{cell}" fill="{BLUE}" '
            f'fill-opacity="{weight / most:.2f}"><title>{queries[row]} → {keys[column]}: {weight:.3f}</title></rect>'
            for (row, column), weight in np.ndenumerate(of_head)
        )
        name = f'<text x="2" y="12" fill="{ORANGE if head == view.head else "#333"}">{head}</text>'
        maps += f'<svg {size} style="background:#fff;font:9px sans-serif">{name}{labels}{cells}</svg>'
    return f"<p>{escape(view.name)}: {place_name(view.place)}, {plural(heads, 'head')}</p><div>{maps}</div>"


def _label(x: float, y: float, token: str, look: str) -> str:
    shown = escape(_shortened(token, SMALL_LABEL))
    return f'<text x="{x}" y="{y}" fill="{ORANGE if token == UNKNOWN_WORD else "#333"}" {look}>{shown}</text>'


def _bar(ax: Axes, image: AxesImage, label: str) -> None:
    """A colour bar as high as the axes, whatever their shape."""
    width = max(1.0, 0.7 * ax.figure.get_figwidth())  # inches, about
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1.03, 0, 0.18 / width, 1)))
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)


# ---- similarity

MOST_NUMBERS = 10  # rows of a matrix in which numbers can be read
MOST_TICKS = 16  # of a PCA layer's columns


def _side(rows: int) -> float:
    """Inches of a square matrix."""
    return max(2.6, (0.36 if rows <= MOST_NUMBERS else 0.28) * rows)


@_of_a_view
def show_likeness(view: View | Markdown, measure: str = "cosine") -> Shown:
    """How alike the module's heads are on the text, in the order of their clustering, its tree beside them.

    Args:
        view: of the head, which stands out.
        measure: one of `headdiv.companion.report.explorer_view.MEASURES`: "cosine", "correlation", "cka", "js".
    """
    similarity, scale = explorer.similarity(view, measure), MEASURES[measure]
    H = len(similarity)
    if H < 2:
        return Markdown(f"*{_module(view)} has a single head; similarity is between two or more.*")
    tree = hierarchy.dendrogram(explorer.clustered(similarity), no_plot=True)
    order = tree["leaves"]
    side = _side(H)
    drawn, ((left, ax),) = new_figure(side + 2.4, side + 0.9, 1, 2, width_ratios=(1, side), sharey=True)
    # scipy's leaves lie at 5, 15, 25, …, a head each.
    links = [
        list(zip(depths, (np.array(heights) - 5) / 10, strict=True))
        for heights, depths in zip(tree["icoord"], tree["dcoord"], strict=True)
    ]
    left.add_collection(LineCollection(links, colors="0.35", lw=1))
    deepest = max(max(depths) for depths in tree["dcoord"]) or 1.0
    left.set(xlim=(1.05 * deepest, 0), xlabel="1 − similarity")
    left.spines["left"].set_visible(False)
    left.tick_params(labelleft=False, left=False, labelsize=SMALL - 1)
    left.xaxis.set_major_locator(MaxNLocator(2))
    left.xaxis.label.set_fontsize(SMALL)
    look = {"cmap": DIVERGING, "vmin": -1} if scale.low < 0 else {"cmap": WEIGHTS, "vmin": 0}
    image = ax.imshow(similarity[np.ix_(order, order)], vmax=1, aspect="auto", interpolation="nearest", **look)
    if H <= MOST_NUMBERS:
        write_numbers(ax, image)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(range(H), [head + 1 for head in order])
    ax.tick_params(labelleft=True)
    bare(ax)
    at = order.index(view.head - 1)
    for label in (ax.get_xticklabels()[at], ax.get_yticklabels()[at]):
        label.set(color=ORANGE, fontweight="bold")
    ax.add_patch(Rectangle((-0.5, at - 0.5), H, 1, fill=False, ec=ORANGE, lw=1.5))
    ax.set(xlabel="head", ylabel="head", ylim=(H - 0.5, -0.5))
    _bar(ax, image, scale.label)
    drawn.suptitle(f"{_module(view)}: {scale.label}\n{view.name}", fontsize=9)
    return drawn


# ---- masking


@_of_a_view
def show_masking(view: View | Markdown) -> Shown:
    """The output with all heads and without this one, and how likely the first is to both: see `explorer.masking`."""
    return as_text(explorer.masking(view), "masking")


# ---- PCA weights and components

MOST_MARKERS = 20  # on a line


@_of_a_view
def show_components(view: View | Markdown) -> Shown:
    """A PCA layer's weights against the principal components of its inputs over the validation split.

    Left the absolute cosines, right the share of variance that columns keep beside the most that is possible.
    """
    found = explorer.components(view)
    if found is None:
        return Markdown(f"*{view.name} has no PCA layer in {_module(view)}; only DEACON puts one into attention.*")
    M, k = len(found.kept), len(found.best)
    side = _side(min(M, MOST_TICKS))
    drawn, ((left, right),) = new_figure(side + 5.2, side + 0.9, 1, 2, width_ratios=(side, 3.0))
    image = left.imshow(found.cosines, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if M <= MOST_NUMBERS:
        write_numbers(left, image)
    step = math.ceil(M / MOST_TICKS)
    for axis in (left.xaxis, left.yaxis):
        axis.set_ticks(range(0, M, step), range(1, M + 1, step))
    bare(left)
    left.set(xlabel="principal component of the inputs", ylabel="column of w")
    _bar(left, image, "|cosine|")
    style = {"lw": 1.2, "ms": 4 if k <= MOST_MARKERS else 0}
    right.plot(range(1, k + 1), found.best, color="0.45", marker="o", label="principal components", **style)
    right.plot(range(1, M + 1), found.kept, color=BLUE, marker="s", label="columns of w", **style)
    right.set(ylim=(0, 1.03), xlim=(0.5, k + 0.5), xlabel="how many, from the first", ylabel="variance in their span")
    whole_ticks(right, 8)
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    add_grid(right)
    right.legend(frameon=False, fontsize=SMALL, loc="lower right")
    kept, best = (100 * values[M - 1] for values in (found.kept, found.best))
    of = f"{plural(M, 'column')} for {plural(k, 'input')}"
    drawn.suptitle(
        f"{_module(view)}: {of} keep {kept:.1f} % of the variance, {best:.1f} % is possible\n{view.name}", fontsize=9
    )
    return drawn
