"""Drawings of the homeostasis paper: BLEU by epoch, and how evenly units are active."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headdiv.core.errors import DataError
from headdiv.experiments.profiles import Runs
from headdiv.experiments.results import Metrics, metrics_path
from headdiv.report.groups import Groups, chosen, labels_of, title
from headdiv.report.heads import MARKS, SMALL

SPLITS = {"training_bleu": ("training", "train"), "validation_bleu": ("validation", "valid")}  # words; the data's key
LINES = ("-", "--", "-.", ":")  # what coincides stays visible
MOST_MARKS = 25  # of a line, so that they do not run together
PLACES = {False: "the heads, before $W^O$", True: "the blocks' outputs"}  # by whether it is a block
MECHANISMS = ("kwta", "rfb-kwta", "smart")
SPANS = ((0, 100, 1.0), (5, 95, 3.0), (25, 75, 7.0))  # percentiles, and the width of their bar


def _found(profile: str, shown: Sequence[tuple[str, Sequence[str]]], figure: str) -> Groups:
    """The stored runs of these experiments' variants (none named: of all), by "experiment variant".

    An experiment that the profile lacks, or that has none of the variants, is left out.

    Raises:
        DataError: nothing of it is stored.
    """
    runs, found = Runs(profile), {}
    for experiment, variants in shown:
        configs = runs.of(experiment) if experiment in runs.experiments() else []
        there = {c.variant for c in configs if metrics_path(profile, experiment, c.variant, c.seed).is_file()}
        if there & set(variants or there):
            groups = chosen(profile, experiment, figure, variants)
            found |= {f"{experiment} {variant}": group for variant, group in groups.items()}
    if not found:
        names = (f"{experiment} ({', '.join(variants) or 'any'})" for experiment, variants in shown)
        raise DataError(f"{figure} needs one of {', '.join(names)} among the stored runs of profile {profile}")
    return found


def _labels(names: Iterable[str]) -> dict[str, str]:
    """What the paper calls each variant, behind its task where there are several."""
    told = [name.split(" ") for name in names]
    several = len({experiment for experiment, _ in told}) > 1
    return {
        f"{experiment} {variant}": (f"{experiment.partition('/')[2]}: " if several else "")
        + labels_of(experiment, [variant])[variant]
        for experiment, variant in told
    }


# ---- BLEU by epoch


def draw_bleu(
    profile: str, shown: Sequence[tuple[str, Sequence[str]]], key: str, figure: str, sizes: bool = False
) -> Figure:
    """BLEU by epoch, one line a variant; means over seeds.

    Args:
        profile: name or path of a profile.
        shown: experiments, each with its variants; those that the profile lacks are left out.
        key: "training_bleu" or "validation_bleu".
        figure: what title and errors call it.
        sizes: name every model's parameters, too.

    Raises:
        DataError: nothing of it is stored.
    """
    found = _found(profile, shown, figure)
    groups = {name: runs for name, runs in found.items() if all(key in run["curve"][0] for run in runs)}
    if not groups:  # a choice of the profile: no reason for a pipeline to break
        return _sentence(f"{figure}: in these runs no BLEU was taken after the epochs (train.epoch_scores is 0).")
    labels = _labels(groups)
    drawn = Figure(figsize=(6.4, 4.0), layout="constrained")
    ax = drawn.subplots()
    for number, ((name, runs), colour) in enumerate(
        zip(groups.items(), sns.color_palette("colorblind", len(groups)), strict=True)
    ):
        values = np.array([[point[key] for point in run["curve"]] for run in runs]).mean(axis=0)  # (epochs,)
        label = labels[name] + (f", {runs[0]['parameters'] / 1e6:.1f} M parameters" if sizes else "")
        epochs = np.arange(1, len(values) + 1)
        look = {"marker": MARKS[number % len(MARKS)], "ms": 4, "markevery": -(-len(values) // MOST_MARKS)}
        ax.plot(epochs, values, color=colour, lw=1.4, ls=LINES[number % len(LINES)], label=label, **look)
    first = next(iter(groups.values()))[0]
    pairs = min(first["config"]["train"]["epoch_scores"], first["data"][SPLITS[key][1]]["examples"])
    ax.set(xlabel="epoch", ylabel=f"{SPLITS[key][0]} BLEU (0 to 100)")
    ax.set_ylim(bottom=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(axis="y", color="0.92")
    ax.set_axisbelow(True)
    drawn.legend(loc="outside lower center", ncols=1 if sizes else 3, frameon=False, fontsize=SMALL)
    drawn.suptitle(title(f"{figure} · {SPLITS[key][0].capitalize()} BLEU of {pairs:,} pairs", groups), fontsize=10)
    return drawn


def _sentence(said: str) -> Figure:
    drawn = Figure(figsize=(6.4, 0.6))
    drawn.text(0.5, 0.5, said, ha="center", va="center")
    return drawn


# ---- activations


def shares_of(runs: list[Metrics], blocks: bool) -> tuple[str, float, np.ndarray] | None:
    """Mechanism, s, and of every unit of all modules and seeds the share of rows in which it was active: (units,).

    Args:
        runs: of one variant.
        blocks: at the blocks' outputs, not at the heads.

    Returns:
        None where the variant has no mechanism there that counts.
    """
    told = [
        told
        for run in runs
        for place, told in run["heads"].get("activations", {}).items()
        if (" block " in place) == blocks
    ]
    if not told:
        return None
    return told[0]["mechanism"], told[0]["s"], np.concatenate([np.ravel(module["shares"]) for module in told])


def draw_activations(profile: str, shown: Sequence[tuple[str, Sequence[str]]], figure: str) -> Figure:
    """How often units were active in the last Q training steps: a line a variant, all modules and seeds together.

    Raises:
        DataError: nothing of it is stored, or no run of it counts activations.
    """
    groups = _found(profile, shown, figure)
    counted = {
        name: told for name, runs in groups.items() if any(told := [shares_of(runs, blocks) for blocks in PLACES])
    }
    if not counted:
        raise DataError(f"{figure} needs a run of kwta, rfb-kwta or smart among the stored runs of profile {profile}")
    counted = dict(sorted(counted.items(), key=lambda item: _order(item[1])))
    places = [blocks for blocks in PLACES if any(told[blocks] for told in counted.values())]
    drawn = Figure(figsize=(3.3 * len(places) + 2.6, 0.42 * len(counted) + 1.5), layout="constrained")
    axes = drawn.subplots(1, len(places), sharey=True, squeeze=False)[0]
    colours = dict(zip(MECHANISMS, sns.color_palette("colorblind"), strict=False))
    for ax, blocks in zip(axes, places, strict=True):
        for y, told in enumerate(counted.values()):
            if told[blocks] is None:
                continue
            mechanism, s, shares = told[blocks]
            _spread(ax, y, shares, colours[mechanism])
            ax.plot([s, s], [y - 0.32, y + 0.32], color="black", lw=1.2)
            ax.annotate(
                f"{shares.std():.3f}", (1.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL
            )
        ax.annotate("sd", (1.02, -0.75), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)
        ax.set(xlim=(-0.02, 1.02), xlabel="share of rows in which a unit is active", title=PLACES[blocks])
        ax.grid(axis="x", color="0.92")
        ax.set_axisbelow(True)
    names = _labels(counted)
    axes[0].set(yticks=range(len(names)), yticklabels=names.values(), ylim=(len(names) - 0.5, -0.6))
    seen = {told[0] for both in counted.values() for told in both if told}
    handles = [Line2D([], [], color=colours[name], lw=7, label=name) for name in MECHANISMS if name in seen]
    handles.append(Line2D([], [], color="black", lw=1.2, label="s"))
    drawn.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=SMALL)
    drawn.suptitle(title("Activity of the units", {name: groups[name] for name in counted}), fontsize=10)
    return drawn


def _order(told: list[tuple[str, float, np.ndarray] | None]) -> tuple[int, float]:
    """By mechanism, then by s; that of the heads counts first."""
    mechanism, s, _ = next(one for one in told if one)
    return MECHANISMS.index(mechanism), s


def _spread(ax: Axes, y: float, shares: np.ndarray, colour: tuple[float, float, float]) -> None:
    """Everything, nine tenths and a half of the units as ever thicker bars, and their median."""
    for low, high, width in SPANS:
        ends = np.percentile(shares, [low, high])
        ax.plot(ends, [y, y], color=colour, lw=width, solid_capstyle="butt")
    ax.plot(np.median(shares), y, "o", color="white", mec=colour, ms=5)
