"""A paper's tables with ours beside them: results by variant, and what a task's text is made of.

A table is named like an experiment: ``deacon/translation`` is the table of that experiment's results,
``deacon/sources`` a table about the data of ``deacon/lm``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import pandas as pd

from headdiv.companion.analysis.comparison import uneven
from headdiv.companion.analysis.statistics import half_width
from headdiv.companion.experiments.papers import BASELINE, PaperTask, data_table_of, load_paper, task_of
from headdiv.companion.experiments.parameters import audit
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.contrasts import compared_scores, differences_of, scores_of, set_apart_by_score
from headdiv.companion.report.families import family_data
from headdiv.companion.report.formats import as_printed, enough, significant, with_intervals, with_unit
from headdiv.companion.report.groups import (
    Groups,
    by_variant,
    failed_trainings,
    judged_with,
    more_rows,
    not_judged_yet,
    score_label,
    signature,
    task_shown,
)
from headdiv.companion.report.headtohead import all_quiet, comparison_data
from headdiv.companion.report.pruning import pruning_data
from headdiv.companion.report.scale import scale
from headdiv.companion.report.sources import sources_data
from headdiv.companion.report.table_data import (
    BESIDE,
    OF_PRUNING,
    OF_TUNING,
    OURS,
    PLUS_MINUS,
    SIMULTANEOUS,
    TableData,
)
from headdiv.companion.report.tuning import tuning_data
from headdiv.companion.report.verdicts import NO_DIFFERENCE
from headdiv.core.errors import ConfigError
from headdiv.core.settings import nearest

TIMES = ("training_hours", "training_days", "inference_ms")  # by the wall clock, which other work lengthens
UNTIMED = "Times are left out: these runs are not known to have had the machine to themselves."


def tables_of(runs: Runs) -> dict[str, str]:
    """The tables that a profile's runs give, each with the experiment whose runs it needs.

    A table about an experiment's data comes before that of its results; then those of tuning and pruning.
    """
    found = {}
    for experiment in runs.experiments():
        paper, _, task = experiment.partition("/")
        about = {f"{paper}/{name}": experiment for name, t in load_paper(paper).tables.items() if t.task == task}
        if about and not task_of(experiment).shown_on(runs.planned(experiment)[0].data.model_dump()).others_data:
            found |= about
        found |= {experiment: experiment}
        found |= {f"{experiment}{OF_TUNING}": experiment} if experiment in runs.arms else {}
        found |= {f"{experiment}{OF_PRUNING}": experiment} if experiment in runs.pruned() else {}
    return found


def experiment_of_table(table: str, profile: str | None = None) -> str:
    """The experiment whose runs a table needs.

    Raises:
        ConfigError: there is no such table; of a ``profile`` the sentence has the tables.
    """
    experiment = table.removesuffix(OF_TUNING).removesuffix(OF_PRUNING)
    if profile is not None and experiment not in (known := tables_of(Runs(profile))):
        raise ConfigError(f"profile {profile}: no table {table!r}{nearest(table, list(known))}")
    about = data_table_of(table)
    if about is None:
        task_of(experiment)
        return experiment
    return f"{table.partition('/')[0]}/{about.task}"


def table_data(profile: str, table: str) -> TableData:
    """A table for people and for programs: of a comparison, of an experiment's results, its data or its tuning.

    Raises:
        ConfigError: no such profile or table.
        DataError: no stored results, or results that contradict each other.
    """
    about = data_table_of(table)
    if about is not None:
        return sources_data(profile, experiment_of_table(table), about)
    if table.endswith(OF_TUNING):
        return tuning_data(profile, experiment_of_table(table))
    if table.endswith(OF_PRUNING):
        return pruning_data(profile, experiment_of_table(table))
    task = task_of(table)
    if task.families:
        return family_data(profile, table)
    return (comparison_data if task.compares_outputs else results_data)(profile, table)


# ---- results by variant


def results_table(profile: str, experiment: str) -> pd.DataFrame:
    """One line a variant: mean (and standard deviation, from two seeds on) of ours, and what the paper reports.

    Columns: variant, label, seeds, epochs (a mean: ``train.patience`` ends seeds at different ones),
    training_examples, epoch_tokens (where an epoch is so many tokens of a stream), then for each of the paper's columns
    ``<name>``, ``<name>_sd`` and, on the paper's data, ``<name>_paper``; for every other score ``<name>``,
    ``<name>_sd``; at last speed and cost.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: no stored results, or results that contradict each other.
    """
    groups = by_variant(profile, experiment)
    return _table(task_shown(experiment, groups), groups)


def _table(task: PaperTask, groups: Groups) -> pd.DataFrame:
    more = list(_more(task, groups))
    base = groups[BASELINE][0].parameters if BASELINE in groups else math.nan
    return pd.DataFrame([_row(task, more, variant, runs, base) for variant, runs in groups.items()])


def _more(task: PaperTask, groups: Groups) -> dict[str, str]:
    """Scores that the paper's table lacks, with their units."""
    scores = next(iter(groups.values()))[0].scores
    return {name: score.unit for name, score in scores.items() if name not in task.columns}


