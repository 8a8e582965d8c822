"""Does diversity go with the score? BLEU against measures of how alike heads are, over all runs of an experiment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.report.figure_kinds import FigureEntry, figure_kind
from headdiv.companion.report.formats import as_printed, plural, signed
from headdiv.companion.report.groups import Groups, runs_of_figure, title_without_seeds
from headdiv.companion.report.looks import Look, looks
from headdiv.companion.report.measures import MEASURES, SCORE, mean_measure
from headdiv.companion.report.plotting import (
    SMALL,
    add_grid,
    add_handles,
    add_title,
    new_figure,
    spread_around_zero,
)
from headdiv.companion.tasks.bleu import SAMPLES, SEED
from headdiv.methods import METHODS

SHOWN = ("cka", "cosine", "effective_rank")
FAR = 10  # BLEU from the median variant: a model that has learnt little
FEWEST = 5  # variants; with fewer a curve says nothing
LONE = 0.4  # of an axis' width: a method is left out where all others fill less
POINT = {"ls": "none", "ms": 6, "alpha": 0.7, "mew": 0.5, "mec": "0.2"}


class Relation(NamedTuple):
    """How a measure and the score go together over runs."""

    rho: float  # Spearman's rank correlation
    low: float  # ends of its 95 % interval, from a bootstrap over variants
    high: float
    r_squared: float  # of a parabola of the score's ranks: a model that learnt nothing counts no more than the worst
    optimum: float | None  # where it is highest; None where that is not between the runs
    share: float  # of the bootstrap's samples whose parabola has its highest point between the runs


def runs_table(groups: Groups) -> pd.DataFrame:
    """A line for each run: variant, method, the strength of its loss (0 where it has none), BLEU and the measures.

    Where there is a baseline, BLEU minus the baseline's of the same seed; other seeds are left out.
    """
    rows, base = [], {run.seed: run.value(SCORE) for run in groups.get(BASELINE, [])}
    for variant, runs in groups.items():
        method = runs[0].config.method
        strength = float(method.get("weight", method.get("gamma", 0)))
        for run in runs:
            if base and run.seed not in base:
                continue
            row = {
                "variant": variant,
                "method": method["name"],
                "strength": strength,
                SCORE: run.value(SCORE) - base.get(run.seed, 0.0),
            }
            rows.append(row | {name: mean_measure(run, name) for name in SHOWN})
    return pd.DataFrame(rows)


def relation(table: pd.DataFrame, measure: str) -> Relation:
    """The relation of a measure and BLEU.

    The bootstrap draws variants, each with all of its seeds: seeds of one variant are no independent points. A sample
    says how often each run is drawn; the first one has each once.
    """
    indices, names = pd.factorize(table["variant"])  # of each run's variant
    draws = np.random.default_rng(SEED).multinomial(len(names), np.full(len(names), 1 / len(names)), SAMPLES)
    counts = np.vstack([np.ones(len(table)), draws[:, indices]])  # (samples, runs)
    x, y = table[measure].to_numpy(), table[SCORE].to_numpy()
    ranks = _ranks(y, counts)  # (samples, runs)
    rhos = _correlation(_ranks(x, counts), ranks, counts)
    low, high = np.nanquantile(rhos[1:], (0.025, 0.975))
    z = (x - x.mean()) / x.std()
    powers = np.stack([z**2, z, np.ones_like(z)], axis=1)  # (runs, 3)
    normal = np.einsum("sn,ni,nj->sij", counts, powers, powers)
    a, b, c = np.einsum("sij,sj->is", np.linalg.pinv(normal), counts * ranks @ powers)
    vertex = np.divide(-b, 2 * a, out=np.full_like(a, np.nan), where=a < 0)
    inside = (vertex > np.where(counts > 0, z, np.inf).min(1)) & (vertex < np.where(counts > 0, z, -np.inf).max(1))
    optimum = float(x.mean() + x.std() * vertex[0]) if inside[0] else None
    residuals = ranks[0] - powers @ (a[0], b[0], c[0])
    r_squared = float(1 - residuals.var() / ranks[0].var())
    return Relation(float(rhos[0]), float(low), float(high), r_squared, optimum, float(inside[1:].mean()))


def _ranks(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Mean rank of each run's value among those drawn: (samples, runs)."""
    below = (values[None] < values[:, None]).astype(float)
    equal = (values[None] == values[:, None]).astype(float)
    return counts @ below.T + (counts @ equal.T + 1) / 2


