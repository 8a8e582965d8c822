"""Figures of the homeostasis paper: BLEU by epoch, and how evenly units are active."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.curves import common_epochs
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.groups import Groups, by_variant, labels_of, over_seeds, title, title_without_seeds
from headdiv.companion.report.looks import look_of, looks
from headdiv.companion.report.plotting import (
    SMALL,
    add_grid,
    add_handles,
    add_title,
    name_rows,
    new_figure,
    whole_ticks,
)
from headdiv.core.errors import NotStoredError

MOST_MARKERS = 25  # on a line, so that they do not run together
LOCATIONS = {False: "the heads, before W^O", True: "the blocks' outputs"}  # by whether it is a block
MECHANISMS = {"kwta": "kWTA", "rfb-kwta": "RFB-kWTA", "smart": "smart inhibition"}  # in this order
SPANS = ((0, 100, 1.0), (5, 95, 3.0), (25, 75, 7.0))  # percentiles, and the width of their bar


def _by_label(profile: str, experiments: Mapping[str, Sequence[str]]) -> Groups:
    """The stored runs of these variants of experiments, all where none is named, by label.

    "small: (A) Small" where there are several experiments; one of which nothing is stored is left out.
    """
    stored = {}
    for experiment, variants in experiments.items():
        with contextlib.suppress(NotStoredError):
            groups = by_variant(profile, experiment)
            selected = {name: groups[name] for name in variants or groups if name in groups}
            if selected:
                stored[experiment] = selected
    by_label = {}
    for experiment, groups in stored.items():
        task = experiment.partition("/")[2]
        for variant, label in labels_of(experiment, groups).items():
            by_label[f"{task}: {label}" if len(stored) > 1 else label] = groups[variant]
    return by_label


# ---- BLEU by epoch


@figure_kind(
    "bleu",
    caption=(
        "BLEU of greedy translations of the first pairs of the text after each epoch, computed over the vocabulary's "
        "words, with one reference each."
    ),
    setting="epoch_scores",
    compares=True,
)
def draw_bleu(profile: str, figure: FigureEntry, split: Literal["training", "validation"]) -> Figure:
    """BLEU by epoch, one line a variant; means over seeds.

    Of further experiments (``figure.beside``) the baselines are shown, and every model's number of parameters.
    """
    experiments = figure.experiments_in(Runs(profile))
    variants = {name: (BASELINE,) if name in figure.beside else figure.variants for name in experiments}
    key = f"{split}_bleu"
    groups = {
        label: runs
        for label, runs in _by_label(profile, variants).items()
        if all(hasattr(run.curve[0], key) for run in runs)
    }
    if not groups:
        raise NotStoredError(f"{figure.label}: no run has measured BLEU after each epoch (train.epoch_scores is 0)")
    styles = looks({label: runs[0].config.method for label, runs in groups.items()})
    fig, ((ax,),) = new_figure(6.4, 4.0)
    for label, runs in groups.items():
        bleu = common_epochs([[getattr(point, key) for point in run.curve] for run in runs]).mean(axis=0)  # (epochs,)
        size = f", {runs[0].parameters / 1e6:.1f} M parameters" if figure.beside else ""
        marker_step = -(-len(bleu) // MOST_MARKERS)
        x = np.arange(1, len(bleu) + 1)
        ax.plot(x, bleu, lw=1.4, ms=4, markevery=marker_step, label=label + size, **styles[label])
    first = next(iter(groups.values()))[0]
    examples = first.training_examples if split == "training" else first.data.valid["examples"]
    pairs = min(first.config.train["epoch_scores"], examples)
    ax.set(xlabel="epoch", ylabel=f"{split} BLEU (0 to 100)")
    ax.set_ylim(bottom=0)
    whole_ticks(ax, 9)
    add_grid(ax, "y")
    add_handles(fig, ax.get_legend_handles_labels()[0], 1 if figure.beside else 3, SMALL)
    add_title(fig, title(f"{figure.label} · {split.capitalize()} BLEU of {pairs:,} pairs", groups))
    return fig


# ---- activations


class Activity(NamedTuple):
    """Mechanism, s, and of every unit of all modules and seeds the share of rows in which it was active: (units,)."""

    mechanism: str
    s: float
    shares: np.ndarray


def activity_of(runs: list[RunResult], blocks: bool) -> Activity | None:
    """How often the units of a variant were active; None where it has no mechanism there that counts.

    Args:
        runs: of one variant.
        blocks: at the blocks' outputs, not at the heads.
    """
    modules = [
        activity
        for run in runs
        for module, activity in run.heads.get("activations", {}).items()
        if (" block " in module) == blocks
    ]
    if not modules:
        return None
    shares = np.concatenate([np.ravel(module["shares"]) for module in modules])
    return Activity(modules[0]["mechanism"], modules[0]["s"], shares)


@figure_kind(
    "activations",
    caption=(
        "How often a model's units were active in the last training steps counted, for every variant with kWTA, "
        "RFB-kWTA or smart inhibition, all modules and seeds together. Thin: all units; thicker: nine tenths of them; "
        "thickest: half; circle: the median; black: s (for smart inhibition the median probability of being kept). "
        "Homeostasis aims at a narrow bar: no unit is idle, none is always active. Right: the standard deviation over "
        "the units."
    ),
)
def draw_activations(profile: str, figure: FigureEntry) -> Figure:
    """How often units were active in the last Q training steps: a line a variant, all modules and seeds together."""
    groups = _by_label(profile, dict.fromkeys(figure.experiments_in(Runs(profile)), ()))
    activities = {label: {blocks: activity_of(runs, blocks) for blocks in LOCATIONS} for label, runs in groups.items()}
    order = {}
    for label, by_location in activities.items():
        if activity := by_location[False] or by_location[True]:
            order[label] = (list(MECHANISMS).index(activity.mechanism), activity.s)
    if not order:
        raise NotStoredError(f"{figure.label} needs a run of {', '.join(MECHANISMS)} among those of profile {profile}")
    labels = sorted(order, key=order.__getitem__)
    colours = {name: look_of({"name": "homeostasis", "attention": name})[0] for name in MECHANISMS}
    locations = [blocks for blocks in LOCATIONS if any(activities[label][blocks] for label in labels)]
    fig, axes = new_figure(3.3 * len(locations) + 2.6, 0.42 * len(labels) + 1.5, 1, len(locations), sharey=True)
    seen = set()
    for ax, blocks in zip(axes[0], locations, strict=True):
        annotation = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": SMALL}
        for y, label in enumerate(labels):
            if activity := activities[label][blocks]:
                seen.add(activity.mechanism)
                _draw_activity(ax, y, activity, colours[activity.mechanism])
                ax.annotate(f"{activity.shares.std():.3f}", (1.02, y), **annotation)
        ax.annotate("sd", (1.02, -0.75), **annotation)
        name_rows(ax, labels, top=-0.6)
        ax.set(xlim=(-0.02, 1.02), xlabel="share of rows in which a unit is active", title=LOCATIONS[blocks])
    handles = [
        Line2D([], [], color=colours[name], lw=7, label=label) for name, label in MECHANISMS.items() if name in seen
    ]
    add_handles(fig, [*handles, Line2D([], [], color="black", lw=1.2, label="s")], 4, SMALL)
    shown = {label: groups[label] for label in labels}
    seeds = over_seeds(shown).removeprefix("mean over ")  # no mean: the units of all seeds
    add_title(fig, f"{title_without_seeds('Activity of the units', shown)}, {seeds}")
    return fig


def _draw_activity(ax: Axes, y: float, activity: Activity, colour: str) -> None:
    """All, nine tenths and half of the units as ever thicker bars, their median, and s."""
    for low, high, width in SPANS:
        ends = np.percentile(activity.shares, [low, high])
        ax.plot(ends, [y, y], color=colour, lw=width, solid_capstyle="butt")
    ax.plot(np.median(activity.shares), y, "o", color="white", mec=colour, ms=5)
    ax.plot([activity.s, activity.s], [y - 0.32, y + 0.32], color="black", lw=1.2)
