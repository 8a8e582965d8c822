"""How stored runs become a table.

A table is made of

- the runs by variant, with the names and rules of the paper's task (`Results`), and a sentence about their scale;
- scores, the columns of the task: of each the mean over a variant's seeds (`Results.means`);
- families of differences between variants, and what they decide (`headdiv.companion.report.families`);
- signatures of the scores, remarks and notes;
- the same numbers for programs.

Here are the tables of an experiment beside its paper's and of a task that names families; one that compares outputs
is in `headdiv.companion.report.headtohead`. `headdiv.companion.report.tables` knows which there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pandas as pd

from headdiv.companion.analysis.comparison import Difference, uneven
from headdiv.companion.analysis.statistics import Interval, half_width, interval
from headdiv.companion.experiments.papers import BASELINE, PaperTask
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.families import (
    CHANGES,
    Family,
    against_baseline,
    compared_scores,
    families_of,
    means_of,
    outlier_note_by_score,
    scores_of,
    with_columns_of,
)
from headdiv.companion.report.formats import NONE, as_printed, enough_digits, significant, with_intervals, with_unit
from headdiv.companion.report.groups import (
    Groups,
    all_quiet,
    by_variant,
    failed_trainings,
    judged_with,
    not_judged_yet,
    other_rows_note,
    score_label,
    signature,
    signatures_of,
    task_shown,
)
from headdiv.companion.report.scale import model_size, scale
from headdiv.companion.report.table_data import BESIDE, OURS, PLUS_MINUS, SIMULTANEOUS, TableData, interval_columns
from headdiv.companion.report.verdicts import MARGINS, NO_DIFFERENCE, verdict

TIMES = ("training_hours", "training_days", "inference_ms")  # by the wall clock, which other work lengthens
UNTIMED = "Times are left out: these runs are not known to have had the machine to themselves."


@dataclass(frozen=True)
class Results:
    """The stored runs of an experiment, and what tables and figures of them need.

    Attributes:
        task: the paper's, as the runs' data let it be shown.
        groups: the runs by variant.
        model: the rows that one additive model judges, among them those of other tables with the same baseline.
        pending_note: why nothing is judged yet; "" where all runs are there that the rules ask for.
    """

    profile: str
    experiment: str
    task: PaperTask
    groups: Groups
    model: Groups
    pending_note: str

    @property
    def runs(self) -> list[RunResult]:
        """All of them."""
        return [run for runs in self.groups.values() for run in runs]

    @property
    def labels(self) -> dict[str, str]:
        """The paper's label of each variant."""
        return {variant: self.task.label(variant) for variant in self.groups}

    def remarks(self, *others: str) -> list[str]:
        """What must be known before numbers are read: what is not judged yet, ``others``, which trainings failed."""
        pending = [self.pending_note] if self.pending_note else []
        return [*pending, *others, *failed_trainings(self.profile, self.experiment)]

    def identity(self) -> dict[str, list[Any]]:
        """The first columns of a table for programs: variant, label, seeds."""
        return {
            "variant": list(self.groups),
            "label": list(self.labels.values()),
            "seeds": [len(runs) for runs in self.groups.values()],
        }

    def means(self, score: str) -> list[Interval]:
        """The mean of a score, or of another of the paper's columns, for each variant."""
        if score != "parameters_of_base":
            return list(means_of(self.groups, score).values())
        base = self.groups[BASELINE][0].parameters if BASELINE in self.groups else math.nan
        return [interval([100 * run.parameters / base for run in runs]) for runs in self.groups.values()]

    def rows(self, head: str, columns: Mapping[str, Iterable[str]]) -> pd.DataFrame:
        """A table of text with a line for each variant; ``head``: what stands above their labels."""
        return pd.DataFrame({head: list(self.labels.values())} | columns, index=list(self.groups))

    def table(
        self,
        numbers: pd.DataFrame,
        tables: dict[str, pd.DataFrame],
        signatures: dict[str, str],
        notes: list[str],
        remarks: Iterable[str] = (),
    ) -> TableData:
        """The whole table, ``remarks`` among those of `Results.remarks`."""
        return TableData(
            self.task.table,
            self.task.title,
            scale(self.runs, self.profile),
            numbers,
            tables,
            signatures,
            self.remarks(*remarks),
            notes,
        )


def results_of(profile: str, experiment: str) -> Results:
    """The stored runs of an experiment.

    Raises:
        ConfigError: no such profile or experiment.
        DataError: no stored results, or results that contradict each other.
    """
    groups = by_variant(profile, experiment)
    task, model = with_columns_of(task_shown(experiment, groups), groups), judged_with(profile, experiment)
    return Results(profile, experiment, task, groups, model, not_judged_yet(profile, experiment, groups))