def _correlation(x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Correlation in each sample, (samples, runs) -> (samples,); NaN where x or y is constant."""
    n = counts.sum(1, keepdims=True)
    x = x - (counts * x).sum(1, keepdims=True) / n
    y = y - (counts * y).sum(1, keepdims=True) / n
    with np.errstate(invalid="ignore"):
        return (counts * x * y).sum(1) / np.sqrt((counts * x * x).sum(1) * (counts * y * y).sum(1))


def within_losses(table: pd.DataFrame) -> pd.DataFrame:
    """The runs of losses whose strength is swept, BLEU and measures minus the mean over all runs of the same loss.

    The remaining differences are due to how strong a loss is, not to which loss it is.
    """
    swept = table.groupby("method").filter(is_sweep)
    values = [SCORE, *SHOWN]
    return swept.assign(**(swept[values] - swept.groupby("method")[values].transform("mean")))


def is_sweep(runs: pd.DataFrame) -> bool:
    """Whether the strength of a loss is all that differs between these variants."""
    return bool(runs["strength"].nunique() == runs["variant"].nunique() > 1)


def relations(table: pd.DataFrame) -> dict[str, Relation]:
    """By measure; empty where there are too few variants, or runs without the measure."""
    if table["variant"].nunique() < FEWEST or table[SCORE].nunique() < 3:
        return {}
    usable = [name for name in SHOWN if table[name].notna().all() and table[name].nunique() > 2]
    return {name: relation(table, name) for name in usable}


def diversity_table(groups: Groups) -> pd.DataFrame:
    """The relations over all runs, between strengths of one loss, and without variants that may decide them alone.

    Empty where there are too few variants.
    """
    table = runs_table(groups)
    means = table.groupby("variant", sort=False)[SCORE].mean()
    far = list(means.index[(means - means.median()).abs() > FAR])
    subsets = {"all": table, "strengths of one loss": within_losses(table)}
    if far:
        name, near = f"without {', '.join(far)}", table[~table["variant"].isin(far)]
        subsets |= {name: near, f"strengths of one loss, {name}": within_losses(near)}
    rows = []
    for subset, runs in subsets.items():
        for name, related in relations(runs).items():
            label, digits = MEASURES[name]
            rho, low, high = (signed(value, 2) for value in related[:3])
            rows.append(
                {
                    "Runs": f"{subset} ({_counts(runs)})",
                    "Measure": label,
                    "Spearman's ρ": f"{rho} ({low} to {high})",
                    "R² of a parabola (%)": f"{100 * related.r_squared:.0f}",
                    "Optimum": as_printed(related.optimum, digits),
                    "Samples with one (%)": f"{100 * related.share:.0f}",
                }
            )
    return pd.DataFrame(rows)


DIVERSITY_NOTE = (
    "Diversity and score: intervals of Spearman's ρ are of a bootstrap over variants; a parabola is fitted to the "
    f"ranks of BLEU; left out are variants more than {FAR} BLEU away from the middle one; of strengths, "
    "everything is minus the mean of its loss. Variants differ in more than how alike their heads are, so this is not "
    "an effect of diversity alone."
)


def _counts(table: pd.DataFrame) -> str:
    """ "9 runs of 5 variants"."""
    return f"{plural(len(table), 'run')} of {plural(table['variant'].nunique(), 'variant')}"


def lone_runs(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The runs of the method that alone makes the axis of a measure far wider than the others need (`LONE`).

    There are none where there are few variants, or no measure.
    """
    widths = {}
    for method in table["method"].unique():
        others = table.loc[table["method"] != method, measure]
        widths[method] = others.max() - others.min()
    alone = min(widths, key=lambda method: widths[method])
    whole = table[measure].max() - table[measure].min()
    if table["variant"].nunique() < FEWEST or not widths[alone] < LONE * whole:  # also where there is no measure
        return table.iloc[:0]
    return table[table["method"] == alone]


def _cut_axis(ax: Axes, table: pd.DataFrame, lone: pd.DataFrame, measure: str, look: Look) -> None:
    """Give an axis the range of the other runs; lone ones stand at its edge, with an arrow and their values."""
    others, digits = table.drop(lone.index)[measure], MEASURES[measure][1]
    room = 0.05 * (others.max() - others.min())
    low, high = others.min() - room, others.max() + room
    ax.set_xlim(low, high)
    for beyond, edge, arrow, offset, side in (
        (lone[lone[measure] < low], low, "← {}", 6, "left"),
        (lone[lone[measure] > high], high, "{} →", -6, "right"),
    ):
        if len(beyond):
            ax.plot([edge] * len(beyond), beyond[SCORE], clip_on=False, **look)
            ends = dict.fromkeys(as_printed(end, digits) for end in (beyond[measure].min(), beyond[measure].max()))
            middle = beyond[SCORE].sort_values().iloc[len(beyond) // 2]
            place = {"xytext": (offset, 0), "textcoords": "offset points", "ha": side, "va": "center"}
            ax.annotate(arrow.format(" to ".join(ends)), (edge, middle), fontsize=SMALL, **place)


def _label(method: str) -> str:
    return METHODS[method].Options.label or method.replace("-", " ").capitalize()


@figure_kind("diversity")
def draw_diversity(profile: str, figure: FigureEntry) -> Figure:
    """BLEU of every run against each measure, by method; lines go from the baseline through a loss's strengths."""
    groups = runs_of_figure(profile, figure)
    table = runs_table(groups)
    related, baseline = relations(table), table[table["variant"] == BASELINE]
    methods = {method: {"name": method} for method in table["method"].unique()}
    styles = {method: look | POINT for method, look in looks(methods).items()}
    fig, axes = new_figure(9.2, 4.6, 1, len(SHOWN), sharey=True)
    for ax, name in zip(axes.flat, SHOWN, strict=True):
        for method, runs in table.groupby("method", sort=False):
            ax.plot(runs[name], runs[SCORE], label=_label(method), **styles[method])
            if is_sweep(runs):
                means = pd.concat([baseline, runs]).groupby("strength")[[name, SCORE]].mean()
                ax.plot(means[name], means[SCORE], color=styles[method]["color"], lw=1)
        lone = lone_runs(table, name)
        if len(lone):
            _cut_axis(ax, table, lone, name, styles[lone["method"].iloc[0]])
        if name in related:
            rho, low, high = (signed(value, 2) for value in related[name][:3])
            ax.set_title(f"Spearman's ρ {rho} ({low} to {high})", fontsize=SMALL)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(MEASURES[name][0])
        add_grid(ax)
        if len(baseline):
            ax.axhline(0, color="0.35", lw=1, ls="--", zorder=0)
    axes[0, 0].set_ylabel("BLEU minus the baseline's, test set" if len(baseline) else "BLEU, test set")
    if len(baseline):
        for ax in axes.flat:
            spread_around_zero(ax, named=ax is axes[0, 0])
    add_handles(fig, axes[0, 0].get_legend_handles_labels()[0], 6, SMALL)
    add_title(fig, f"{title_without_seeds('Diversity and score', groups)}, {_counts(table)}")
    return fig
