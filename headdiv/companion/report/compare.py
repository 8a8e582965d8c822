"""Every variant of an experiment against one of them, the papers' and one's own alike: a table."""

from __future__ import annotations

import contextlib

import pandas as pd
from tabulate import tabulate

from headdiv.companion.analysis import comparison
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.report.differences import column_of
from headdiv.companion.report.families import means_of, scores_of
from headdiv.companion.report.formats import as_printed, signed
from headdiv.companion.report.result_tables import results_of
from headdiv.companion.report.verdicts import LOWEST_LOSS, MARGINS, NO_DIFFERENCE, NOT_YET, verdict
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import NotStoredError
from headdiv.core.settings import nearest

ONE_SEED = "One seed each: these differences decide nothing."


def compare(profile: str, experiment: str | None = None, baseline: str = BASELINE) -> pd.DataFrame:
    """The lowest validation loss and the task's main score of each variant minus one variant's.

    Intervals are Dunnett's simultaneous 95 % intervals, with one residual for all rows that one model judges.

    Args:
        profile: name or path of a profile.
        experiment: ``<paper>/<task>``; by default all that have stored runs of the baseline.
        baseline: the variant that the others are compared with.

    Returns:
        A row for each variant and measure, the baseline's first, with the columns experiment, variant, label, seeds,
        measure, mean (over the variant's seeds), difference, low, high (NaN in the baseline's rows) and verdict.

    Raises:
        ConfigError: the profile has no such experiment.
        NotStoredError: no run of the experiment, or none of the baseline, is stored.
    """
    if experiment is not None:
        return _compare(profile, experiment, baseline)
    frames = []
    for name in Runs(profile).profile.experiments:
        with contextlib.suppress(NotStoredError):
            frames.append(_compare(profile, name, baseline))
    if not frames:
        variants = list(dict.fromkeys(config.variant for config in Runs(profile).planned()))
        suggestion = "" if baseline in variants else nearest(baseline, variants)
        raise NotStoredError(f"profile {profile}: no experiment has stored runs of {baseline}{suggestion}")
    return pd.concat(frames, ignore_index=True)


def _compare(profile: str, experiment: str, baseline: str) -> pd.DataFrame:
    results, frames = results_of(profile, experiment), []
    groups, task, kind = results.groups, results.task, results.runs[0].kind
    if baseline not in groups:
        raise NotStoredError(f"{experiment}: no run of {baseline} is stored; there are: {', '.join(groups)}")
    order = [baseline, *(variant for variant in groups if variant != baseline)]
    for score in (LOWEST_LOSS, TASKS[kind].main_score.name):
        column, means = column_of(task, kind, score), means_of(groups, score)
        differences = comparison.against(scores_of(results.model, score), baseline)
        rows = [differences.get(variant, NO_DIFFERENCE) for variant in order]
        verdicts = [
            NOT_YET if results.pending_note else verdict(difference, column.better != "lower", MARGINS.get(score))
            for difference in rows
        ]
        columns = {
            "experiment": experiment,
            "variant": order,
            "label": [results.labels[variant] for variant in order],
            "seeds": [len(groups[variant]) for variant in order],
            "measure": column.label,
            "mean": [means[variant].mean for variant in order],
            "difference": [difference.mean for difference in rows],
            "low": [difference.low for difference in rows],
            "high": [difference.high for difference in rows],
            "verdict": [None, *verdicts[1:]],
        }
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def as_text(profile: str, baseline: str = BASELINE) -> str:
    """`compare` for every experiment of a profile with stored runs, as lines of text.

    Raises:
        NotStoredError: nothing of the profile is stored.
    """
    by_experiment = compare(profile, baseline=baseline).groupby("experiment", sort=False)
    return "\n\n".join(f"{experiment}\n{_text(frame)}" for experiment, frame in by_experiment)


def _text(frame: pd.DataFrame) -> str:
    """A line for each variant: label, seeds, each measure's difference, and the verdict by the first measure.

    The baseline's line has means.
    """
    loss, score = (rows for _, rows in frame.groupby("measure", sort=False))
    table = pd.DataFrame({"": loss["label"], "seeds": loss["seeds"]})
    for rows, digits in ((loss, 3), (score, 2)):
        halves = ((rows["high"] - rows["low"]) / 2).tolist()
        cells = [signed(mean, digits, half) for mean, half in zip(rows["difference"], halves, strict=True)]
        table[rows["measure"].iloc[0]] = [as_printed(rows["mean"].iloc[0], digits), *cells[1:]]
    table["verdict"] = loss["verdict"].fillna("")
    lines = tabulate(table, headers="keys", tablefmt="plain", showindex=False, disable_numparse=True).splitlines()
    if loss["seeds"].max() == 1:
        lines.append(ONE_SEED)
    return "\n".join(line.rstrip() for line in lines)
