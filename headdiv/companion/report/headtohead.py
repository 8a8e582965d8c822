"""Tables that compare outputs, as the head-to-head's: intervals over seeds, paired bootstrap, costs, heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import numpy as np
import pandas as pd

from headdiv.companion.analysis import comparison
from headdiv.companion.analysis.statistics import Interval, interval
from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.run_result import RunResult, SearchCost, metrics_path, read_outputs
from headdiv.companion.report.diversity import DIVERSITY_NOTE, diversity_table
from headdiv.companion.report.families import compared_scores, outlier_note, scores_of, single_changes
from headdiv.companion.report.formats import NONE, as_printed, enough_digits, plural, with_intervals, with_unit
from headdiv.companion.report.groups import all_quiet, other_rows_note, signatures_of
from headdiv.companion.report.measures import MEASURES, SCORE
from headdiv.companion.report.result_tables import UNTIMED, Results, difference_table
from headdiv.companion.report.table_data import TableData, interval_columns
from headdiv.companion.report.verdicts import ALPHA, MARGINS, NO_DIFFERENCE
from headdiv.companion.tasks.bleu import paired_bootstrap
from headdiv.core.errors import DataError

MEASURED: dict[str, Callable[[RunResult], float]] = {  # beside scores; NaN where the time of a search was not kept
    "training_seconds": lambda run: run.cost.training_seconds,
    "sentences_per_second": lambda run: run.cost.search.sentences_per_second if run.cost.search else math.nan,
    "peak_memory_mib": lambda run: run.cost.peak_memory_mib,
}

# ---- the paired bootstrap


def bootstrap(results: Results) -> tuple[dict[str, list[float]], str, list[str]]:
    """Every variant against the baseline of the same seed, on the stored counts of each test sentence's n-grams.

    Returns:
        p-values by variant, one a seed; the bootstrap's signature, "" where there was none; the runs without counts,
        whose stored outputs need the corpus for their references.

    Raises:
        DataError: counts do not have the BLEU of their metrics.
    """
    p_values: dict[str, list[float]] = {}
    signature, missing = "", []
    for baseline in results.groups.get(BASELINE, []):
        runs = {run.variant: run for run in results.runs if run.seed == baseline.seed}
        paths = {
            variant: metrics_path(results.profile, run.experiment, variant, run.seed) for variant, run in runs.items()
        }
        stored = {variant: read_outputs(path, results.profile).counts for variant, path in paths.items()}
        missing += [f"{variant} (seed {baseline.seed})" for variant, counts in stored.items() if counts is None]
        systems = {variant: np.array(counts) for variant, counts in stored.items() if counts is not None}
        if BASELINE not in systems or len(systems) == 1:
            continue
        result = paired_bootstrap(systems.pop(BASELINE), systems, baseline.config.data.get("lowercase", False))
        for variant, bleu in {BASELINE: result.baseline, **result.scores}.items():
            expected = runs[variant].value(SCORE)
            if abs(bleu - expected) > 1e-6:
                raise DataError(
                    f"{paths[variant].parent}: BLEU {bleu:.4f} of the stored counts, expected the {expected:.4f} of "
                    f"{paths[variant].name}; they are not of one run"
                )
        for variant, p in result.p_values.items():
            p_values.setdefault(variant, []).append(p)
        signature = result.signature
    return p_values, signature, missing


# ---- numbers


def comparison_numbers(
    results: Results, means: Mapping[str, list[Interval]], p_values: Mapping[str, list[float]]
) -> pd.DataFrame:
    """One line a variant, in the order of the paper's file.

    Columns: variant, label, seeds, epochs (a mean); of BLEU, training_seconds, sentences_per_second, peak_memory_mib
    and the head measures: mean over seeds, and ``<name>_low``, ``<name>_high``, the ends of Student's 95 % interval
    (empty for one seed); of BLEU's difference from the baseline the same, with Dunnett's simultaneous interval, the
    number of common_seeds, equivalence_p, the p-value of equivalence within `MARGINS`, and own_interval, whether the
    row is left out of the additive model (`analysis.comparison.uneven`); of the bootstrap p_lowest and
    p_highest over seeds, p_below_5_percent and p_seeds, how many seeds are below 0.05 of how many; parameters and
    parameters_of_base (%). Then of every other score of the task its mean, and its difference from the baseline with
    the interval's ends.
    """
    groups, p = results.groups, [p_values.get(variant, []) for variant in results.groups]
    differences, outliers = _differences(results, SCORE), comparison.uneven(scores_of(results.model, SCORE))
    columns = results.identity() | {"epochs": [mean(run.epochs for run in runs) for runs in groups.values()]}
    columns |= interval_columns(SCORE, means[SCORE]) | interval_columns(f"{SCORE}_difference", differences)
    columns |= {
        "common_seeds": [difference.count for difference in differences],
        "equivalence_p": [difference.equivalence(MARGINS[SCORE]) for difference in differences],
        "own_interval": [variant in outliers for variant in groups],
        "p_lowest": [min(values, default=math.nan) for values in p],
        "p_highest": [max(values, default=math.nan) for values in p],
        "p_below_5_percent": [sum(value < ALPHA for value in values) for values in p],
        "p_seeds": [len(values) for values in p],
        "parameters": [runs[0].parameters for runs in groups.values()],
        "parameters_of_base": [share.mean for share in results.means("parameters_of_base")],
    }
    for name in (*MEASURED, *MEASURES):
        columns |= interval_columns(name, means[name])
    for name in compared_scores(results.task):
        if name != SCORE:
            columns[name] = [estimate.mean for estimate in means[name]]
            columns |= interval_columns(f"{name}_difference", _differences(results, name))
    return pd.DataFrame(columns)


def _differences(results: Results, score: str) -> list[Interval]:
    """Each variant minus the baseline, among all rows of the model."""
    differences = comparison.against(scores_of(results.model, score), BASELINE)
    return [differences.get(variant, NO_DIFFERENCE) for variant in results.groups]


# ---- the table


def comparison_data(results: Results) -> TableData:
    """Scores, training, single changes, costs, heads and diversity, each a table, and how every number came about."""
    task, groups, quiet = results.task, results.groups, all_quiet(results.groups)
    p_values, p_signature, missing = bootstrap(results)
    scores = compared_scores(task)
    other_scores = {name: column for name, column in scores.items() if name != SCORE}
    means = {name: results.means(name) for name in (*scores, *MEASURES)}
    for name, measure in MEASURED.items():
        means[name] = [interval([measure(run) for run in runs]) for runs in groups.values()]
    numbers = comparison_numbers(results, means, p_values)

    signatures = {"BLEU": results.runs[0].scores[SCORE].signature}
    if p_signature:
        signatures["p"] = (
            "bootstrap over test sentences, one training each, paired with the baseline of the same seed, "
            f"{p_signature}"
        )
    searches = sorted({_search_text(run.cost.search) for run in results.runs if run.cost.search}) if quiet else []
    if searches:
        signatures["sentences/s"] = f"one pass over the test set, by the wall clock: {'; '.join(searches)}"
    signatures |= signatures_of(results.runs, other_scores)

    cells = {
        "Seeds": [str(len(runs)) for runs in groups.values()],
        "BLEU": with_intervals(means[SCORE], 2),
        "Against the baseline": with_intervals(_differences(results, SCORE), 2),
        "p": [_p_cell(p_values.get(variant, [])) for variant in groups],
    }
    tables = {"score, and its difference from the baseline": results.rows("Method", cells)}
    if other_scores:
        cells = {}
        for name, column in other_scores.items():
            cells[with_unit(column.label, column.unit)] = with_intervals(means[name], column.digits)
            cells[f"{column.label}, difference"] = with_intervals(_differences(results, name), column.digits)
        tables["training, and differences from the baseline"] = results.rows("Method", cells)
    if task.contrasts:
        family, (*_, last) = single_changes(task, groups), scores
        names = dict.fromkeys([*family.verdicts.values(), last])  # the score that decides, and the last
        changes = {name: family.estimate(scores_of(results.model, name)) for name in names}
        if family.rows:
            tables[family.caption] = difference_table(results, family, changes, seeds=True, units=True)
    tables["cost"] = results.rows("Method", _cost_cells(numbers, means, quiet))
    cells = {
        label[0].upper() + label[1:]: with_intervals(means[name], digits) for name, (label, digits) in MEASURES.items()
    }
    tables["measures of the heads"] = results.rows("Method", cells)
    notes = [*task.notes, *_notes(numbers, missing, quiet, bool(searches)), *other_rows_note(results.model, groups)]
    diversity = diversity_table(groups)
    if len(diversity):
        tables["diversity and score"] = diversity
        notes.append(DIVERSITY_NOTE)
    return results.table(numbers, tables, signatures, notes)


def _search_text(cost: SearchCost) -> str:
    strategy = "greedy" if cost.beam == 1 else f"beam {cost.beam}"
    return f"{strategy}, {cost.batch_sentences} sentences at a time, {cost.device}, {plural(cost.threads, 'thread')}"


def _p_cell(values: Sequence[float]) -> str:
    """ "0.060 to 0.459 (below 0.05: 0 of 3)" of several seeds."""
    if not values:
        return NONE
    if len(values) == 1:
        return f"{values[0]:.3f}"
    span = " to ".join(dict.fromkeys(f"{end:.3f}" for end in (min(values), max(values))))
    return f"{span} (below {ALPHA}: {sum(value < ALPHA for value in values)} of {len(values)})"


def _cost_cells(numbers: pd.DataFrame, means: Mapping[str, list[Interval]], quiet: bool) -> dict[str, list[str]]:
    """Times where nothing else kept the machine busy."""
    cells = {
        "Parameters": [f"{count:,}" for count in numbers["parameters"]],
        "Relative to the baseline (%)": [as_printed(share, 2) for share in numbers["parameters_of_base"]],
    }
    if quiet:
        digits = enough_digits(numbers["training_seconds"], 0)
        cells["Training (s)"] = with_intervals(means["training_seconds"], digits)
        cells["Translating (sentences/s)"] = with_intervals(means["sentences_per_second"], 1)
    return cells | {"Peak memory (MiB)": [as_printed(value, 0) for value in numbers["peak_memory_mib"]]}


def _interval_note(numbers: pd.DataFrame) -> str:
    judged = numbers[f"{SCORE}_difference_low"].notna()
    if not judged.any():
        if numbers["seeds"].max() > 1:
            return "No row shares several seeds with the baseline: no difference has an interval."
        return "One seed each, so there are no intervals, and how much another seed would change is not known."
    note = (
        "The ± after a difference from the baseline is half the width of Dunnett's simultaneous 95 % interval, from "
        "one additive model of variant and seed for all rows with a pooled residual: all intervals of a column hold "
        "jointly with 95 %, and a row with fewer seeds has a wider one. The ± after a score is Student's interval for "
        "its mean over seeds and says nothing about differences."
    )
    return " ".join([note, *outlier_note(numbers.loc[judged & numbers["own_interval"], "label"])])


def _notes(numbers: pd.DataFrame, missing: list[str], quiet: bool, timed: bool) -> list[str]:
    notes = [_interval_note(numbers)]
    if numbers["p_seeds"].any():
        notes.append(
            "p tells whether another test set could reverse the difference between two trained models, not whether "
            f"another training run could. If nothing differed, {ALPHA:.0%} of comparisons would come out below {ALPHA}."
        )
    if missing:
        notes.append(f"Without stored counts of n-grams, and so without p: {', '.join(missing)}.")
    notes.append("Times are by the wall clock, measured once per run." if quiet else UNTIMED)
    if quiet and not timed:
        notes.append("These runs' searches were not timed.")
    notes.append("Peak memory is that of a GPU's allocator, or of the whole process on a CPU.")
    notes.append(
        "Measures of heads are on the validation split, means over the attention modules and their heads or pairs of "
        "heads, before the output stage. In a mixture of heads, head 1 is each token's first choice."
    )
    return notes