def _row(task: PaperTask, more: list[str], variant: str, runs: list[RunResult], base: float) -> dict[str, Any]:
    first, reported = runs[0], task.numbers().get(variant, {})
    row: dict[str, Any] = {
        "variant": variant,
        "label": task.label(variant),
        "seeds": len(runs),
        "epochs": mean(run.epochs for run in runs),
        "training_examples": math.nan if first.training_examples is None else first.training_examples,
        "epoch_tokens": first.config.data.get("epoch_tokens", math.nan),
    }
    for name in [*task.columns, *more]:
        values = [_value(run, name, base) for run in runs]
        row[name] = mean(values)
        row[f"{name}_sd"] = stdev(values) if len(values) > 1 and not math.isnan(row[name]) else math.nan
        if name in task.columns and not task.others_data:
            row[f"{name}_paper"] = reported.get(name, math.nan)
    row["tokens_per_second"] = mean(run.cost.target_tokens_per_second for run in runs)
    row["training_seconds"] = mean(run.cost.training_seconds for run in runs)
    return row


def _value(run: RunResult, name: str, base: float) -> float:
    if name == "parameters_of_base":
        return 100 * run.parameters / base
    value = run.value(name)
    return math.nan if value is None else value


def results_data(profile: str, experiment: str) -> TableData:
    """The results of an experiment: the paper's columns with ours beside them, then what else was measured.

    For people, there are no times of runs beside which the machine did other work, or may have done.
    """
    groups = by_variant(profile, experiment)
    task = task_shown(experiment, groups)
    table, runs = _table(task, groups), [run for group in groups.values() for run in group]
    waiting = not_judged_yet(profile, experiment, groups)
    hidden = () if all_quiet(groups) else TIMES
    task = task.model_copy(update={"columns": {key: of for key, of in task.columns.items() if key not in hidden}})
    model = judged_with(profile, experiment)
    differences = _differences(task, groups, model)
    intervals = [PLUS_MINUS] * bool((table["seeds"] > 1).any()) + [SIMULTANEOUS] * len(differences)
    scores = compared_scores(task) if differences else {}
    alone = {of.label: uneven(scores_of(model, name)) & groups.keys() for name, of in scores.items()}
    intervals += [*set_apart_by_score(task, alone), *more_rows(model, groups)]
    return TableData(
        task.table,
        task.title,
        scale(runs, profile),
        table,
        {OURS if task.others_data else BESIDE: _beside_paper(task, table)}
        | differences
        | {"further measurements": _ours_alone(task, table, groups, hidden)},
        signatures={score_label(runs[0], name): signature(runs, name) for name in runs[0].scores if name not in hidden},
        said=[*[waiting] * bool(waiting), *failed_trainings(profile, experiment)],
        notes=[
            *task.notes,
            *_unmeasured(task, table),
            *[UNTIMED] * bool(hidden),
            *intervals,
        ],
    )


