"""Figures of the homeostasis paper: BLEU by epoch, and how evenly units are active."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.companion.experiments.papers import BASELINE, load_paper
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import Record, RunResult, stored_files
from headdiv.companion.report import plotting
from headdiv.companion.report.curves import common_epochs
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.groups import Groups, chosen, labels_of, title
from headdiv.companion.report.looks import look_of, looks
from headdiv.core.errors import NotStoredError
from headdiv.core.settings import Settings

MOST_MARKERS = 25  # on a line, so that they do not run together
LOCATIONS = {False: "the heads, before W^O", True: "the blocks' outputs"}  # by whether it is a block
MECHANISMS = {"kwta": "kWTA", "rfb-kwta": "RFB-kWTA", "smart": "smart inhibition"}  # in this order
SAME = " = "  # between the names of one configuration
SPANS = ((0, 100, 1.0), (5, 95, 3.0), (25, 75, 7.0))  # percentiles, and the width of their bar

Selection = Sequence[tuple[str, Sequence[str]]]  # experiments, each with its variants; none: all


def _found(profile: str, shown: Selection, figure: str) -> Groups:
    """The stored runs of these experiments' variants, by "experiment variant".

    An experiment that the profile lacks, or that has none of the variants, is left out. Runs that are the same
    runs, for a profile may give two of the paper's models one size, are shown once, under both names: "one = other".

    Raises:
        DataError: nothing of it is stored.
    """
    runs, found = Runs(profile), {}
    for experiment, variants in shown:
        configs = runs.of(experiment) if experiment in runs.experiments() else []
        there = {config.variant for config in stored_files(profile, configs).values()}
        if there & set(variants or there):
            groups = chosen(profile, experiment, figure, variants)
            found |= {f"{experiment} {variant}": group for variant, group in groups.items()}
    if not found:
        names = (f"{experiment} ({', '.join(variants) or 'any'})" for experiment, variants in shown)
        raise NotStoredError(f"{figure} needs {' or '.join(names)} among the stored runs of profile {profile}")
    by_hash: dict[tuple[str, ...], list[str]] = {}
    for name, group in found.items():
        by_hash.setdefault(tuple(run.hash for run in group), []).append(name)
    return {SAME.join(names): found[names[0]] for names in by_hash.values()}


def _labels(names: Iterable[str]) -> dict[str, str]:
    """Each variant as the paper's table names it, after its task where there are several tasks."""
    pairs = {name: [one.split(" ") for one in name.split(SAME)] for name in names}
    several = len({experiment for several in pairs.values() for experiment, _ in several}) > 1
    return {
        name: SAME.join(
            (f"{experiment.partition('/')[2]}: " if several else "") + labels_of(experiment, [variant])[variant]
            for experiment, variant in ones
        )
        for name, ones in pairs.items()
    }


# ---- BLEU by epoch


class BleuOptions(Settings):
    """Whose BLEU by epoch is shown."""

    split: Literal["training", "validation"]


