"""The explorer: what one head does with a text that is typed in, as four panels that follow a few controls."""

from __future__ import annotations

import functools
import math
import textwrap

import matplotlib
import numpy as np
from IPython.display import Markdown, display
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.cluster import hierarchy

from headdiv.analysis.masking import heads_of
from headdiv.companion.commands import run_command
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import load_run
from headdiv.companion.report.explorer_view import (
    MEASURES,
    View,
    clustered,
    components,
    masking,
    similarity,
    trained_runs,
    view_of,
)
from headdiv.companion.report.formats import plural, shortened
from headdiv.companion.report.groups import KIND_LABELS, place_name
from headdiv.companion.report.plotting import BLUE, ORANGE, SMALL, STYLE, add_grid, whole_ticks
from headdiv.companion.tasks.base import Run
from headdiv.core import progress
from headdiv.core.errors import DataError, HeaddivError
from headdiv.methods.deacon import Deacon
from headdiv.methods.registry import method_classes
from headdiv.plots import DIVERGING, bare, write_numbers

WEIGHTS = "Blues"  # from white at 0
SIZE = (13, 10.5)  # inches of the four panels
MOST_LABELS = 48  # of an axis of tokens
LONGEST_LABEL = 18  # characters
MOST_NUMBERS = 10  # rows of a matrix in which numbers can be read
MOST_TICKS = 16  # of a PCA layer's columns
MOST_MARKERS = 20  # on a line
LINE = 72  # characters of a line of output


def explore(
    profile: str,
    experiment: str | None = None,
    variant: str | None = None,
    seed: int | None = None,
    text: str | None = None,
    other: str | None = None,
    place: str | None = None,
    head: int = 1,
    measure: str = "cosine",
) -> Figure | Markdown | None:
    """Controls with four panels below them; where a notebook is executed as a step of the pipeline, the panels alone.

    Args:
        profile: name, or path of a YAML file; the runs to choose from are those that are trained on this machine.
        experiment: ``<paper>/<task>``. It, variant, seed and all that follows are what the controls begin with.
        variant: of the experiment.
        seed: of the run. Of what is left out the first trained run is taken, DEACON's before all others, since they
            alone have PCA layers.
        text: what the model reads, in question answering the passage; the test set's first where left out.
        other: question answering: the question. Translation and summarisation: the output that the decoder is given,
            the model's own where left out.
        place: the attention module ("encoder 1", "decoder 2", "cross 1"); the last one where left out.
        head: counted from 1.
        measure: of similarity: "cosine", "correlation", "cka", "js".

    Returns:
        The panels where there are no controls; a line of text where none of these runs is trained on this machine.

    Raises:
        ConfigError: no such profile, or it has no such run.
        DataError: the model has no such place or head.
    """
    trained = trained_runs(profile, experiment, variant, seed)
    if not trained:
        first = Runs(profile).of(experiment, variant, seed)[0]
        command = run_command("train", first.experiment, first.variant, first.seed, profile)
        return Markdown(f"*Profile {profile} has no such trained run on this machine; `{command}` trains one.*")
    config = min(trained, key=lambda config: not any(issubclass(cls, Deacon) for cls in method_classes(config.method)))
    run = load_run(config)
    view = view_of(run, text, other, place, head)
    if not progress.interactive():
        return draw_view(view, measure)
    _show_controls(profile, run, view, text or "", other or "", measure)
    return None


def _show_controls(profile: str, run: Run, view: View, text: str, other: str, measure: str) -> None:
    import ipywidgets

    configs = {config.label: config for config in trained_runs(profile)}
    loaded = functools.cache(lambda label: run if label == run.config.label else load_run(configs[label]))
    wide = ipywidgets.Layout(width="98%")
    runs = ipywidgets.Dropdown(options=list(configs), value=run.config.label, layout=wide)
    places = ipywidgets.Dropdown()

    def follow(_: object = None) -> None:
        """Modules to choose from are the run's; the choice stays where it can."""
        there, chosen = list(heads_of(loaded(runs.value).model)), places.value or view.place
        places.options = [(place_name(name), name) for name in there]
        places.value = chosen if chosen in there else there[-1]

    def show(run: str, text: str, other: str, place: str, head: int, measure: str) -> None:
        try:
            with progress.hidden():
                figure = draw_view(view_of(loaded(run), text or None, other or None, place, head), measure)
            display(figure)
        except HeaddivError as error:
            display(Markdown(str(error)))

    follow()
    runs.observe(follow, "value")
    # Lines, not areas: Enter ends the typing, and the panels follow.
    ipywidgets.interact(
        show,
        run=runs,
        text=ipywidgets.Text(text, placeholder="the test set's first text", continuous_update=False, layout=wide),
        other=ipywidgets.Text(
            other, placeholder="a question, or the decoder's text", continuous_update=False, layout=wide
        ),
        place=places,
        head=ipywidgets.BoundedIntText(view.head, min=1, max=max(heads_of(run.model).values())),
        measure=ipywidgets.Dropdown(options=[(found.label, name) for name, found in MEASURES.items()], value=measure),
    )