def _beside_paper(task: PaperTask, table: pd.DataFrame) -> pd.DataFrame:
    """Rounded as the paper rounds, ours and, on its data, the paper's side by side.

    A column of ours has more decimals where a number in it would keep fewer than two significant digits.
    """
    shown = pd.DataFrame({"Architecture": list(table["label"])}, index=list(table["variant"]))
    for name, column in task.columns.items():
        digits, pairs = enough(table[name], column.digits), zip(table[name], _halves(table, name), strict=True)
        shown[with_unit(column.label, column.unit)] = [as_printed(value, digits, half) for value, half in pairs]
        if not task.others_data:
            shown[f"{column.label}, paper"] = [as_printed(value, column.digits) for value in table[f"{name}_paper"]]
    return shown


def _halves(table: pd.DataFrame, name: str) -> list[float]:
    """The number after ±: half the width of Student's 95 % interval of the mean over seeds; NaN for one seed."""
    rows = zip(table[f"{name}_sd"], table["seeds"], strict=True)
    return [math.nan if pd.isna(sd) else half_width(sd, count) for sd, count in rows]


def _differences(task: PaperTask, groups: Groups, model: Groups) -> dict[str, pd.DataFrame]:
    """The differences of the paper's columns to the baseline, with their simultaneous intervals; {} for one seed."""
    scores = {name: differences_of(model, name) for name in compared_scores(task)}
    scores = {name: found for name, found in scores.items() if any(one.freedom for one in found.values())}
    if not scores:
        return {}
    rows = [variant for variant in groups if variant != BASELINE]
    shown = pd.DataFrame({"Minus the baseline": [task.label(variant) for variant in rows]}, index=rows)
    shown["Seeds"] = [str(max(of.get(variant, NO_DIFFERENCE).count for of in scores.values())) for variant in rows]
    for name, found in scores.items():
        column, ones = task.columns[name], [found.get(variant, NO_DIFFERENCE) for variant in rows]
        shown[column.label] = with_intervals(ones, column.digits)
    return {"differences from the baseline": shown}


def _ours_alone(task: PaperTask, table: pd.DataFrame, groups: Groups, hidden: Sequence[str]) -> pd.DataFrame:
    """What is measured beside the paper's columns; with ``hidden`` columns no speed either."""
    shown = pd.DataFrame({"Architecture": list(table["label"])}, index=list(table["variant"]))
    run = next(iter(groups.values()))[0]
    for name, unit in _more(task, groups).items():
        if name in hidden:
            continue
        pairs, label = zip(table[name], _halves(table, name), strict=True), score_label(run, name)
        shown[with_unit(label, unit)] = [significant(value, half) for value, half in pairs]
    if not hidden:
        shown["Tokens/s"] = [significant(value) for value in table["tokens_per_second"]]
        shown["Training (s)"] = [significant(value) for value in table["training_seconds"]]
    return shown


def _unmeasured(task: PaperTask, table: pd.DataFrame) -> list[str]:
    """The sentence about columns of the paper's that no run here has a number for."""
    lacking = [column.label for name, column in task.columns.items() if table[name].isna().all()]
    return [f"Not measured in these runs: {', '.join(lacking)}."] if lacking else []


def parameter_table(profile: str, experiment: str) -> pd.DataFrame:
    """`audit` as a table, with the difference from the paper, at its sizes where they are known.

    A column without a value, as of a paper that prints no count, is left out.
    """
    table = pd.DataFrame(audit(profile, experiment)).T
    counts = table[["parameters", "at_paper_sizes", "paper"]].astype("Int64")
    judged = counts["at_paper_sizes"].fillna(counts["parameters"])
    audited = counts.assign(difference=judged - counts["paper"], follows=table["follows"])
    return audited.dropna(axis="columns", how="all")