def difference_table(
    results: Results,
    family: Family,
    differences: Mapping[str, list[Difference]],
    seeds: bool = False,
    units: bool = False,
) -> pd.DataFrame:
    """A line for each row of a family: its names, its difference in each score, and what is decided, if it may be.

    Args:
        results: whose task has the scores' columns.
        family: of the rows.
        differences: by score, one for each row.
        seeds: whether a column counts the seeds.
        units: whether headings have the scores' units.
    """
    task, table = results.task, pd.DataFrame([row.names for row in family.rows], columns=list(family.heads))
    if seeds:
        rows = zip(*differences.values(), strict=True)
        table["Seeds"] = [str(max(difference.count for difference in row)) for row in rows]
    for score, rows in differences.items():
        column = task.columns[score]
        heading = with_unit(column.label, column.unit) if units else column.label
        table[heading] = with_intervals(rows, column.digits)
    if not results.pending_note:
        for heading, score in family.verdicts.items():
            table[heading] = [_verdict(task, family, score, difference) for difference in differences[score]]
    return table


def _verdict(task: PaperTask, family: Family, score: str, difference: Difference) -> str:
    """Equivalence is tested where rules name the score that decides, whose verdicts the family may have words for."""
    if not difference.count:
        return NONE
    margin = MARGINS.get(score) if task.primary else None
    decision = verdict(difference, task.columns[score].better != "lower", margin)
    return family.words.get(decision, decision) if score == task.primary else decision


# ---- an experiment's results beside the paper's


def _all_means(results: Results) -> dict[str, list[Interval]]:
    """The means of the paper's columns, then of every other score."""
    return {name: results.means(name) for name in dict.fromkeys([*results.task.columns, *results.runs[0].scores])}


def _results_numbers(results: Results, means: Mapping[str, list[Interval]]) -> pd.DataFrame:
    """One line a variant: mean (and standard deviation, from two seeds on) of ours, and what the paper reports.

    Columns: variant, label, seeds, epochs (a mean: ``train.patience`` ends seeds at different ones),
    training_examples, epoch_tokens (where an epoch is so many tokens of a stream), then for each of the paper's columns
    ``<name>``, ``<name>_sd`` and, on the paper's data, ``<name>_paper``; for every other score ``<name>``,
    ``<name>_sd``; finally speed and cost.
    """
    task, groups = results.task, list(results.groups.values())
    examples = [runs[0].training_examples for runs in groups]
    columns = results.identity() | {
        "epochs": [mean(run.epochs for run in runs) for runs in groups],
        "training_examples": [math.nan if count is None else count for count in examples],
        "epoch_tokens": [runs[0].config.data.get("epoch_tokens", math.nan) for runs in groups],
    }
    for name, intervals in means.items():
        columns[name] = [estimate.mean for estimate in intervals]
        columns[f"{name}_sd"] = [
            estimate.half / half_width(1, estimate.count) if estimate.count > 1 else math.nan for estimate in intervals
        ]
        if name in task.columns and not task.others_data:
            columns[f"{name}_paper"] = _reported(results, name)
    if "parameters" in columns:
        columns["parameters"] = [runs[0].parameters for runs in groups]  # whole numbers, as in the other tables
    columns["tokens_per_second"] = [mean(run.cost.target_tokens_per_second for run in runs) for runs in groups]
    columns["training_seconds"] = [mean(run.cost.training_seconds for run in runs) for runs in groups]
    return pd.DataFrame(columns)


def _reported(results: Results, name: str) -> list[float]:
    numbers = results.task.numbers()
    return [numbers.get(variant, {}).get(name, math.nan) for variant in results.groups]


def results_data(results: Results) -> TableData:
    """The results of an experiment: the paper's columns with ours beside them, then further measurements.

    The tables for people leave out times of runs beside which the machine did, or may have done, other work.
    """
    task, groups, first, means = results.task, results.groups, results.runs[0], _all_means(results)
    numbers, quiet = _results_numbers(results, means), all_quiet(groups)
    hidden = () if quiet else TIMES
    columns = {name: column for name, column in task.columns.items() if name not in hidden}
    compared = [name for name in compared_scores(task) if name in columns]
    family, scores = against_baseline(task, groups), {name: scores_of(results.model, name) for name in compared}
    estimates = {name: family.estimate(scores[name]) for name in compared}
    differences = {name: rows for name, rows in estimates.items() if any(row.freedom for row in rows)}
    tables = {OURS if task.others_data else BESIDE: _beside_paper(results, {name: means[name] for name in columns})}
    notes = [*task.notes]
    missing = [column.label for name, column in columns.items() if numbers[name].isna().all()]
    if missing:
        notes.append(f"Not measured in these runs: {', '.join(missing)}.")
    if hidden:
        notes.append(UNTIMED)
    if numbers["seeds"].max() > 1:
        notes.append(PLUS_MINUS)
    if differences:
        tables[family.caption] = difference_table(results, family, differences, seeds=True)
        notes.append(SIMULTANEOUS)
        outliers = {task.columns[name].label: uneven(scores[name]) & groups.keys() for name in compared}
        notes += outlier_note_by_score(task, outliers)
    notes += other_rows_note(results.model, groups)
    cells = {}
    for name in first.scores:
        if name not in task.columns and name not in hidden:
            heading = with_unit(score_label(first, name), first.scores[name].unit)
            cells[heading] = [significant(estimate.mean, estimate.half) for estimate in means[name]]
    if quiet:
        cells["Tokens/s"] = [significant(value) for value in numbers["tokens_per_second"]]
        cells["Training (s)"] = [significant(value) for value in numbers["training_seconds"]]
    tables["further measurements"] = results.rows("Architecture", cells)
    signatures = {
        score_label(first, name): signature(results.runs, name) for name in first.scores if name not in hidden
    }
    return results.table(numbers, tables, signatures, notes, _size_remark(results))