@figure_kind(
    "bleu",
    caption=(
        "BLEU by epoch"
        "BLEU of greedy translations of the first pairs of the {split} text after each epoch (the paper's "
        "{label}){and_larger}. It is computed over the vocabulary's words, with one reference each."
    ),
    Options=BleuOptions,
    compares=True,
)
def draw_bleu(profile: str, figure: FigureEntry) -> Figure:
    """BLEU by epoch, one line a variant; means over seeds.

    Of further experiments (``figure.beside``) the baselines are shown, and every model's number of parameters.
    """
    split, sizes = figure.options["split"], bool(figure.beside)
    key = f"{split}_bleu"
    shown = [(figure.experiment, figure.variants), *((other, (BASELINE,)) for other in figure.beside)]
    found = _found(profile, shown, figure.label)
    groups = {name: runs for name, runs in found.items() if all(hasattr(run.curve[0], key) for run in runs)}
    if not groups:  # a choice of the profile: no reason for a pipeline to break
        drawn, text = Figure(figsize=(6.4, 0.6)), "these runs did not measure BLEU after each epoch"
        drawn.text(0.5, 0.5, f"{figure.label}: {text} (train.epoch_scores is 0).", ha="center", va="center")
        return drawn
    labels = _labels(groups)
    drawn, ((ax,),) = plotting.new_figure(6.4, 4.0)
    look = looks({name: runs[0].config.method for name, runs in groups.items()})
    for name, runs in groups.items():
        curves = common_epochs([[getattr(point, key) for point in run.curve] for run in runs])
        values = curves.mean(axis=0)  # (epochs,)
        label = labels[name] + (f", {runs[0].parameters / 1e6:.1f} M parameters" if sizes else "")
        every = -(-len(values) // MOST_MARKERS)
        ax.plot(np.arange(1, len(values) + 1), values, lw=1.4, ms=4, markevery=every, label=label, **look[name])
    first = next(iter(groups.values()))[0]
    examples = first.training_examples if split == "training" else first.data.valid.examples
    pairs = min(first.config.train["epoch_scores"], examples)
    ax.set(xlabel="epoch", ylabel=f"{split} BLEU (0 to 100)")
    ax.set_ylim(bottom=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    plotting.add_grid(ax, "y")
    plotting.add_legend(drawn, [ax], columns=1 if sizes else 3, fontsize=plotting.SMALL)
    plotting.add_title(drawn, title(f"{figure.label} · {split.capitalize()} BLEU of {pairs:,} pairs", groups))
    return drawn


# ---- activations


class ActivityRecord(Record):
    """Artifact of homeostasis: of a module's units the share of rows in which each was active, in groups."""

    mechanism: str
    s: float
    shares: list[list[float]]


class Activity(NamedTuple):
    """Mechanism, s, and of every unit of all modules and seeds the share of rows in which it was active: (units,)."""

    mechanism: str
    s: float
    shares: np.ndarray


def activity_of(runs: list[RunResult], blocks: bool) -> Activity | None:
    """How often the units of a variant were active.

    Args:
        runs: of one variant.
        blocks: at the blocks' outputs, not at the heads.

    Returns:
        None where the variant has no mechanism there that counts.
    """
    found = [
        ActivityRecord.model_validate(record)
        for run in runs
        for module, record in run.heads.artifact("activations").items()
        if (" block " in module) == blocks
    ]
    if not found:
        return None
    return Activity(found[0].mechanism, found[0].s, np.concatenate([np.ravel(module.shares) for module in found]))


@figure_kind("activations")
def draw_activations(profile: str, figure: FigureEntry) -> Figure:
    """How often units were active in the last Q training steps: a line a variant, all modules and seeds together."""
    tasks = (f"{figure.paper}/{task}" for task in load_paper(figure.paper).tasks)  # in the paper's order
    groups = _found(
        profile, [(task, ()) for task in tasks if task in (figure.experiment, *figure.beside)], figure.label
    )
    counted = {name: {blocks: activity_of(runs, blocks) for blocks in LOCATIONS} for name, runs in groups.items()}
    first = {name: next(filter(None, found.values()), None) for name, found in counted.items()}  # the heads' before
    order = {name: (list(MECHANISMS).index(found.mechanism), found.s) for name, found in first.items() if found}
    if not order:
        raise NotStoredError(
            f"{figure.label} needs a run of kwta, rfb-kwta or smart among the stored runs of profile {profile}"
        )
    names = sorted(order, key=order.__getitem__)
    colours = {name: look_of({"name": "homeostasis", "attention": name})[0] for name in MECHANISMS}
    locations = [blocks for blocks in LOCATIONS if any(counted[name][blocks] for name in names)]
    width, height = 3.3 * len(locations) + 2.6, 0.42 * len(names) + 1.5
    drawn, axes = plotting.new_figure(width, height, 1, len(locations), sharey=True)
    for ax, blocks in zip(axes[0], locations, strict=True):
        at = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": plotting.SMALL}
        for y, name in enumerate(names):
            if found := counted[name][blocks]:
                _draw_activity(ax, y, found, colours[found.mechanism])
                ax.annotate(f"{found.shares.std():.3f}", (1.02, y), **at)
        ax.annotate("sd", (1.02, -0.75), **at)
        plotting.name_rows(ax, _labels(names).values(), top=-0.6)
        ax.set(xlim=(-0.02, 1.02), xlabel="share of rows in which a unit is active", title=LOCATIONS[blocks])
    seen = {found.mechanism for name in names for found in counted[name].values() if found}
    handles = [
        Line2D([], [], color=colours[name], lw=7, label=label) for name, label in MECHANISMS.items() if name in seen
    ]
    plotting.add_handles(drawn, [*handles, Line2D([], [], color="black", lw=1.2, label="s")], 4, plotting.SMALL)
    plotting.add_title(drawn, title("Activity of the units", {name: groups[name] for name in names}))
    return drawn


def _draw_activity(ax: Axes, y: float, found: Activity, colour: str) -> None:
    """All, nine tenths and half of the units as ever thicker bars, their median, and s."""
    for low, high, width in SPANS:
        ends = np.percentile(found.shares, [low, high])
        ax.plot(ends, [y, y], color=colour, lw=width, solid_capstyle="butt")
    ax.plot(np.median(found.shares), y, "o", color="white", mec=colour, ms=5)
    ax.plot([found.s, found.s], [y - 0.32, y + 0.32], color="black", lw=1.2)
