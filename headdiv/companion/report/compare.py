"""Every variant of an experiment against one of them, the papers' and one's own alike: a table and a forest."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from tabulate import tabulate

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.comparison import Difference
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report.differences import draw_rows
from headdiv.companion.report.families import means_of, scores_of
from headdiv.companion.report.formats import as_printed, signed
from headdiv.companion.report.groups import (
    Groups,
    by_variant,
    judged_with,
    labels_of,
    not_judged_yet,
    task_shown,
    title,
)
from headdiv.companion.report.plotting import (
    SMALL,
    add_handles,
    add_title,
    name_rows,
    new_figure,
    verdict_handles,
    wrapped,
)
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NOT_YET, verdict
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import MainScore
from headdiv.core.errors import NotStoredError
from headdiv.core.settings import nearest

COLUMNS = ["variant", "label", "seeds", "measure", "mean", "difference", "low", "high", "verdict"]
ONE_SEED = "One seed each: these differences decide nothing."


def compare(profile: str, experiment: str, baseline: str = BASELINE) -> pd.DataFrame:
    """The lowest validation loss and the task's main score of each variant minus one variant's.

    Intervals are Dunnett's simultaneous 95 % intervals, with one residual for all rows that one model judges.

    Args:
        profile: name or path of a profile.
        experiment: ``<paper>/<task>``.
        baseline: the variant that the others are compared with.

    Returns:
        A row for each variant and measure, the baseline's first, with the columns variant, label, seeds, measure,
        mean (over the variant's seeds), difference, low, high (NaN in the baseline's rows) and verdict.

    Raises:
        ConfigError: the profile has no such experiment.
        NotStoredError: no run of the experiment, or none of the baseline, is stored.
    """
    groups, rows = by_variant(profile, experiment), []
    labels, waiting = labels_of(experiment, groups), not_judged_yet(profile, experiment, groups)
    for measure, differences in _differences(profile, experiment, baseline, groups):
        means = means_of(groups, measure.name)
        for variant in [baseline, *(other for other in groups if other != baseline)]:
            row = {
                "variant": variant,
                "label": labels[variant],
                "seeds": len(groups[variant]),
                "measure": measure.label,
            }
            row["mean"] = means[variant].mean
            if difference := differences.get(variant):
                row |= {"difference": difference.mean, "low": difference.low, "high": difference.high}
                judged = verdict(difference, measure.better == "higher", MARGINS.get(measure.name))
                row["verdict"] = NOT_YET if waiting else judged
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def _differences(
    profile: str, experiment: str, baseline: str, groups: Groups
) -> list[tuple[MainScore, dict[str, Difference]]]:
    """Of the primary measure and the task's main score, every variant minus the baseline."""
    if baseline not in groups:
        raise NotStoredError(f"{experiment}: no run of {baseline} is stored; there are: {', '.join(groups)}")
    loss = MainScore(LOWEST_LOSS, "lowest validation loss", "lower", digits=3)
    measures = [loss, TASKS[groups[baseline][0].kind].main_score]
    model = judged_with(profile, experiment)
    return [(measure, comparison.against(scores_of(model, measure.name), baseline)) for measure in measures]


def as_text(profile: str, baseline: str = BASELINE) -> str:
    """`compare` for every experiment of a profile of which runs are stored, as lines of text.

    Raises:
        NotStoredError: nothing of the profile is stored.
    """
    blocks = []
    for experiment in Runs(profile).profile.experiments:
        try:
            frame = compare(profile, experiment, baseline)
        except NotStoredError:
            continue
        lines = [experiment, *_lines(frame)]
        blocks.append("\n".join([*lines, ONE_SEED] if frame["seeds"].max() == 1 else lines))
    if not blocks:
        known = list(dict.fromkeys(config.variant for config in Runs(profile).planned()))
        what = "" if baseline in known else nearest(baseline, known)
        raise NotStoredError(f"profile {profile}: no experiment has stored runs of {baseline}{what}")
    return "\n\n".join(blocks)


def _lines(frame: pd.DataFrame) -> list[str]:
    """A line for each variant: label, seeds, each measure's difference, and the verdict by the first measure."""
    measures = list(frame["measure"].unique())
    cells = [["", "seeds", *measures, "verdict"]]
    for _, rows in frame.groupby("variant", sort=False):
        label, seeds, verdict_by_loss = rows.iloc[0][["label", "seeds", "verdict"]]
        numbers = [_number(row, 2 if number else 3) for number, (_, row) in enumerate(rows.iterrows())]
        cells.append([label, str(seeds), *numbers, "" if pd.isna(verdict_by_loss) else verdict_by_loss])
    return [line.rstrip() for line in tabulate(cells, tablefmt="plain", disable_numparse=True).splitlines()]


def _number(row: pd.Series, digits: int) -> str:
    """The baseline's mean, or a difference with half its interval."""
    if pd.isna(row["difference"]):
        return as_printed(row["mean"], digits)
    return signed(row["difference"], digits, (row["high"] - row["low"]) / 2)


def draw_comparison(profile: str, experiment: str, baseline: str = BASELINE) -> Figure:
    """A forest: a row for each variant, lowest loss first, a panel for each measure; colours are verdicts."""
    groups = by_variant(profile, experiment)
    found = _differences(profile, experiment, baseline, groups)
    _, losses = found[0]
    order = sorted((variant for variant in groups if variant != baseline), key=lambda variant: losses[variant].mean)
    if not order:
        raise NotStoredError(f"{experiment}: no run of another variant than {baseline} is stored")
    labels, judged, verdicts = labels_of(experiment, groups), not not_judged_yet(profile, experiment, groups), []
    figure, (axes,) = new_figure(9, 0.3 * len(order) + 1.8, 1, 2, sharey=True)
    name_rows(axes[0], [wrapped(labels[variant], 34) for variant in order])
    for ax, (measure, differences) in zip(axes, found, strict=True):
        rows = [differences[variant] for variant in order]
        verdicts += draw_rows(ax, rows, measure.better == "higher", MARGINS.get(measure.name), judged)
        ax.set_xlabel(f"{measure.label} minus {labels[baseline]}'s", fontsize=SMALL)
    add_handles(figure, verdict_handles(verdicts), 4, SMALL)
    add_title(figure, f"{title(task_shown(experiment, groups).table, groups)}; simultaneous 95 % intervals")
    return figure