def _size_remark(results: Results) -> list[str]:
    """The sentence about the paper's model, where ours has another size."""
    sizes, config = results.task.sizes, results.runs[0].config
    if sizes is None or model_size(sizes.model, sizes.data) == model_size(config.model, config.data):
        return []
    return [f"The paper's numbers are of its own model: {model_size(sizes.model, sizes.data)}."]


def _beside_paper(results: Results, means: Mapping[str, list[Interval]]) -> pd.DataFrame:
    """Rounded as the paper rounds, ours and, on its data, the paper's side by side.

    A column of ours has more decimals where a number in it would keep fewer than two significant digits.
    """
    cells = {}
    for name, intervals in means.items():
        column = results.task.columns[name]
        digits = enough_digits((estimate.mean for estimate in intervals), column.digits)
        cells[with_unit(column.label, column.unit)] = with_intervals(intervals, digits)
        if not results.task.others_data:
            reported = _reported(results, name)
            cells[f"{column.label}, paper"] = [as_printed(value, column.digits) for value in reported]
    return results.rows("Architecture", cells)


# ---- a task that names families


def family_data(results: Results) -> TableData:
    """The means of a task's variants, then each family's differences."""
    task, groups, columns = results.task, results.groups, compared_scores(results.task)
    families, means = families_of(task, groups), {name: results.means(name) for name in columns}
    scores = {name: scores_of(results.model, name) for name in columns}
    differences = {
        name: {score: family.estimate(scores[score]) for score in columns} for name, family in families.items()
    }
    cells = {"Seeds": [str(len(runs)) for runs in groups.values()]}
    for name, column in columns.items():
        cells[with_unit(column.label, column.unit)] = with_intervals(means[name], column.digits)
    tables = {"every model": results.rows("Model", cells)}
    for name, family in families.items():
        if family.rows:
            tables[family.caption] = difference_table(results, family, differences[name])
    outliers: dict[str, set[str]] = {
        column.label: set().union(*(uneven(family.scores(scores[name])) for family in families.values()))
        for name, column in columns.items()
    }
    primary = task.columns[task.primary]
    slopes = "; slopes enter it as one slope for each model and seed" if "slope" in families else ""
    notes = [
        f"Verdicts are by the {primary.label[0].lower()}{primary.label[1:]}: its simultaneous interval excludes 0, or "
        f"else two one-sided t-tests at 5 % show a difference within ±{MARGINS[task.primary]} {primary.unit} "
        f"(BLEU: ±{MARGINS['bleu']}).",
        "The ± after a difference is half the width of its 95 % interval, simultaneous over its table, from one "
        f"additive model of variant and seed with a pooled residual{slopes}.",
        PLUS_MINUS,
    ]
    if task.factor:
        seeds = sorted(set().union(*scores[task.primary].values()))
        notes.append(f"Differences are of the seeds {', '.join(map(str, seeds))}.")
    return results.table(
        _family_numbers(results, families, means, differences),
        tables,
        signatures_of(results.runs, columns),
        notes + task.notes,
        outlier_note_by_score(task, outliers),
    )


def _family_numbers(
    results: Results,
    families: Mapping[str, Family],
    means: Mapping[str, list[Interval]],
    differences: Mapping[str, Mapping[str, list[Difference]]],
) -> pd.DataFrame:
    """One line a stored variant: means of scores, and differences from the Transformer (at the same level).

    At several levels also how the difference changes with them; otherwise equivalence, and the ends of means.
    """
    first, *_ = families
    compared = [next(iter(row.weights)) for row in families[first].rows]
    change = next((name for name in families if name in CHANGES), None)
    columns = results.identity()
    if change is None:
        columns["parameters"] = [runs[0].parameters for runs in results.groups.values()]
    for score, intervals in means.items():
        against_plain = dict(zip(compared, differences[first][score], strict=True))
        minus_plain = [against_plain.get(variant, NO_DIFFERENCE) for variant in results.groups]
        if change is None:
            columns |= interval_columns(score, intervals) | interval_columns(f"{score}_difference", minus_plain)
            columns[f"{score}_equivalence_p"] = [
                difference.equivalence(MARGINS[score]) if score in MARGINS else math.nan for difference in minus_plain
            ]
        else:
            rows = zip(families[change].rows, differences[change][score], strict=True)
            by_method = {row.names[0]: difference.mean for row, difference in rows}
            methods = [results.task.variants[variant].label for variant in results.groups]
            columns[score] = [estimate.mean for estimate in intervals]
            columns |= interval_columns(f"{score}_difference", minus_plain)
            columns[f"{score}_change"] = [by_method.get(method, math.nan) for method in methods]
    return pd.DataFrame(columns)