def draw_view(view: View, measure: str = "cosine") -> Figure:
    """Four panels: where the head looks, which heads are like it, what is lost without it, its module's PCA layer.

    A panel that has nothing to show says why. ``measure``: one of `headdiv.companion.report.explorer_view.MEASURES`.

    Raises:
        DataError: no such measure, or a text that the model cannot read.
    """
    view.attention()  # refuses a text once, not panel by panel
    if measure not in MEASURES:
        similarity(view, measure)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        attention, likeness, lost, parts = figure.subfigures(2, 2, wspace=0.04, hspace=0.04).flat
        for part, draw in (
            (attention, draw_attention),
            (likeness, functools.partial(draw_likeness, measure=measure)),
            (lost, draw_masking),
            (parts, draw_components),
        ):
            try:
                draw(part, view)
            except HeaddivError as error:
                _write(part, str(error))
        figure.suptitle(f"{view.name}: {_module(view)}, head {view.head}")
    return figure


def _module(view: View) -> str:
    kind, layer = view.place.split()
    return f"{KIND_LABELS[kind]}, layer {layer}"


def _write(part: SubFigure, text: str) -> None:
    ax = part.subplots()
    ax.set_axis_off()
    lines = "\n".join(textwrap.fill(line, LINE) for line in text.split("\n"))
    ax.text(0, 1, lines, va="top", transform=ax.transAxes, parse_math=False)


def draw_attention(part: SubFigure, view: View) -> None:
    """The head's attention map: a row for each token that looks, a column for each that is looked at.

    One scale from 0 to the largest weight of the module's heads, so that heads can be compared.
    """
    found = view.attention()
    ax = part.subplots()
    highest = float(found.weights.max())
    image = ax.imshow(
        found.weights[view.head - 1], cmap=WEIGHTS, vmin=0, vmax=highest, aspect="auto", interpolation="nearest"
    )  # (N, S)
    kind, sides = view.place.split()[0], view.run.task.sides
    queries, keys = sides[kind != "encoder"], sides[kind == "decoder"]
    for axis, tokens, name in (
        (ax.yaxis, found.queries, f"{queries}: token that looks"),
        (ax.xaxis, found.keys, f"{keys}: token that is looked at"),
    ):
        step = math.ceil(len(tokens) / MOST_LABELS)
        labels = [
            token if len(token) <= LONGEST_LABEL else f"{token[: LONGEST_LABEL - 1]}…" for token in tokens[::step]
        ]
        axis.set_ticks(
            range(0, len(tokens), step), labels, fontsize=min(9, max(6, 240 / len(labels))), parse_math=False
        )
        axis.set_label_text(name + (f" (one label for {step} tokens)" if step > 1 else ""), fontsize=SMALL)
    ax.xaxis.set_tick_params(labelrotation=90)
    bare(ax)
    part.colorbar(image, ax=ax).set_label("attention weight", fontsize=SMALL)
    part.suptitle("Where it looks", fontsize=9)


def draw_likeness(part: SubFigure, view: View, measure: str = "cosine") -> None:
    """How alike the module's heads are on the text, in the order of their clustering, its tree beside them.

    The view's head stands out.
    """
    alike, scale = similarity(view, measure), MEASURES[measure]
    H = len(alike)
    if H < 2:
        raise DataError(f"{_module(view)} has a single head; similarity is between two or more.")
    tree = hierarchy.dendrogram(clustered(alike), no_plot=True)
    order = tree["leaves"]
    left, ax = part.subplots(1, 2, width_ratios=(1, 4), sharey=True)
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
    image = ax.imshow(alike[np.ix_(order, order)], vmax=1, aspect="auto", interpolation="nearest", **look)
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
    part.colorbar(image, ax=ax).set_label(scale.label, fontsize=SMALL)
    part.suptitle("Which heads say the same", fontsize=9)


def draw_masking(part: SubFigure, view: View) -> None:
    """The output with all heads and without this one, and how likely the first is to both (`masking`)."""
    table = masking(view)
    output, number = table.columns
    lines = [f"{name}:\n{shortened(row[output])}\n{number}: {row[number]:.3f}\n" for name, row in table.iterrows()]
    _write(part, "\n".join(lines))
    part.suptitle("What is lost without it", fontsize=9)


def draw_components(part: SubFigure, view: View) -> None:
    """A PCA layer's weights against the principal components of its inputs over the validation split.

    Left the absolute cosines, right the share of variance that columns keep beside the most that is possible.
    """
    found = components(view)
    if found is None:
        raise DataError(f"{view.name} has no PCA layer in {_module(view)}; only DEACON puts one into attention.")
    M, k = len(found.kept), len(found.best)
    left, right = part.subplots(1, 2)
    image = left.imshow(found.cosines, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if M <= MOST_NUMBERS:
        write_numbers(left, image)
    step = math.ceil(M / MOST_TICKS)
    for axis in (left.xaxis, left.yaxis):
        axis.set_ticks(range(0, M, step), range(1, M + 1, step))
    bare(left)
    left.set(xlabel="principal component of the inputs", ylabel="column of w")
    part.colorbar(image, ax=left).set_label("|cosine|", fontsize=SMALL)
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
    part.suptitle(f"{of} keep {kept:.1f} % of the variance, {best:.1f} % is possible", fontsize=9)
